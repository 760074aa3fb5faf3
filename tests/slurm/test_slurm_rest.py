"""Drains through a real slurmrestd where its version can, and through scontrol where it cannot."""

import asyncio
import shutil
from pathlib import Path

import pytest
from debian13 import DEBIAN13, THIS_MACHINE
from slurm_cluster import SlurmCluster
from slurm_rest_daemon import start_rest, start_rest_with_tokens

from nodetriage.controller.scheduler import SchedulerRefused
from nodetriage.controller.slurm.client import Slurm
from nodetriage.controller.slurm.rest import RestSettings, Slurmrestd

pytestmark = pytest.mark.slurm
REASON = "nodetriage: gpu_off_bus GPU-1 [incident i-1]"


class Counted(Slurmrestd):
    """How often it was used, and with what result."""

    def __init__(self, settings: RestSettings) -> None:
        super().__init__(settings)
        self.said: list[str] = []

    async def set_node_state(self, node: str, state: str, reason: str) -> None:
        try:
            await super().set_node_state(node, state, reason)
        except Exception as error:
            self.said.append(f"{type(error).__name__}: {error}")
            raise
        self.said.append("done")


def drained_and_undrained(cluster: SlurmCluster, rest: Slurmrestd) -> None:
    slurm = Slurm(environment=cluster.env, rest=rest)
    asyncio.run(slurm.drain(["n1", "n2"], REASON))
    assert all("DRAIN" in cluster.flags(n) and cluster.node(n)["Reason"].startswith(REASON) for n in ("n1", "n2"))
    asyncio.run(slurm.undrain("n1"))
    assert ("DRAIN" in cluster.flags("n1"), "DRAIN" in cluster.flags("n2")) == (False, True)


@pytest.mark.parametrize("slurm_version", [DEBIAN13], indirect=True)
def test_nodes_are_drained_over_rest_through_a_socket_and_with_a_token(
    slurm_cluster: SlurmCluster, tmp_path: Path
) -> None:
    over_socket = Counted(RestSettings(start_rest(slurm_cluster)))
    drained_and_undrained(slurm_cluster, over_socket)
    assert over_socket.said == ["done"] * 3
    slurm_cluster.reset()
    address, token = start_rest_with_tokens(slurm_cluster)
    (tmp_path / "token").write_text(token)
    with_token = Counted(RestSettings(address, token_file=tmp_path / "token"))
    drained_and_undrained(slurm_cluster, with_token)
    assert with_token.said == ["done"] * 3
    with pytest.raises(SchedulerRefused, match="Invalid node name"):
        asyncio.run(Slurm(environment=slurm_cluster.env, rest=with_token).drain(["nope"], REASON))
    slurm_cluster.reset()
    # A token that is not taken: scontrol does it.
    (tmp_path / "token").write_text("e.x.y")
    with_token.said.clear()
    drained_and_undrained(slurm_cluster, with_token)
    assert all(said.startswith("RestUnusable") and "e.x.y" not in said for said in with_token.said)


@pytest.mark.parametrize("slurm_version", [THIS_MACHINE], indirect=True)
def test_a_slurmrestd_that_cannot_change_nodes_is_said_once_and_scontrol_drains(
    slurm_cluster: SlurmCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    if shutil.which("slurmrestd") is None:
        pytest.skip("slurmrestd is needed: Debian package slurmrestd")
    rest = Counted(RestSettings(start_rest(slurm_cluster)))
    if "slurm-wlm 22.05" not in slurm_cluster.run("scontrol", "-V"):
        pytest.skip("this machine's Slurm can change nodes over REST")
    drained_and_undrained(slurm_cluster, rest)
    assert "cannot change nodes (from Slurm 23.02 on it can); it offers: v0.0.38" in rest.said[0]
    assert capsys.readouterr().out.count("slurmrestd failed, using scontrol") == 1
