"""What a known machine should have."""

from pathlib import Path

import pytest

from nodetriage.agent.machine.host import Host
from nodetriage.agent.settings.config import AgentSettings, defaults
from nodetriage.agent.settings.config import load as load_settings
from nodetriage.agent.settings.expected import with_profile
from nodetriage.checks.fabric.ib_link import Role
from nodetriage.checks.model.settings import ConfigError
from nodetriage.checks.profiles.catalogue import Match, Profile, choose, load, profiles
from nodetriage.checks.registry import ALL

H100 = ("NVIDIA H100 80GB HBM3",) * 8


def site(folder: Path, setting: str) -> AgentSettings:
    """What the agent makes of a file with one line under [checks]."""
    path = folder / "agent.toml"
    path.write_text(f"[checks]\n{setting}\n")
    return load_settings(path, ALL)


@pytest.mark.parametrize(
    ("product", "gpus", "name"),
    [
        ("DGXH100", H100, "dgx-h100"),
        ("DGXH100", (), "dgx-h100"),  # NVML does not answer: the product is enough
        ("DGXH200", ("NVIDIA H200",) * 8, "dgx-h200"),
        ("DGXA100 920-23687-2530-000", ("NVIDIA A100-SXM4-80GB",) * 8, "dgx-a100"),
        ("NVIDIA DGX B200", ("NVIDIA B200",) * 8, "dgx-b200"),
        ("PowerEdge XE9680", H100, "hgx-h100"),
        ("PowerEdge XE9680", ("NVIDIA H200",) * 8, "hgx-h200"),
        ("SYS-A22GA-NBRT", ("NVIDIA B200",) * 8, "hgx-b200"),
        ("PowerEdge XE9680L", ("NVIDIA B200",) * 8, "hgx-b200"),
        ("SYS-822GS-NB3RT", ("NVIDIA B300 SXM6 AC",) * 8, "hgx-b300"),
        ("NVIDIA DGX B300", ("NVIDIA B300 SXM6 AC",) * 8, "dgx-b300"),
        ("ARS-111GL-NHR", ("NVIDIA GH200 480GB",), "gh200"),
        ("ARS-221GL-NHIR", ("NVIDIA GH200 144G HBM3e",) * 2, "generic"),  # two on one board
        ("GB300 NVL", ("NVIDIA GB300",) * 4, "gb300-nvl72-tray"),
        ("GB200 NVL", ("NVIDIA GB200",) * 4, "gb200-nvl72-tray"),
        ("GB200 NVL4", ("NVIDIA GB200",) * 4, "generic"),  # no NVSwitches, no rack
        ("GB300 NVL4", ("NVIDIA GB300",) * 4, "generic"),
        ("SYS-421GE-TNRT", ("NVIDIA L40S",) * 8, "l40s"),
        ("G492-ZD0-00", ("NVIDIA A100 80GB PCIe",) * 4, "a100-pcie"),
        ("PowerEdge XE8545", ("NVIDIA A100-SXM4-80GB",) * 4, "generic"),
        ("NVIDIA GB200 NVL72 Compute Tray", ("NVIDIA GB200",) * 4, "gb200-nvl72-tray"),
        ("Standard PC (Q35 + ICH9, 2009)", H100[:1], "generic"),  # a virtual machine with one GPU of a board
        ("", (), "generic"),
    ],
)
def test_a_machine_is_known_by_its_product_and_its_gpus(product: str, gpus: tuple[str, ...], name: str) -> None:
    assert choose(product, gpus).name == name


def test_one_gpu_of_another_kind_makes_it_another_machine() -> None:
    assert choose("DGXH100", (*H100[1:], "NVIDIA A100-SXM4-80GB")).name == "generic"


def test_of_several_that_match_the_highest_rank_wins() -> None:
    low = Profile(Match(dmi_product=("DGX*",), rank=1), name="low")
    high = Profile(Match(dmi_product=("dgxh*",), rank=2), name="high")

    assert choose("DGXH100", H100, (low, high)).name == "high"


@pytest.mark.parametrize("profile", profiles().values(), ids=lambda p: p.name)
def test_every_profile_that_we_ship_fits_the_checks(profile: Profile, tmp_path: Path) -> None:
    settings = with_profile(defaults(ALL), Host(tmp_path), profile.name)

    assert set(profile.checks) <= set(settings.checks)
    assert settings.profile.name == profile.name


def test_a_site_s_setting_wins_over_the_profile_which_wins_over_the_check(tmp_path: Path) -> None:
    settings = with_profile(site(tmp_path, "ib_link.roles.compute.ports = 4"), Host(tmp_path), "dgx-h100")

    ports = settings.checks["ib_link"].check.policy
    compute = ports.roles["compute"]
    assert isinstance(compute, Role)
    assert (compute.ports, compute.rate_gbps, ports.init_grace_s) == (4, 400, 180)
    assert settings.checks["gpu_lost"].check.policy.expected_gpus == 8
    sent_to_workers = settings.checks["ib_link"].overrides["roles"]["compute"]
    assert (sent_to_workers["ports"], sent_to_workers["rate_gbps"]) == (4, 400)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("ib_lnk = {}", r"agent\.toml: checks\.ib_lnk: unknown check; known checks: [a-z_, ]*fs_mounts, "),
        ("ib_link.speed = 1", r"checks\.ib_link\.speed: unknown key; known keys: [a-z_, ]*flap_window_s, "),
        ("ib_link.serious_flaps = '3'", r"checks\.ib_link\.serious_flaps: expected a whole number, got '3'"),
        ("ib_link = 3", r"checks\.ib_link: expected a table, got 3"),
        ("ib_link.roles.compute.down = 'bad'", r"compute\.down: expected one of 'info', 'warning'"),
    ],
)
def test_a_wrong_setting_is_refused_with_its_file_its_key_and_what_was_expected(
    setting: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=message):
        site(tmp_path, setting)


def test_a_site_may_bring_a_profile_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "our-node.toml"
    path.write_text('[match]\ndmi_product = ["OUR*"]\nrank = 20\n[checks.gpu_lost]\nexpected_gpus = 4\n')

    profile = choose("OUR-1", (), (*profiles().values(), load(path)))

    assert profile.name == "our-node"
    settings = with_profile(defaults(ALL), Host(tmp_path), str(path))
    assert settings.checks["gpu_lost"].check.policy.expected_gpus == 4


def test_a_profile_with_a_wrong_key_is_refused_by_the_name_of_its_file(tmp_path: Path) -> None:
    path = tmp_path / "our-node.toml"
    path.write_text("[match]\nproduct = []\n")

    with pytest.raises(ConfigError, match=r"our-node\.toml: match\.product: unknown key"):
        load(path)
