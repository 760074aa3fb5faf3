"""Whatever NVML says of a GPU, every check ends in an outcome, and nonsense never passes for health."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nodetriage.agent.machine.host import Host
from nodetriage.agent.machine.nvml_facts import LINK_COUNTERS, QUESTIONS, WHOLE_FIELDS
from nodetriage.agent.settings.config import defaults
from nodetriage.agent.settings.expected import with_profile
from nodetriage.agent.workers.run import run
from nodetriage.checks.model import Check, NvmlFailure, Outcome
from nodetriage.checks.registry import ALL

CHECKS = [check for check in ALL if check.worker == "gpu"]
SETTINGS = with_profile(defaults(ALL), Host("/"), "dgx-h100").checks
FACTS = sorted({*(q.fact for q in QUESTIONS), *(fact for fact, _ in WHOLE_FIELDS)} - {"processes"})
# The fact without which a check has nothing to judge.
NEEDED = {
    "gpu_recovery": "recovery_action",
    "gpu_ecc": "ecc_uncorrected_volatile",
    "gpu_nvlink": "fabric_state",
    "gpu_pcie": "pcie_replays",
    "gpu_thermal": "temperature_margin_c",
    "gpu_throttle": "clocks_event_reasons",
    "gpu_inforom": "inforom_error",
    "gpu_driver": "persistence_mode",
    "gpu_retired_pages": "retired_pages_single_bit",
    "gpu_ecc_corrected": "ecc_corrected_volatile",
    "gpu_repair": "memory_unrepairable",
    "gpu_settings": "power_limit_mw",
}

NOT_OF_AN_H100 = ("gpu_lost", "gpu_retired_pages", "gpu_c2c", "accelerators")

values = st.one_of(st.integers(-(1 << 63), 1 << 64), st.integers(0, 3), st.text(max_size=5), st.floats(), st.booleans())
links = st.lists(
    st.fixed_dictionaries(
        {"link": st.integers(0, 40), "active": st.booleans()},
        optional={
            "counters": st.dictionaries(st.sampled_from([name for name, _ in LINK_COUNTERS]), st.integers(0, 1 << 64))
        },
    ),
    max_size=3,
)
gpus = st.fixed_dictionaries(
    {"index": st.integers(0, 9), "pci": st.sampled_from(("0000:1b:00.0", "nvml-index-1")), "uuid": st.text(max_size=3)},
    optional={
        "failure": st.sampled_from([f.value for f in NvmlFailure]),
        "nvlinks": links,
        "processes": st.lists(st.integers(-5, 1 << 22), max_size=2),
        "facts": st.dictionaries(st.sampled_from(FACTS), values),
    },
)


@settings(suppress_health_check=[HealthCheck.too_slow], max_examples=80, deadline=None)
@given(st.lists(st.lists(gpus, max_size=3), min_size=1, max_size=3))
def test_any_answers_of_nvml_give_every_check_an_outcome(rounds: list[list[dict]]) -> None:
    memories: dict[str, object] = {}
    with TemporaryDirectory() as folder:
        for answers in rounds:
            (Path(folder) / "nvml.json").write_text(json.dumps({"gpus": answers}))
            host = Host(folder)
            for check in CHECKS:
                result = run(check, host.for_check(check), SETTINGS[check.name].check.policy, memories.get(check.name))
                memories[check.name] = result.memory
                assert {f.fault for f in result.findings} <= set(check.faults)
                assert result.why or result.outcome in (Outcome.OK, Outcome.FINDINGS)


@pytest.mark.parametrize("value", ["N/A", "[Unknown Error]", -7_000, 1.5, True])
@pytest.mark.parametrize("check", [c for c in CHECKS if c.name in NEEDED], ids=lambda c: c.name)
def test_a_value_that_is_none_is_broken_and_named_and_never_ok(tmp_path: Path, check: Check, value: object) -> None:
    facts = {NEEDED[check.name]: value, "retired_pages_double_bit": 0}
    gpu = {"index": 0, "pci": "0000:1b:00.0", "uuid": "GPU-1", "facts": facts}
    (tmp_path / "nvml.json").write_text(json.dumps({"gpus": [gpu]}))

    result = run(check, Host(tmp_path).for_check(check), check.policy, None)

    assert result.outcome is Outcome.BROKEN
    assert NEEDED[check.name] in result.why


@pytest.mark.parametrize("check", [c for c in CHECKS if c.name in NEEDED], ids=lambda c: c.name)
def test_what_nvml_does_not_support_is_skipped_and_never_ok(tmp_path: Path, check: Check) -> None:
    """A GPU without any facts is what an old or small board answers."""
    (tmp_path / "nvml.json").write_text('{"gpus": [{"index": 0, "pci": "0000:1b:00.0", "uuid": "GPU-1"}]}')

    result = run(check, Host(tmp_path).for_check(check), check.policy, None)

    assert result.outcome is Outcome.SKIPPED
    assert result.why


@pytest.mark.parametrize("failure", [f for f in NvmlFailure if f is not NvmlFailure.NOT_ASKED])
@pytest.mark.parametrize("check", [c for c in CHECKS if c.name in NEEDED], ids=lambda c: c.name)
def test_a_gpu_that_does_not_answer_is_left_to_gpu_lost(tmp_path: Path, check: Check, failure: NvmlFailure) -> None:
    gpu: dict[str, object] = {"index": 0, "pci": "0000:1b:00.0", "uuid": "GPU-1", "failure": failure.value}
    gpu["facts"] = {NEEDED[check.name]: 1, "retired_pages_double_bit": 0}  # what it said before it failed
    (tmp_path / "nvml.json").write_text(json.dumps({"gpus": [gpu]}))

    assert run(check, Host(tmp_path).for_check(check), check.policy, None).outcome is Outcome.SKIPPED


@pytest.mark.parametrize("check", [c for c in CHECKS if c.name not in NOT_OF_AN_H100], ids=lambda c: c.name)
def test_where_one_gpu_does_not_answer_no_check_calls_the_gpus_well(check: Check, hosts: Path) -> None:
    result = run(check, Host(hosts / "dgx-h100-xid79").for_check(check), SETTINGS[check.name].check.policy, None)

    assert (result.outcome, result.excluded) == (Outcome.SKIPPED, ("0000:9d:00.0",))
    assert result.why == "not looked at: 0000:9d:00.0"
