"""What devlink and mlxlink say of adapters and cables."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodetriage.agent.machine.host import Host
from nodetriage.checks.fabric import nic_cables, nic_health
from nodetriage.checks.model import Finding, Severity, Unavailable
from nodetriage.checks.readers.tools.devlink import Reporter, reporters
from nodetriage.checks.readers.tools.mlxlink import Cable, cable

FATAL = Reporter("0000:29:00.0", "fw_fatal", "healthy", 3, 3)
GOOD = Cable("0000:18:00.0", "mlx5_0", "Active", "IB-NDR", "4x", "RS-FEC", 3e-10, 1.5e-254, 52.0, 75.0)


def health(now: tuple[Reporter, ...], before: tuple[Reporter, ...] | None = None) -> list[Finding]:
    return list(nic_health.judge(now, before, nic_health.Policy()))


def cables(*now: Cable) -> list[tuple[str, Severity, str]]:
    found = nic_cables.judge(now, None, nic_cables.Policy())
    return [(f.fault, f.severity, f.component) for f in found]


def test_an_adapter_in_error_is_one_finding_whatever_functions_it_has(hosts: Path) -> None:
    assert health(nic_health.read(Host(hosts / "dgx-h100"))) == []

    (finding,) = health(nic_health.read(Host(hosts / "dgx-h100-cables")))

    assert (finding.component, finding.fault, finding.severity) == ("0000:29:00.0", "nic_unhealthy", Severity.MAJOR)
    assert (finding.evidence["reporter"], finding.evidence["errors"]) == ("fw_fatal", 3)


def test_errors_that_the_driver_recovered_long_ago_are_history_and_new_ones_a_warning() -> None:
    assert health((FATAL,)) == []
    assert health((FATAL,), (FATAL,)) == []
    assert [f.severity for f in health((replace(FATAL, errors=4),), (FATAL,))] == [Severity.WARNING]
    assert health((replace(FATAL, errors=0),), (FATAL,)) == []  # the driver was loaded anew


def test_a_queue_in_error_is_less_than_the_firmware() -> None:
    assert [f.severity for f in health((replace(FATAL, name="tx", state="error"),))] == [Severity.WARNING]


def test_the_reporters_of_a_port_are_those_of_its_adapter() -> None:
    told = {"health": {"pci/0000:29:00.0/65535": [{"reporter": "rx", "state": "error", "error": 2, "recover": 1}],
                       "auxiliary/mlx5_core.sf.2": [{"reporter": "rx", "state": "error"}]}}  # fmt: skip

    assert reporters(json.dumps(told)) == (Reporter("0000:29:00.0", "rx", "error", 2, 1),)


def test_a_node_whose_drivers_report_nothing_is_skipped(tmp_path: Path) -> None:
    (tmp_path / "commands").mkdir()
    for text in ('{"health":{}}', "", "Failed to connect to devlink Netlink"):
        (tmp_path / "commands/devlink.txt").write_text(text)
        with pytest.raises(Unavailable):
            nic_health.read(Host(tmp_path))


def test_cables_are_judged_by_what_the_adapter_says(hosts: Path) -> None:
    assert cables(*nic_cables.read(Host(hosts / "dgx-h100"))) == []

    found = cables(*nic_cables.read(Host(hosts / "dgx-h100-cables")))

    assert sorted(found) == [
        ("cable_errors", Severity.WARNING, "0000:9a:00.0"),
        ("cable_hot", Severity.WARNING, "0000:ce:00.0"),
    ]


@pytest.mark.parametrize(
    ("changes", "faults"),
    [
        ({"effective_ber": 1e-12}, ["cable_errors"]),
        ({"effective_ber": 9e-13}, []),
        ({"raw_ber": 1e-5}, ["cable_errors"]),
        ({"raw_ber": None, "effective_ber": None}, []),
        ({"temperature_c": 75.0}, ["cable_hot"]),
        ({"temperature_c": 74.9}, []),
        ({"temperature_c": 79.0, "temperature_limit_c": None}, []),
        ({"temperature_c": 80.0, "temperature_limit_c": None}, ["cable_hot"]),
        ({"temperature_c": None}, []),
        ({"state": "Polling", "effective_ber": 1.0}, []),
        ({"state": "Disable", "temperature_c": 99.0}, []),
    ],
)
def test_a_cable_is_judged_by_its_limits(changes: dict[str, Any], faults: list[str]) -> None:
    assert [fault for fault, _, _ in cables(replace(GOOD, **changes))] == faults


def test_an_answer_is_read_with_its_units_and_limits(hosts: Path) -> None:
    text = (hosts / "dgx-h100/commands/mlxlink.txt").read_text()

    found = cable(text, "0000:18:00.0", "mlx5_0")

    assert (found.state, found.speed, found.width) == ("Active", "IB-NDR", "4x")
    assert (found.fec, found.advice) == ("Standard_RS-FEC - (544,514)", "No issue was observed")
    assert (found.temperature_c, found.temperature_limit_c, found.raw_ber) == (52.0, 75.0, 3e-10)
    assert (found.effective_ber or 0) < 1e-200


def test_while_a_job_runs_no_adapter_is_asked(tmp_path: Path) -> None:
    (tmp_path / "sys/class/infiniband/mlx5_0/ports/1").mkdir(parents=True)
    (tmp_path / "sys/devices/0000:18:00.0").mkdir(parents=True)
    (tmp_path / "sys/class/infiniband/mlx5_0/device").symlink_to("/sys/devices/0000:18:00.0")
    (tmp_path / "sys/fs/cgroup/system.slice/slurmstepd.scope/job_17").mkdir(parents=True)
    (tmp_path / "commands").mkdir()
    (tmp_path / "commands/mlxlink.txt").write_text("{}")

    with pytest.raises(Unavailable, match="a job runs"):
        nic_cables.read(Host(tmp_path))
    (tmp_path / "sys/fs/cgroup/system.slice/slurmstepd.scope/job_17").rmdir()
    assert len(nic_cables.read(Host(tmp_path))) == 1


def test_without_mlxlink_cables_are_not_looked_at(tmp_path: Path) -> None:
    (tmp_path / "sys/class/infiniband/mlx5_0/ports/1").mkdir(parents=True)
    (tmp_path / "sys/devices/0000:18:00.0").mkdir(parents=True)
    (tmp_path / "sys/class/infiniband/mlx5_0/device").symlink_to("/sys/devices/0000:18:00.0")

    with pytest.raises(Unavailable, match="mlxlink"):
        nic_cables.read(Host(tmp_path))


def test_an_answer_from_no_adapter_is_not_taken_for_well() -> None:
    with pytest.raises(Unavailable, match="no answer"):
        cables(Cable("0000:18:00.0", "mlx5_0", error="mlx5_0 did not answer in its time"))


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=12) | st.sampled_from(["Active", "1E-5", "9 [0..5]"]),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(
            ["result", "output", "Operational Info", "State", "Module Info", "Temperature [C]", "health", "reporter",
             "pci/0000:18:00.0", "error", "Physical Counters and BER Info", "Raw Physical BER"]
        ),
        inner,
        max_size=4,
    ),
    max_leaves=20,
)  # fmt: skip


@given(anything)
def test_no_answer_of_a_tool_makes_a_reader_fail_otherwise_than_by_saying_so(told: Any) -> None:
    for read in (lambda text: cable(text, "0000:18:00.0", "mlx5_0"), reporters):
        try:
            read(json.dumps(told))
        except ValueError:
            continue
