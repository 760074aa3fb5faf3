"""Lines of the NVIDIA driver, whatever wraps them."""

import os
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nodetriage.agent.machine import kmsg
from nodetriage.checks.model import Severity
from nodetriage.checks.model.faults import faults
from nodetriage.checks.model.kernel_line import kernel_pattern
from nodetriage.checks.readers.log_prefix import message
from nodetriage.checks.readers.nvidia_log import (
    KERNEL_PATTERN,
    XidLine,
    catalogue,
    explain,
    explain_switch,
    parse,
)
from nodetriage.checks.rules.xid_rules import assess

TABLE = Path(__file__).parents[1] / "data/xid_lines.tsv"


def rows_of(table: Path) -> list[dict[str, str]]:
    """A table of lines by its own header."""
    columns, *rows = (line.split("\t") for line in table.read_text().splitlines() if not line.startswith("#"))
    return [dict(zip(columns, row, strict=True)) for row in rows]


def text_of(row: dict[str, str]) -> str:
    """The kernel's text, without what tools put before it."""
    raw = kmsg.parse(row["line"].encode())
    return raw.text if raw else message(row["line"].replace("\\n", "\n"))


ROWS = rows_of(TABLE)
MORE = rows_of(Path(os.environ["XID_LINES"])) if os.environ.get("XID_LINES") else []  # see data/README.md
# Two companions are there for what must not go wrong with them; they have tests of their own.
ODD = ("C09", "C10")
SHAPES = [row for row in ROWS if row["id"] not in ODD]
LINES = {row["id"]: text_of(row) for row in ROWS}


def column(value: object) -> str:
    return "-" if value is None else str(value)


@pytest.mark.parametrize("row", [*SHAPES, *(r for r in MORE if r["id"] not in ODD)], ids=lambda r: r["id"])
def test_every_known_shape_of_line_gives_its_columns(row) -> None:
    line = parse(text_of(row))

    assert line
    found = {name: column(getattr(line, name)) for name in ("kind", "pci", "mig", "code", "pid", "process")}
    assert found == {name: row[name] for name in found}


def test_the_table_of_shapes_is_whole() -> None:
    assert len(ROWS) == 64
    assert set(ODD) <= {row["id"] for row in ROWS}


def test_a_line_whose_code_is_no_number_is_not_an_xid() -> None:
    assert parse(LINES["C09"]) is None


def test_a_154_that_was_cut_short_is_still_a_154_of_which_nothing_more_is_known() -> None:
    line = parse(LINES["C10"])

    assert line
    assert (line.pci, line.code) == ("0000:05:00", 154)
    worth = assess(line)
    assert worth
    assert (worth.fault, worth.severity, worth.over) == ("gpu_recovery_action", Severity.WARNING, False)


@pytest.mark.parametrize(
    ("id_", "sign"),
    [
        ("C01", "uuid"),
        ("C02", "off_bus"),
        ("C03", "off_bus"),
        ("C05", "init_failed"),
        ("C06", "gsp_heartbeat"),
        ("C07", "reset_required"),
    ],
)
def test_a_line_without_a_code_says_what_happened(id_: str, sign: str) -> None:
    line = parse(LINES[id_])

    assert line
    assert line.sign == sign


@pytest.mark.parametrize("row", SHAPES, ids=lambda r: r["id"])
def test_the_kernel_log_is_searched_for_every_shape(row) -> None:
    assert kernel_pattern(KERNEL_PATTERN).match(LINES[row["id"]])


def test_a_gpu_has_one_name_whether_or_not_the_driver_prints_its_function() -> None:
    with_function, without = parse(LINES["C02"]), parse(LINES["P02"])

    assert with_function
    assert without
    assert with_function.component == without.component == "0000:b1:00.0"


def test_the_eight_digits_of_nvml_and_upper_case_make_the_same_address() -> None:
    line = parse("NVRM: Xid (PCI:00000000:9D:00): 79, GPU has fallen off the bus.")

    assert line
    assert line.component == "0000:9d:00.0"


