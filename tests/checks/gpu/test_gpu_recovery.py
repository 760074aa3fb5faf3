"""What the driver says that a GPU needs."""

from pathlib import Path

import pytest

from nodetriage.agent.machine.host import Host
from nodetriage.checks.gpu.gpu_recovery import CHECK, Action, Policy, judge, read
from nodetriage.checks.model import Severity, Unavailable
from nodetriage.checks.model.kernel_line import kernel_pattern
from nodetriage.checks.readers.nvidia_log import parse
from nodetriage.checks.rules.gpu import recovery_action
from nodetriage.checks.rules.xid_rules import assess


def severity(action: int) -> Severity | None:
    return next((f.severity for f in judge((Action("0000:1b:00.0", "GPU-1", action),), None, Policy())), None)


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        (0, None),
        (1, "MAJOR"),
        (2, "MAJOR"),
        (3, "MAJOR"),
        (4, "CRITICAL"),
        (5, "WARNING"),
        (6, "MAJOR"),
        (7, "MAJOR"),
        (99, "WARNING"),
    ],
)
def test_only_a_drain_and_reset_cannot_wait_for_the_job(action: int, expected: str | None) -> None:
    assert severity(action) is (Severity[expected] if expected else None)


@pytest.mark.parametrize("action", range(1, 12))
def test_the_field_and_xid_154_are_worth_the_same(action: int) -> None:
    line = parse(f"NVRM: Xid (PCI:0000:1b:00): 154, GPU recovery action changed from 0x0 (None) to 0x{action:x} (word)")
    assert line
    worth = assess(line)
    assert worth

    assert worth.severity is severity(action)
    assert worth.evidence["action"] == recovery_action.worth(action)[0]


def test_a_driver_without_the_field_is_skipped_and_never_well(tmp_path: Path) -> None:
    (tmp_path / "nvml.json").write_text('{"gpus": [{"index": 0, "pci": "0000:1b:00.0", "uuid": "GPU-1"}]}')

    with pytest.raises(Unavailable, match="recovery action"):
        read(Host(tmp_path))


def test_the_state_is_looked_at_when_the_driver_logs_that_it_changed() -> None:
    line = "NVRM: Xid (PCI:0000:1b:00): 154, GPU recovery action changed from 0x1 (PF FLR) to 0x0 (None)"

    assert CHECK.kernel_wakes
    assert kernel_pattern(CHECK.kernel_wakes).match(line)
    assert not kernel_pattern(CHECK.kernel_wakes).match(line.replace("154,", "1540,"))
