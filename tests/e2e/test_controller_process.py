"""The controller as an operator meets it: started twice, wrongly configured, with a Slurm that does not answer."""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest
from fleet import LIMIT_S, NO_DRAIN_LIMITS, Fleet
from slurm_cluster import SlurmCluster, wait_until

XID_79 = "NVRM: Xid (PCI:0000:3a:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."


def test_a_second_controller_on_the_same_folder_refuses_to_start(lone_fleet: Fleet) -> None:
    lone_fleet.start_controller()

    second = lone_fleet.spawn_controller(lone_fleet.folder / "second.log")

    assert second.wait() == 78
    (line,) = second.said().splitlines()
    assert f"{lone_fleet.folder}/controller is in use by another controller (pid {lone_fleet.controller.pid})" in line
    assert lone_fleet.controller.status is None


def test_an_unknown_key_ends_it_with_one_line_that_names_the_known_ones(lone_fleet: Fleet) -> None:
    file = lone_fleet.folder / "controller.toml"
    file.write_text(file.read_text() + "timeout = 5\n")

    controller = lone_fleet.spawn_controller(lone_fleet.folder / "log")

    assert controller.wait() == 78
    (line,) = controller.said().splitlines()
    assert f"{file}: scheduler.timeout: unknown key; known keys: " in line


@pytest.mark.slurm
@pytest.mark.parametrize("illness", ["exit 1", "exec sleep 600", "echo nonsense"])
def test_while_slurm_is_ill_the_drain_stays_to_be_done_and_is_done_once_it_is_well(
    cluster: SlurmCluster, folder: Path, illness: str
) -> None:
    ill = folder / "ill"
    fleet = Fleet(
        folder,
        with_sick_commands(cluster.env, folder, ill, illness),
        policy=NO_DRAIN_LIMITS,
        settings="[scheduler]\ntimeout_s = 5\n",
    )
    try:
        fleet.start_controller()
        agent = fleet.add_agent("n1")
        ill.touch()
        agent.kernel_log.write(XID_79)
        # Where Slurm fell ill before it was read with n1 in it, the drain is not even tried.
        waits = "SELECT 1 FROM actions WHERE attempts > 1 OR detail LIKE 'the scheduler has not been read%'"
        wait_until(lambda: fleet.history(waits), LIMIT_S, "the drain was tried again, or waits for Slurm")
        assert fleet.history("SELECT kind, node, finished_us FROM actions") == [("drain", "n1", None)]
        assert cluster.flags("n1") == {"IDLE"}

        ill.unlink()

        wait_until(lambda: fleet.actions() == [("drain", "n1", "", "done", "done")], LIMIT_S, "the drain is done")
        assert "DRAIN" in cluster.flags("n1")
    finally:
        fleet.close()


def with_sick_commands(env: Mapping[str, str], folder: Path, ill: Path, illness: str) -> dict[str, str]:
    """`env` with Slurm commands that do as `illness` says while the file `ill` exists."""
    (folder / "bin").mkdir()
    for name in ("scontrol", "squeue", "sinfo"):
        command = folder / "bin" / name
        command.write_text(f'#!/bin/sh\n[ ! -e {ill} ] || {illness}\n[ -e {ill} ] || exec {shutil.which(name)} "$@"\n')
        command.chmod(0o755)
    return {**env, "PATH": f"{folder}/bin:{os.environ['PATH']}"}
