"""PCIe generations of GPUs at work."""

from dataclasses import replace

import pytest

from nodetriage.checks.gpu.gpu_link_speed import CHECK, Speed, judge, next_state
from nodetriage.checks.model import Finding, Severity

IDLE = Speed("0000:1b:00.0", "GPU-a", generation=1, most=5, busy=False)
STUCK = replace(IDLE, generation=2, busy=True)
WELL = replace(IDLE, generation=5, busy=True)


def found(*looks: Speed) -> list[Finding]:
    """What the last of the looks shows."""
    memory = None
    for look in looks[:-1]:
        memory = next_state(memory, (look,))
    return list(judge((looks[-1],), memory, CHECK.policy))


def test_a_gpu_that_works_at_a_low_generation_look_after_look_is_slow() -> None:
    assert found(STUCK, STUCK) == []

    (finding,) = found(STUCK, STUCK, STUCK)

    assert (finding.component, finding.fault, finding.severity) == ("0000:1b:00.0", "pcie_link_slow", Severity.MAJOR)
    assert (finding.evidence["generation"], finding.evidence["expected_generation"]) == (2, 5)


def test_an_idle_gpu_at_the_lowest_generation_is_well_however_long_it_idles() -> None:
    assert found(*(IDLE,) * 10) == []


def test_idle_looks_in_between_neither_count_nor_clear() -> None:
    assert [f.fault for f in found(STUCK, IDLE, STUCK, IDLE, STUCK)] == ["pcie_link_slow"]
    assert [f.fault for f in found(STUCK, STUCK, STUCK, IDLE)] == ["pcie_link_slow"]


@pytest.mark.parametrize("good", [WELL, replace(WELL, busy=False)])
def test_one_look_at_full_speed_clears_it(good: Speed) -> None:
    assert found(STUCK, STUCK, STUCK, good) == []
    assert found(STUCK, STUCK, good, STUCK) == []


def test_a_slot_of_an_older_generation_is_no_fault() -> None:
    assert found(*(replace(WELL, generation=4, most=4),) * 5) == []


def of_several(*looks: tuple[Speed, ...]) -> list[Severity]:
    memory = None
    for look in looks[:-1]:
        memory = next_state(memory, look)
    return [finding.severity for finding in judge(looks[-1], memory, CHECK.policy)]


def test_slots_that_a_bios_holds_at_a_lower_generation_on_all_gpus_since_boot_are_a_warning() -> None:
    both = (STUCK, replace(STUCK, uuid="GPU-2", pci="0000:2b:00.0"))

    assert of_several(both, both, both) == [Severity.WARNING, Severity.WARNING]


def test_gpus_that_were_faster_in_this_boot_or_of_which_one_is_faster_have_a_fault() -> None:
    other = replace(STUCK, uuid="GPU-2", pci="0000:2b:00.0")
    fast = replace(WELL, uuid="GPU-3", pci="0000:3b:00.0")
    both = (STUCK, other)

    assert of_several((WELL, other), both, both, both) == [Severity.MAJOR, Severity.MAJOR]
    assert of_several(*((*both, fast),) * 3) == [Severity.MAJOR, Severity.MAJOR]
