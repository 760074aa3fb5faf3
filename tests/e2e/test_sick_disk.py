"""A real agent on the real kernel's log and mounts, while a disk and a file server fall ill."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sick
from programs import NODETRIAGE, Program
from slurm_cluster import wait_until

from nodetriage.agent.control_socket import ask
from nodetriage.checks.registry import ALL

LOOKS = ("disk_errors", "fs_errors", "fs_mounts")
START_LIMIT_S = 90.0


class LocalAgent:
    """An agent without a controller that looks at disks and mounts alone. `before` is what starts it."""

    def __init__(self, folder: Path, *before: str) -> None:
        off = "".join(f"[checks.{check.name}]\nenabled = false\n" for check in ALL if check.name not in LOOKS)
        settings = folder / "agent.toml"
        settings.write_text(
            f'[agent]\nnode = "n1"\nstate_dir = "{folder}/state"\nrun_dir = "{folder}"\n'
            "[checks.disk_errors]\nignore = []\n[checks.fs_errors]\nignore = []\n"
            f"[checks.fs_mounts]\nevery_s = 0.5\ntimeout_s = 4.0\n{off}"
        )
        self._socket = folder / "agent.sock"
        self._program = Program(folder / "log", *before, NODETRIAGE, "agent", "--config", str(settings))
        try:
            wait_until(
                lambda: all(self.check(name).get("outcome") for name in LOOKS), START_LIMIT_S, "the agent looked"
            )
        except BaseException:
            self.close()
            raise

    def check(self, name: str) -> dict[str, Any]:
        try:
            return dict(ask(self._socket, {"ask": "status"}, 60.0)["checks"][name])
        except (OSError, ValueError, KeyError):
            return {}

    def found(self, name: str, component: str) -> dict[str, dict[str, Any]]:
        """Findings of the check on the part, by fault."""
        return {f["fault"]: f for f in self.check(name).get("findings", ()) if f["component"] == component}

    def close(self) -> None:
        self._program.kill()
        print(f"--- the agent said:\n{self._program.said()[-5000:]}")  # seen if the test failed


@pytest.fixture
def sick_disk(folder: Path) -> Iterator[sick.SickDisk]:
    if reason := sick.missing():
        pytest.skip(reason)
    disk = sick.SickDisk(folder)
    yield disk
    disk.close()


@pytest.fixture
def sick_mount(folder: Path) -> Iterator[sick.SickMount]:
    if reason := sick.missing():
        pytest.skip(reason)
    mount = sick.SickMount(folder)
    yield mount
    mount.close()


@pytest.mark.kmsg
def test_a_disk_that_fails_is_found_by_the_kernel_s_lines_and_in_the_mount_table(
    folder: Path, sick_disk: sick.SickDisk
) -> None:
    agent = LocalAgent(folder)
    try:
        point, name = str(sick_disk.point), sick_disk.name
        assert agent.found("fs_mounts", point) == agent.found("disk_errors", name) == {}

        sick_disk.mount.ails("EIO only read write fsync")
        sick_disk.write()

        said = "the kernel's lines are findings"
        wait_until(lambda: "disk_io_error" in agent.found("disk_errors", name), 60, said)
        of_ext4 = {"fs_error", "fs_forced_read_only"}
        wait_until(lambda: agent.found("fs_errors", name).keys() >= of_ext4, 60, said)
        wait_until(lambda: agent.found("fs_mounts", point), 60, "the mount is read-only")
        (finding,) = agent.found("fs_mounts", point).values()
        assert (finding["fault"], finding["severity"]) == ("mount_read_only", "critical")
    finally:
        agent.close()


def test_a_mount_that_hangs_is_named_though_the_agent_lives_in_a_mount_namespace_without_it(
    folder: Path, sick_mount: sick.SickMount
) -> None:
    """As in a hardened unit or a container: only the mount table of process 1 and its root lead there.

    Process 1 is a shell in a PID namespace of the test's own; the agent below it does not have the mount.
    """
    point = str(sick_mount.point)
    ours = ("unshare", "-m", "-p", "--fork", "--kill-child", "--mount-proc", "sh", "-c", 'unshare -m "$@"; true', "sh")
    agent = LocalAgent(folder, *ours, "sh", "-c", f'umount -l "{point}" && exec "$@"', "sh")
    try:
        assert agent.found("fs_mounts", point) == {}

        sick_mount.ails("ESTALE only statfs")
        wait_until(lambda: "mount_stale" in agent.found("fs_mounts", point), 60, "it is stale")
        sick_mount.ails("hang only statfs")
        wait_until(lambda: "mount_hung" in agent.found("fs_mounts", point), 60, "it hangs")
        assert agent.check("fs_mounts")["outcome"] == "hung"
        sick_mount.ails("")
        wait_until(lambda: agent.check("fs_mounts")["outcome"] != "hung", 60, "it is looked at again")
        wait_until(lambda: agent.found("fs_mounts", point) == {}, 60, "it is well")
    finally:
        agent.close()