def test_a_compute_instance_is_told_with_its_gpu_instance() -> None:
    line = parse("NVRM: Xid (PCI:0000:01:00 GPU-I:05 GPU-CI:02): 94, pid=1, Contained: CE User Channel (0x9).")

    assert line
    assert line.mig == "GI=5,CI=2"


@pytest.mark.parametrize(
    "text",
    [
        "nvidia-peermem nv_get_p2p_free_callback:127 ERROR detected invalid context, skipping further processing",
        "NVRM: GPU Board Serial Number: 1650124014249",
        "NVRM: objClInitPcieChipset: *** Chipset has not been officially certified",
        "NVRM: The NVIDIA GPU 0000:b3:00.0 (PCI ID: 10de:26b5) installed in this system is not supported",
        "Xid 79",
        "",
    ],
)
def test_what_is_no_fault_is_not_taken_for_one(text: str) -> None:
    assert parse(text) is None


@given(st.one_of(st.text(), st.binary(max_size=10_000).map(lambda b: b.decode("utf-8", "replace"))))
@example("NVRM: Xid (PCI:0000:01:00): " + "9" * 10_000)
@example("NVRM: Xid (PCI:0000:01:00): 13, pid=" + "1" * 10_000 + ", name=" + "x, " * 3_000)
@example("NVRM: The NVIDIA GPU 0000:b3:00.0" + " " * 10_000 + "fallen off the bus")
@example("\ud800 NVRM: Xid (PCI:0000:01:00): 13, \x00\x1b[31m")
def test_no_text_makes_the_parser_raise(text: str) -> None:
    if line := parse(text):
        assess(line)


@given(
    st.sampled_from([LINES[row["id"]] for row in ROWS]),
    st.text(max_size=200),
    st.integers(0, 300),
    st.text(max_size=200),
)
def test_damage_to_a_real_line_never_makes_parser_or_rules_raise(line: str, junk: str, at: int, tail: str) -> None:
    for text in (line[:at], line[:at] + junk + line[at:], line[:at] + junk, line + tail, junk + line):
        if found := parse(text):
            assess(found)


@given(st.integers(0, 999_999), st.text(max_size=300))
def test_every_code_with_any_text_is_worth_something_that_the_vocabulary_knows(code: int, rest: str) -> None:
    for kind in ("xid", "sxid"):
        worth = assess(XidLine(kind, "0000:01:00", code, rest=rest))  # type: ignore[arg-type]

        assert worth
        assert worth.fault in faults()


def test_every_code_of_the_catalogue_can_be_explained() -> None:
    assert len(catalogue()) == 178
    for code, xid in catalogue().items():
        assert xid.code == code
        assert xid.fault in faults(), code
        assert all((xid.mnemonic, xid.meaning, xid.advice, xid.source)), code


def test_no_code_that_a_program_causes_can_drain_a_node_alone() -> None:
    harsh = [c for c, x in catalogue().items() if x.class_ == "application" and x.severity > Severity.INFO]

    assert harsh == []
    assert {explain(code).severity for code in (8, 13, 31, 32, 43, 45, 68, 69)} == {Severity.INFO}


@pytest.mark.parametrize("code", [46, 48, 62, 64, 74, 79, 95, 119, 120, 140, 143, 158, 167, 171, 172, 175])
def test_a_code_that_nothing_can_run_after_is_high(code: int) -> None:
    assert explain(code).severity is Severity.CRITICAL


def test_a_code_that_nobody_knows_is_a_warning_of_its_own() -> None:
    unknown = explain(4711)

    assert (unknown.fault, unknown.severity) == ("gpu_xid_unknown", Severity.WARNING)


def test_every_switch_code_can_be_explained() -> None:
    halted = explain_switch(26006)

    assert halted
    assert halted.severity is Severity.CRITICAL
    assert explain_switch(1) is None
