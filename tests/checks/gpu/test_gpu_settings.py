"""GPUs that are limited where their siblings are not."""

from nodetriage.checks.gpu.gpu_settings import Policy, Settings, judge, read
from nodetriage.checks.model import Gpu

LIMITS = {"power_limit_mw": 700_000, "clock_max_mhz": 1980, "addressing_mode": 1}


def node(*own: dict[str, int], policy: Policy | None = None) -> list[tuple[str, str]]:
    gpus = tuple(Settings(f"0000:{i:02x}:00.0", f"GPU-{i}", "NVIDIA H100", {**LIMITS, **o}) for i, o in enumerate(own))
    return [(f.component, f.fault) for f in judge(gpus, None, policy or Policy())]


def test_a_node_whose_gpus_are_all_limited_alike_is_the_site_s_own_choice() -> None:
    assert node({}, {}, {}, {}) == []
    assert node(*[{"power_limit_mw": 500_000}] * 4) == []


def test_one_gpu_with_a_lower_limit_or_clock_is_found_and_one_with_a_higher_one_is_not() -> None:
    assert node({}, {}, {}, {"power_limit_mw": 400_000}) == [("0000:03:00.0", "gpu_settings_differ")]
    assert node({}, {}, {}, {"clock_max_mhz": 1410}) == [("0000:03:00.0", "gpu_settings_differ")]
    assert node({}, {}, {}, {"power_limit_mw": 750_000}) == []
    assert node({}, {}, {}, {"power_limit_mw": 695_000}) == []  # within the tolerance


def test_where_two_halves_differ_nobody_can_say_which_is_right() -> None:
    assert node({}, {}, {"power_limit_mw": 500_000}, {"power_limit_mw": 500_000}) == []


def test_a_limit_below_what_the_site_expects_is_found_though_all_share_it() -> None:
    low = [{"power_limit_mw": 500_000}] * 2

    assert len(node(*low, policy=Policy(power_limit_w=700))) == 2
    assert node(*low, policy=Policy(power_limit_w=500)) == []


def test_gpus_of_another_name_are_no_siblings() -> None:
    gpus = [Settings(f"0000:{i:02x}:00.0", f"GPU-{i}", "NVIDIA H100", LIMITS) for i in range(3)]
    other = Settings("0000:09:00.0", "GPU-9", "NVIDIA L4", {"power_limit_mw": 72_000})

    assert list(judge((*gpus, other), None, Policy())) == []


def test_a_gpu_that_lost_ats_is_found_where_it_is_expected_and_one_that_does_not_report_it_is_not() -> None:
    ats = {"addressing_mode": 2}

    assert ("0000:01:00.0", "gpu_ats_lost") in node(ats, {}, ats, ats, policy=Policy(expect_ats=True))
    assert node(ats, ats, policy=Policy(expect_ats=True)) == []
    silent = Settings("0000:01:00.0", "GPU-1", "NVIDIA GB200", {})
    assert list(judge((silent,), None, Policy(expect_ats=True))) == []


def test_a_worn_power_smoothing_circuit_is_found_and_one_at_half_its_life_is_not() -> None:
    worn, half = (Settings("0000:01:00.0", "GPU-1", "NVIDIA GB200", {}, percent) for percent in (9, 50))

    assert [f.fault for f in judge((worn,), None, Policy())] == ["gpu_power_smoothing_worn"]
    assert list(judge((half,), None, Policy())) == []


def test_with_mig_each_instance_has_its_own_clocks_so_none_is_compared() -> None:
    class Machine:
        def gpus(self, whole: bool = False) -> tuple[Gpu, ...]:
            facts = {**LIMITS, "mig_enabled": 1, "power_smoothing_lifetime_percent": 80}
            return (Gpu(0, "0000:1b:00.0", "GPU-1", "NVIDIA H100", facts=facts),)

    assert read(Machine())[0].values == {}  # type: ignore[arg-type]
