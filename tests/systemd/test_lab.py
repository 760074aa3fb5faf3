"""Three machines with Slurm: the packages installed on all, a fault on one, and what the installed units make of it."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from lab import KERNEL_LOG, Lab
from machine import Machine, eventually
from package_build import install
from slurm_cluster import wait_until

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(1500)]  # whoever comes first waits for the packages

CONTROLLER = "nodetriage-controller.service"
XID_79 = "NVRM: Xid (PCI:0000:3a:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
AGENT_TOML = f"""\
[controller]
addresses = ["n1:7443"]
[identity]
kind = "munge"
[agent]
boot_grace_s = 0
[kernel_log]
path = "{KERNEL_LOG}"
[checks.gpu_xid]
any_device = true
"""
CONTROLLER_TOML = """\
[controller]
listen = "0.0.0.0:7443"
[identity]
kind = "munge"
[scheduler]
scan_every_s = 2
[metrics]
listen = "127.0.0.1:7444"
"""
# Only what the test does is to drain: these machines have no clock that is kept, and disks of the machine around them.
POLICY = """\
mode = "enforce"
[severity]
critical = "record"
major = "record"
[[rule]]
fault = "gpu_off_bus"
action = "drain_and_requeue"
"""


@pytest.fixture
def lab(tree: Path, tmp_path: Path) -> Iterator[Lab]:
    lab = Lab(tree, tmp_path)
    yield lab
    for name, machine in lab.machines.items():  # seen if the test failed
        print(f"--- {name}\n{machine.attempt('journalctl -b --no-pager -o cat | tail -n 80').stdout[-8000:]}")
    lab.stop()


def job(machine: Machine, number: str) -> dict[str, str]:
    return dict(re.findall(r"(\S+?)=(\S*)", machine.run(f"scontrol show job -o {number}")))


def connected(head: Machine) -> list[str]:
    """Names of nodes whose agents have shown who they are."""
    log = head.run(f"journalctl -u {CONTROLLER} --no-pager -o cat").splitlines()
    told = [json.loads(line) for line in log if '"agent connected"' in line]
    return sorted({f"{t['node']} {t['identity'].split()[0]}" for t in told})


def test_a_fault_on_one_node_drains_it_and_requeues_its_job_through_the_installed_units(
    lab: Lab, agent_packages: tuple[Path, Path], controller_package: Path
) -> None:
    head, sick = lab.machines["n1"], lab.machines["n2"]
    for machine in lab.machines.values():
        install(machine, agent_packages[0], "nodetriage")
    lab.start_slurm()
    install(head, controller_package, "nodetriage-controller")
    head.write("/etc/nodetriage/controller.toml", CONTROLLER_TOML)
    head.write("/etc/nodetriage/policy.toml", POLICY)
    head.run(f"systemctl restart {CONTROLLER}")
    for machine in lab.machines.values():
        machine.write("/etc/nodetriage/agent.toml", AGENT_TOML)
        machine.run("systemctl restart nodetriage-agent")
    wait_until(lambda: connected(head) == ["n1 munge", "n2 munge", "n3 munge"], 90, "all agents are known by munge")
    script = "touch /run/job-began; sleep 600"
    number = head.run(f"sbatch --parsable -w n2 --chdir=/ -o /dev/null --wrap '{script}'").strip()
    # RUNNING alone would say too little: with the prolog still at work, the fault would rightly be its to refuse.
    wait_until(lambda: sick.attempt("test -e /run/job-began").returncode == 0, 90, "the prolog let the job in")

    lab.kernel_logs["n2"].write(XID_79)

    wait_until(lambda: lab.states()["n2"] == "drained", 90, "n2 is drained")
    wait_until(lambda: job(head, number)["Restarts"] == "1", 90, "the job is requeued")
    assert lab.states() == {"n1": "idle", "n2": "drained", "n3": "idle"}
    assert job(head, number)["JobState"] == "PENDING"
    assert "nodetriage: gpu_off_bus 0000:3a:00.0" in head.run("scontrol show node n2")
    assert "gpu_off_bus" in sick.attempt("nodetriage status").stdout
    figures = (
        "python3 -c 'import urllib.request as u; print(u.urlopen(\"http://127.0.0.1:7444/metrics\").read().decode())'"
    )
    eventually(head, figures, 'nodetriage_actions{kind="drain",status="done"} 1.0')
    eventually(head, figures, "nodetriage_agents_connected 3.0")


def test_an_upgraded_controller_has_its_history_and_a_purged_one_leaves_nothing(
    new_machine: object, agent_packages: tuple[Path, Path], controller_package: Path
) -> None:
    machine: Machine = new_machine("head")  # type: ignore[operator]
    install(machine, controller_package, "nodetriage-controller")
    assert machine.show(CONTROLLER, "ActiveState") == "active"
    # Installing it touches nothing until somebody says so.
    assert 'mode = "observe"' in machine.run("cat /etc/nodetriage/policy.toml").splitlines()
    install(machine, agent_packages[0], "nodetriage")
    machine.write("/etc/nodetriage/conf.d/here.toml", '[controller]\naddresses = ["127.0.0.1:7443"]\n')
    machine.run("systemctl restart nodetriage-agent")
    eventually(machine, "nodetriagectl events", "agent_started")
    before = machine.run("nodetriagectl events | grep agent_started | head -n 1")
    machine.run("systemctl stop nodetriage-agent")
    pid = machine.show(CONTROLLER, "MainPID")

    install(machine, controller_package, "nodetriage-controller")  # what an upgrade does, with the same files

    assert machine.show(CONTROLLER, "ActiveState") == "active"
    assert machine.show(CONTROLLER, "MainPID") != pid
    assert before in machine.run("nodetriagectl events")

    machine.run("dpkg --purge nodetriage nodetriage-controller")

    left = machine.run("find / -xdev -path /proc -prune -o -name '*nodetriage*' -print").splitlines()
    ours_no_more = [path for path in left if not path.startswith(("/var/log/", "/var/cache/"))]
    assert ours_no_more == ["/etc/nodetriage"]  # for the one file in it that is the administrator's
    assert machine.run("find /etc/nodetriage -type f").split() == ["/etc/nodetriage/conf.d/here.toml"]
