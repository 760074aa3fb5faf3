"""`nodetriage profile`: what a machine should have, and learning it from a good one."""

import dataclasses
import json
from pathlib import Path

import pytest

from nodetriage.agent.cli import main
from nodetriage.checks.profiles import catalogue, learned
from nodetriage.checks.readers.ib_port import Port

PORT = Port("mlx5_0/1", 10.0, "ACTIVE", "LinkUp", 400, 4, "NDR", "InfiniBand")


def test_a_learned_profile_finds_its_teacher_well(
    hosts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.main(["profile", "--learn", "--root", str(hosts / "dgx-h100")]) == 0
    (tmp_path / "ours.toml").write_text(capsys.readouterr().out)

    ran = ["check", "--json", "--root", str(hosts / "dgx-h100"), "--profile", str(tmp_path / "ours.toml")]

    assert main.main(ran) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["profile"] == "ours"
    assert [f for check in said["checks"] for f in check["findings"]] == []


def test_a_learned_profile_misses_what_another_machine_of_the_kind_lacks(
    hosts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main.main(["profile", "--learn", "--root", str(hosts / "dgx-h100")])
    (tmp_path / "ours.toml").write_text(capsys.readouterr().out)

    lacking = str(hosts / "dgx-h100-gpu-missing")
    main.main(["check", "gpu_lost", "--json", "--root", lacking, "--profile", str(tmp_path / "ours.toml")])

    [check] = json.loads(capsys.readouterr().out)["checks"]
    assert "gpu_missing" in {finding["fault"] for finding in check["findings"]}


def test_nothing_is_learned_from_a_machine_that_is_not_well(hosts: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["profile", "--learn", "--root", str(hosts / "dgx-h100-xid79")]) == 2

    said = capsys.readouterr()
    assert said.out == ""
    assert "this machine has a fault: 0000:9d:00.0: gpu_off_bus" in said.err


def test_a_role_is_learned_with_the_addresses_of_its_adapters_which_outlive_their_names() -> None:
    ports = tuple(
        dataclasses.replace(PORT, name=f"{n}/1", pci=p) for n, p in (("a", "0000:40:00.0"), ("b", "0000:18:00.0"))
    )

    (role,) = learned.learn({"ib_link": ports})["ib_link"]["roles"].values()

    assert (role["pci"], role["hcas"], role["ports"]) == (["0000:18:00.0", "0000:40:00.0"], ["a", "b"], 2)


def test_a_port_that_is_down_today_teaches_nothing() -> None:
    down = Port("mlx5_1/1", 10.0, "DOWN", "Polling", 400, 4, "NDR", "InfiniBand")

    assert learned.learn({"ib_link": (PORT, down)}) == {
        "ib_link": {
            "roles": {"infiniband_400g_4x": {"hcas": ["mlx5_0"], "ports": 1, "rate_gbps": 400, "width": 4}},
        }
    }


@pytest.mark.parametrize(("total_gib", "installed_gib"), [(2015.6, 2048), (1007.1, 1024), (251.3, 256), (15.4, 16)])
def test_what_the_kernel_keeps_for_itself_counts_as_installed(total_gib: float, installed_gib: int) -> None:
    assert learned.learn({"mem_size": int(total_gib * (1 << 20))}) == {"mem_size": {"expected_gib": installed_gib}}


def test_a_machine_is_told_which_profile_it_has(hosts: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["profile", "--root", str(hosts / "dgx-a100")]) == 0

    said = capsys.readouterr().out
    assert "profile dgx-a100" in said
    assert f"expected_gpus = {catalogue.profiles()['dgx-a100'].checks['gpu_lost']['expected_gpus']}" in said
