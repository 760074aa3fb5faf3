"""A frozen disk under spool and mounts, a driver that hangs and a BMC that is busy, all at once: the beat goes on."""

import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import frozen
import pytest
from fleet import LIMIT_S, Agent
from listener import Listener
from nvml_library import FakeGpus
from slurm_cluster import wait_until

XID_79 = "NVRM: Xid (PCI:0000:3a:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
SETTINGS = """\
[checks.fs_mounts]
every_s = 0.5
timeout_s = 1.0

[checks.gpu_lost]
every_s = 0.5
timeout_s = 1.0

[checks.bmc_power]
every_s = 0.5
timeout_s = 1.0
"""
IPMITOOL = """\
#!/bin/sh
[ -e {folder}/busy ] && exec sleep 60
echo Could not open device at /dev/ipmi0 >&2
exit 1
"""
FROZEN_S, GAP_S = 16.0, 8.0
HUNG = ("fs_mounts", "gpu_lost", "bmc_power")


@pytest.fixture
def gpus(fake_gpus: Callable[..., FakeGpus]) -> FakeGpus:
    return fake_gpus(2)


@pytest.fixture
def agent(folder: Path, mount: frozen.FreezableMount, listener: Listener, gpus: FakeGpus) -> Iterator[Agent]:
    """Its state is on the disk that will freeze, and its ipmitool, in a mount namespace of its own, can be busy."""
    if (ipmitool := shutil.which("ipmitool")) is None:
        pytest.skip("ipmitool is needed, to be replaced")
    (folder / "ipmitool").write_text(IPMITOOL.format(folder=folder))
    (folder / "ipmitool").chmod(0o755)
    within = ("unshare", "--mount", "sh", "-c", f'mount --bind {folder}/ipmitool {ipmitool} && exec "$@"', "sh")
    agent = Agent(folder / "n1", "n1", listener.address, SETTINGS, env=gpus.environment, within=within)
    (agent.folder / "conf.d").mkdir()
    (agent.folder / "conf.d/state.toml").write_text(f'[agent]\nstate_dir = "{mount.disk}/state"\n')
    try:
        agent.start()
        wait_until(lambda: listener.heartbeats, LIMIT_S, "the agent is connected")
        yield agent
    finally:
        gpus.set("all", "")
        mount.thaw_if_frozen()
        agent.close()


def test_the_heart_beats_and_a_fault_is_told_while_three_kinds_of_device_hang(
    agent: Agent, mount: frozen.FreezableMount, listener: Listener, gpus: FakeGpus, folder: Path
) -> None:
    began_s = time.monotonic()

    gpus.set("all", "~forever")
    (folder / "busy").touch()
    mount.freeze()
    for check in HUNG:
        wait_until(lambda check=check: agent.check(check)["outcome"] == "hung", LIMIT_S, f"{check} hangs")
    agent.kernel_log.write(XID_79)

    waited_s = wait_until(lambda: any(e.fault == "gpu_off_bus" for e in listener.events), LIMIT_S, "the fault is told")
    wait_until(lambda: time.monotonic() - began_s > FROZEN_S, LIMIT_S, f"it has been so for {FROZEN_S:g} s")
    print(f"longest gap {listener.longest_gap_s(began_s):.2f} s; the fault was told after {waited_s:.2f} s")
    assert listener.longest_gap_s(began_s) < GAP_S  # a heart that waits for one of them stands still all the time
    assert {agent.check(check)["outcome"] for check in HUNG} <= {"hung", "broken"}  # broken: a worker that starts again
    wait_until(lambda: agent.status()["spool"]["events"] == 0, LIMIT_S, "all is told, though nothing can be written")
