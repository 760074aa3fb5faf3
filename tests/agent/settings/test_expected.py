"""Which profile a machine has, and whose settings win."""

import dataclasses
from pathlib import Path

import pytest

from nodetriage.agent.cli.one_shot import kernel_log, on_tree
from nodetriage.agent.machine.host import Host
from nodetriage.agent.settings import config
from nodetriage.agent.settings.expected import gpu_models, with_profile
from nodetriage.checks.model.settings import ConfigError
from nodetriage.checks.registry import ALL

HOSTS = Path(__file__).parents[2] / "hosts"
H100, CPU_ONLY = Host(HOSTS / "dgx-h100"), Host(HOSTS / "cpu-only")
DEFAULTS = config.defaults(ALL)


def test_the_profile_is_what_the_machine_looks_like() -> None:
    assert with_profile(DEFAULTS, H100).profile.name == "dgx-h100"
    assert with_profile(DEFAULTS, CPU_ONLY).profile.name == "generic"


def test_the_settings_name_another_and_the_command_line_a_third(tmp_path: Path) -> None:
    settings = dataclasses.replace(DEFAULTS, profile=config.Profile("dgx-a100"))
    ours = tmp_path / "ours.toml"
    ours.write_text("[match]\n[checks.gpu_lost]\nexpected_gpus = 4\n")

    assert with_profile(settings, CPU_ONLY).profile.name == "dgx-a100"
    assert with_profile(settings, CPU_ONLY, "dgx-h100").profile.name == "dgx-h100"
    assert with_profile(settings, CPU_ONLY, str(ours)).checks["gpu_lost"].check.policy.expected_gpus == 4


@pytest.mark.parametrize(
    ("profile", "message"),
    [
        ("[match]\n[checks.abacus]\nbeads = 4\n", "profile ours: checks.abacus: unknown check; known checks: "),
        ("[match]\n[checks.gpu_lost]\nbeads = 4\n", r"checks\.gpu_lost\.beads: unknown key; known keys: "),
        ("[match]\n[checks.gpu_lost]\nexpected_gpus = 'all'\n", r"checks\.gpu_lost\.expected_gpus: expected a whole"),
    ],
)
def test_a_wrong_profile_is_a_wrong_configuration(profile: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "ours.toml").write_text(profile)

    with pytest.raises(ConfigError, match=message):
        with_profile(DEFAULTS, H100, str(tmp_path / "ours.toml"))
    with pytest.raises(ConfigError, match="profile 'dgx-h1000': unknown; known profiles: "):
        with_profile(DEFAULTS, H100, "dgx-h1000")


def test_this_machine_has_a_profile_without_asking_nvml() -> None:
    assert with_profile(DEFAULTS, Host("/")).profile.name


def test_the_configuration_wins_over_the_profile(tmp_path: Path) -> None:
    (tmp_path / "agent.toml").write_text("[checks.gpu_lost]\nexpected_gpus = 7\n")
    settings = config.load(tmp_path / "agent.toml", ALL)

    assert with_profile(DEFAULTS, H100).checks["gpu_lost"].check.policy.expected_gpus == 8
    both = with_profile(settings, H100).checks["gpu_lost"]

    assert both.check.policy.expected_gpus == 7
    assert both.overrides["expected_gpus"] == 7


def test_what_is_missing_against_the_profile_is_found(tmp_path: Path) -> None:
    (tmp_path / "nine.toml").write_text("[match]\n[checks.gpu_lost]\nexpected_gpus = 9\n")
    check = with_profile(DEFAULTS, H100, str(tmp_path / "nine.toml")).checks["gpu_lost"].check

    (result,) = on_tree([check], HOSTS / "dgx-h100", None)

    assert [finding.fault for finding in result.findings] == ["gpu_missing"]


def test_the_driver_s_own_files_name_the_gpus() -> None:
    one = "Model: \t\t NVIDIA H100 80GB HBM3\nIRQ:   \t\t 18\nGPU UUID: \t GPU-0\nBus Location: \t 0000:1b:00.0\n"

    assert gpu_models(one * 2) == ("NVIDIA H100 80GB HBM3",) * 2
    assert gpu_models("") == ()


def test_a_log_that_cannot_be_read_is_told_and_not_taken_for_an_empty_one(tmp_path: Path) -> None:
    settings = dataclasses.replace(DEFAULTS, kernel_log=config.KernelLogSettings(path=tmp_path / "none"))

    assert isinstance(kernel_log(settings), FileNotFoundError)
