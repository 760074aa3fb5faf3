"""What the driver says that a GPU needs."""

from pathlib import Path

import pytest

from nodetriage.agent.machine.host import Host
from nodetriage.agent.workers.run import run
from nodetriage.checks.gpu.gpu_recovery import CHECK, Action, Policy, clears, judge, next_state, read
from nodetriage.checks.model import Outcome, Severity, Unavailable
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


def lives(**fields: object) -> Action:
    whole = {"action": 0, "energy_mj": 9_000, "persistent": True, **fields}
    return Action("0000:1b:00.0", "GPU-1", **whole)  # type: ignore[arg-type]


def ended(old: Action, now: Action) -> set[str]:
    return {fault for _, fault in clears((now,), (old,))}


def test_a_gpu_that_needed_a_reset_and_needs_nothing_more_was_reset() -> None:
    assert {"gpu_off_bus", "gpu_ecc_uncontained", "gpu_gsp_timeout"} <= ended(lives(action=1), lives())
    assert ended(lives(action=5), lives()) == set()  # the IMEX domain recovered; no GPU was reset
    assert ended(lives(action=1), lives(action=2)) == ended(lives(), lives()) == set()


def test_a_gpu_whose_energy_starts_anew_was_reset_also_with_a_driver_that_reports_no_action() -> None:
    assert "gpu_xid_fatal" in ended(lives(action=None), lives(action=None, energy_mj=12))
    assert ended(lives(), lives(energy_mj=9_001)) == set()
    assert ended(lives(), lives(energy_mj=12, action=1)) == set()
    assert ended(lives(), lives(energy_mj=None)) == set()


def test_without_persistence_mode_the_driver_starts_a_gpu_anew_for_each_job_which_cures_nothing() -> None:
    assert ended(lives(persistent=False), lives(persistent=False, energy_mj=12)) == set()


def test_a_gpu_that_is_silent_while_it_is_reset_keeps_what_it_said_before() -> None:
    memory = next_state((lives(action=1),), ())

    assert ended(memory[0], lives())


def test_where_the_driver_does_not_say_what_a_gpu_needs_it_is_not_looked_at_and_never_ok(tmp_path: Path) -> None:
    facts = '{"energy_mj": 5, "persistence_mode": 1}'
    (tmp_path / "nvml.json").write_text(
        f'{{"gpus": [{{"index": 0, "pci": "0000:1b:00.0", "uuid": "GPU-1", "facts": {facts}}}]}}'
    )

    result = run(CHECK, Host(tmp_path).for_check(CHECK), CHECK.policy, None)

    assert (result.outcome, result.excluded) == (Outcome.SKIPPED, ("0000:1b:00.0",))
