"""Memory errors that the memory controllers counted."""

from dataclasses import replace
from pathlib import Path

import pytest

from nodetriage.agent.machine.host import Host
from nodetriage.checks.host.mem_edac import CHECK, Policy, judge, read
from nodetriage.checks.model import Finding, Severity, Unavailable
from nodetriage.checks.readers.edac import Dimm

DIMM = Dimm("CPU_SrcID#0_MC#0_Chan#1_DIMM#0", "mc0/dimm1", at_s=1000.0)
MC = "sys/devices/system/edac/mc/mc0"


def found(now: Dimm, before: Dimm | None = None) -> list[Finding]:
    return list(judge((now,), (before,) if before else None, CHECK.policy))


def put(root: Path, **files: str) -> None:
    for name, text in files.items():
        path = root / MC / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")


def test_an_uncorrected_error_is_high_also_at_the_first_look_and_is_told_once() -> None:
    hurt = replace(DIMM, uncorrected=1)

    (finding,) = found(hurt)

    assert (finding.component, finding.fault, finding.severity) == (DIMM.name, "mem_uncorrected", Severity.CRITICAL)
    assert found(hurt, hurt) == []
    assert found(replace(DIMM, uncorrected=3), hurt)[0].evidence["errors"] == 2


def test_millions_of_corrected_errors_in_the_past_are_no_fault() -> None:
    old = replace(DIMM, corrected=4_000_000)

    assert found(old) == []
    assert found(replace(old, at_s=9000.0, corrected=4_000_010), old) == []


@pytest.mark.parametrize(
    ("errors", "after_s", "storm"), [(19, 60, False), (20, 720, True), (20, 3600, False), (100, 3600, True)]
)
def test_corrected_errors_count_by_their_rate_on_one_dimm(errors: int, after_s: float, storm: bool) -> None:
    now = replace(DIMM, at_s=DIMM.at_s + after_s, corrected=errors)

    assert [(f.fault, f.severity) for f in found(now, DIMM)] == [("mem_corrected_storm", Severity.WARNING)] * storm


def test_a_counter_that_fell_was_reset_by_its_driver() -> None:
    assert found(replace(DIMM, at_s=9000.0, corrected=2), replace(DIMM, corrected=900, uncorrected=1)) == []


def test_dimms_have_their_labels_and_what_no_dimm_has_is_the_controller_s(tmp_path: Path) -> None:
    put(
        tmp_path, ce_count="7", ue_count="1",
        dimm0__dimm_ce_count="2", dimm0__dimm_ue_count="0", dimm0__dimm_label="P1-A1",
        dimm1__dimm_ce_count="0", dimm1__dimm_ue_count="0", dimm1__dimm_label="",
    )  # fmt: skip

    dimms = read(Host(tmp_path))

    assert [(d.name, d.corrected, d.uncorrected) for d in dimms] == [
        ("P1-A1", 2, 0),
        ("mc0/dimm1", 0, 0),
        ("mc0", 5, 1),
    ]


def test_equal_labels_are_told_apart_by_their_place(tmp_path: Path) -> None:
    put(tmp_path, ce_count="0", ue_count="0")
    for i in (0, 1):
        put(tmp_path, **{f"dimm{i}__dimm_ce_count": "0", f"dimm{i}__dimm_label": "unknown memory"})

    assert [d.name for d in read(Host(tmp_path))] == ["mc0/dimm0 unknown memory", "mc0/dimm1 unknown memory", "mc0"]


@pytest.mark.parametrize(
    ("files", "name"),
    [
        ({"rank2__dimm_ce_count": "3", "rank2__dimm_label": "B2"}, "B2"),
        ({"csrow0__ce_count": "3", "csrow0__ue_count": "0", "csrow0__ch0_dimm_label": "C3"}, "C3"),
    ],
)
def test_older_layouts_are_read(tmp_path: Path, files: dict[str, str], name: str) -> None:
    put(tmp_path, ce_count="3", ue_count="0", **files)

    assert [(d.name, d.corrected) for d in read(Host(tmp_path))] == [(name, 3), ("mc0", 0)]


def test_where_the_firmware_keeps_memory_errors_it_is_skipped(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="firmware"):
        read(Host(tmp_path))


@pytest.mark.parametrize("text", ["", "-1", "Unknown", "9" * 300, "\ufffd"])
@pytest.mark.parametrize("name", ["dimm0__dimm_ce_count", "dimm0__dimm_ue_count"])
def test_a_counter_that_makes_no_sense_is_found(tmp_path: Path, name: str, text: str) -> None:
    put(tmp_path, ce_count="0", ue_count="0", **{"dimm0__dimm_ce_count": "0", "dimm0__dimm_label": "A1", name: text})

    (finding,) = judge(read(Host(tmp_path)), None, Policy())

    assert (finding.component, finding.fault) == ("A1", "mem_counter_unreadable")
    assert name.replace("__", "/") in str(finding.evidence["error"])


def test_errors_while_a_counter_could_not_be_read_are_not_guessed() -> None:
    assert found(replace(DIMM, uncorrected=0, corrected=9000), replace(DIMM, error="EIO")) == []
