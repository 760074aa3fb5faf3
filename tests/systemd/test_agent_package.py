"""The installed agent under a real systemd, on a Debian that has no network."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import frozen
import pytest
from machine import Machine, eventually
from package_build import ask_agent, install
from slurm_cluster import wait_until

pytestmark = pytest.mark.timeout(1500)  # whoever comes first waits for the packages

AGENT = "nodetriage-agent.service"
# The real kernel log; and the clock, which nspawn forbids even to ask unless it is told otherwise.
LIKE_A_NODE = ("--bind=/dev/kmsg", "--capability=CAP_SYSLOG", "--system-call-filter=adjtimex clock_adjtime")
# What any package leaves behind: dpkg's and systemd's own records, caches, logs.
_NOT_OURS = re.compile(
    r"^/(dev|proc|sys|tmp|root|run/(?!nodetriage)|var/(cache|log|lib/(dpkg|systemd|private)|backups))"
)


def status(machine: Machine) -> dict[str, object]:
    """What the agent knows, once every check has run."""
    said: dict[str, object] = {}

    def ready() -> bool:
        said.clear()
        said.update(json.loads(machine.attempt("nodetriage status --json").stdout or "{}"))
        checks: dict[str, object] = said.get("checks", {})  # type: ignore[assignment]
        return bool(checks) and all("it has not run yet" not in json.dumps(c) for c in checks.values())

    wait_until(ready, 90, "all checks have run")
    return said


def hindered(said: dict[str, object]) -> dict[str, object]:
    """The checks that could not look, with what they say."""
    checks: dict[str, dict[str, object]] = said["checks"]  # type: ignore[assignment]
    return {name: c for name, c in checks.items() if c["outcome"] in ("broken", "hung")}


def files(machine: Machine) -> set[str]:
    found = machine.run("find / -xdev -path /proc -prune -o -print; find /run -path '/run/*' -print").splitlines()
    return {path for path in found if not _NOT_OURS.match(path)}


@pytest.fixture(scope="module")
def node(
    tree: Path, agent_packages: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Machine, frozen.FreezableMount]]:
    """A machine with the agent at work, and a mount of its that can be made to hang."""
    if reason := frozen.missing():
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("node")
    mount = frozen.FreezableMount(folder)
    machine = None
    try:
        machine = Machine(tree, folder, "node", (*LIKE_A_NODE, f"--bind={mount.point}:/data/scratch"))
        install(machine, agent_packages[0], "nodetriage")
        yield machine, mount
    finally:
        mount.thaw_if_frozen()
        if machine:
            machine.stop()
        mount.close()


def test_one_dpkg_without_a_network_is_all_it_takes(node: tuple[Machine, frozen.FreezableMount]) -> None:
    machine, _ = node

    assert machine.show(AGENT, "ActiveState") == "active"
    # None of them is hindered by the sandbox, least of all those that need what it could take away.
    wait_until(lambda: hindered(status(machine)) == {}, 90, "no check is hindered")
    found = status(machine)
    checks: dict[str, dict[str, object]] = found["checks"]  # type: ignore[assignment]
    assert checks["services"]["outcome"] == "ok"
    assert checks["clock_sync"]["outcome"] in ("ok", "findings")
    log: dict[str, object] = found["kernel_log"]  # type: ignore[assignment]
    assert (log["followed"], log["trouble"]) == (True, "")
    said = machine.attempt("nodetriage check fs_mounts mem_size --json")
    outcomes = {one["check"]: one["outcome"] for one in json.loads(said.stdout)["checks"]}
    assert (outcomes["fs_mounts"], said.returncode) == ("ok", 0)


def test_the_unit_looks_at_the_mounts_of_the_node_and_not_at_its_own(
    node: tuple[Machine, frozen.FreezableMount],
) -> None:
    machine, _ = node
    machine.run("mkdir -p /home/data && mount -t tmpfs -o size=1m full /home/data")
    machine.run("head -c 1000000 /dev/zero >/home/data/big")
    try:
        said = json.loads(ask_agent(machine, '{"ask": "run", "checks": ["fs_full", "fs_mounts"]}'))
    finally:
        machine.run("umount /home/data")

    found = said["checks"]["fs_full"]["findings"]
    assert [(f["component"], f["fault"]) for f in found] == [("/home/data", "fs_full")]
    # To the unit everything is read-only; that is the sandbox's doing and no fault of the node.
    assert said["checks"]["fs_mounts"]["findings"] == []


def test_nothing_of_the_node_can_be_written_by_the_unit(node: tuple[Machine, frozen.FreezableMount]) -> None:
    machine, _ = node
    pid = machine.show(AGENT, "MainPID")

    as_it_sees = f"nsenter -t {pid} -m touch /etc/x /home/x /root/x /tmp/x /usr/x /var/lib/x /var/lib/nodetriage/x"
    refused = machine.attempt(as_it_sees).stderr
    capabilities = machine.run(f"grep CapEff /proc/{pid}/status")

    assert refused.count("Read-only file system") == 6
    assert machine.run("rm /var/lib/nodetriage/x") == ""  # the one that it may write to
    assert int(capabilities.split()[1], 16) & (1 << 1 | 1 << 7 | 1 << 12 | 1 << 25) == 0  # dac_override setuid net time


def test_the_socket_is_for_root_alone(node: tuple[Machine, frozen.FreezableMount]) -> None:
    machine, _ = node

    assert machine.run("stat -c '%a %U' /run/nodetriage/agent.sock /var/lib/nodetriage").split() == [
        "600", "root", "700", "root",
    ]  # fmt: skip
    assert machine.attempt("setpriv --reuid=nobody --clear-groups nodetriage status").returncode == 3


def test_an_agent_that_stands_still_is_started_again(node: tuple[Machine, frozen.FreezableMount]) -> None:
    machine, _ = node
    machine.write(
        f"/etc/systemd/system/{AGENT}.d/test.conf", "[Service]\nWatchdogSec=8\nTimeoutStopSec=8\nRestartSec=0.1\n"
    )
    machine.run("systemctl daemon-reload && systemctl restart nodetriage-agent")
    before, pid = int(machine.show(AGENT, "NRestarts")), machine.show(AGENT, "MainPID")

    machine.run(f"kill -STOP {pid}")

    wait_until(lambda: int(machine.show(AGENT, "NRestarts")) > before, 90, "systemd starts it again")
    wait_until(lambda: machine.show(AGENT, "ActiveState") == "active", 90, "it is at work again")
    assert machine.show(AGENT, "MainPID") != pid
    eventually(machine, f"journalctl -u {AGENT} -b --no-pager", "Watchdog timeout")
    machine.run(f"rm -r /etc/systemd/system/{AGENT}.d && systemctl daemon-reload && systemctl restart {AGENT}")


def test_a_reload_takes_over_a_right_file_and_refuses_a_wrong_one(node: tuple[Machine, frozen.FreezableMount]) -> None:
    machine, _ = node
    pid = machine.show(AGENT, "MainPID")
    try:
        machine.write("/etc/nodetriage/conf.d/test.toml", "[checks.mem_size]\nenabled = false\n")
        machine.run("systemctl reload nodetriage-agent")
        eventually(machine, f"journalctl -u {AGENT} --no-pager", "settings reloaded")
        machine.write("/etc/nodetriage/conf.d/test.toml", "[agent]\nheartbeats = 1\n")
        refused = machine.attempt("systemctl reload nodetriage-agent")
        eventually(machine, f"journalctl -u {AGENT} --no-pager", "test.toml: agent.heartbeats: unknown key")
    finally:
        machine.run("rm /etc/nodetriage/conf.d/test.toml")

    assert refused.returncode != 0
    assert (machine.show(AGENT, "ActiveState"), machine.show(AGENT, "MainPID")) == ("active", pid)
    machine.run("systemctl reload nodetriage-agent")


def test_it_starts_and_tells_of_a_mount_that_hangs(node: tuple[Machine, frozen.FreezableMount]) -> None:
    machine, mount = node
    mount.freeze()
    try:
        machine.run("systemctl restart nodetriage-agent")
        said = eventually(machine, "nodetriage status", "/data/scratch: mount_hung", 90)
        # A worker that no signal ends is in the unit now, and must not keep it from being started again.
        machine.run("systemctl restart nodetriage-agent")
        assert machine.show(AGENT, "ActiveState") == "active"
    finally:
        mount.thaw_if_frozen()

    assert re.search(r"stack='\S+", said), said  # what the kernel says of it takes CAP_SYS_PTRACE
    wait_until(lambda: "mount_hung" not in machine.attempt("nodetriage status").stdout, 90, "it answers again")


def test_an_upgrade_keeps_settings_and_what_was_not_sent(
    new_machine: object, agent_packages: tuple[Path, Path]
) -> None:
    machine: Machine = new_machine("old")  # type: ignore[operator]
    install(machine, agent_packages[0], "nodetriage")
    settings = '[controller]\naddresses = ["127.0.0.1:1"]\n\n[agent]\nnode = "renamed"\n'
    machine.write("/etc/nodetriage/agent.toml", settings)
    machine.run("systemctl restart nodetriage-agent")
    before, pid = status(machine), machine.show(AGENT, "MainPID")
    assert before["node"] == "renamed"

    install(machine, agent_packages[1], "nodetriage")

    after = status(machine)
    assert machine.show(AGENT, "MainPID") != pid
    assert machine.run("cat /etc/nodetriage/agent.toml") == settings
    assert after["boot_id"] == before["boot_id"]
    # No number is given twice, and what was not sent is still to be sent.
    assert after["spool"]["next_seq"] > before["spool"]["next_seq"]  # type: ignore[index]
    assert after["spool"]["events"] >= before["spool"]["events"]  # type: ignore[index]

    machine.run("systemctl stop nodetriage-agent")
    install(machine, agent_packages[0], "nodetriage")  # the way back is the same
    assert machine.show(AGENT, "ActiveState") == "inactive"  # what was stopped by hand stays stopped


def test_a_purge_leaves_nothing(new_machine: object, agent_packages: tuple[Path, Path]) -> None:
    machine: Machine = new_machine("purged")  # type: ignore[operator]
    before = files(machine)
    install(machine, agent_packages[0], "nodetriage")
    machine.run("nodetriage check fs_mounts")
    assert "/opt/nodetriage/bin/python" in files(machine)

    machine.run("dpkg --remove nodetriage")

    assert machine.run("cat /etc/nodetriage/agent.toml")
    assert machine.run("ls /var/lib/nodetriage")
    assert machine.attempt("systemctl is-active nodetriage-agent").stdout.strip() == "inactive"
    assert machine.run("ps -eo args | grep [n]odetriage || true") == ""

    machine.run("dpkg --purge nodetriage")

    assert files(machine) - before == set()
