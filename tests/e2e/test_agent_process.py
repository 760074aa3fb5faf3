"""The agent as an operator meets it: started twice, reloaded with a wrong file, fed garbage, alone for a while."""

import signal

import pytest
from fleet import LIMIT_S, Agent, Fleet
from programs import runs
from slurm_cluster import wait_until

XID_79 = "NVRM: Xid (PCI:0000:3a:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."


@pytest.fixture
def agent(lone_fleet: Fleet) -> Agent:
    """An agent whose controller does not run yet."""
    agent = Agent(lone_fleet.folder / "n1", "n1", lone_fleet.address)
    lone_fleet.agents["n1"] = agent
    agent.start()
    return agent


def test_a_second_agent_on_the_same_folder_refuses_to_start(agent: Agent) -> None:
    second = agent.spawn(agent.folder / "second.log")

    assert second.wait() == 1
    assert second.said().splitlines() == [
        f"nodetriage agent: {agent.folder}/state: in use by another agent (pid {agent.program.pid}); "
        "set another agent.state_dir here"
    ]
    assert agent.looked()


def test_a_wrong_file_at_reload_changes_nothing_and_is_reported_by_its_key(agent: Agent) -> None:
    agent.settings.write_text(agent.settings.read_text() + "[checks.ib_link]\neverys = 1\n")

    agent.program.send(signal.SIGHUP)

    refused = f"{agent.settings}: checks.ib_link.everys: unknown key; known keys: "
    wait_until(lambda: refused in agent.program.said(), LIMIT_S, "the agent says so")
    assert "settings not reloaded" in agent.program.said()
    assert agent.looked()


def test_a_good_file_at_reload_is_followed(agent: Agent) -> None:
    agent.settings.write_text(agent.settings.read_text() + "[checks.ib_link]\nenabled = false\n")

    agent.program.send(signal.SIGHUP)

    wait_until(lambda: "ib_link" not in agent.status()["checks"], LIMIT_S, "ib_link is gone")


def test_garbage_in_the_kernel_log_costs_no_later_record(agent: Agent) -> None:
    agent.kernel_log.write_bytes(b"\xff\xfe\x00;\n,,,;\n" + b"x" * 3000 + b"\n")
    agent.kernel_log.write("NVRM: Xid (PCI:zz): nonsense, \\x00\\xff")
    agent.kernel_log.write(XID_79)

    wait_until(lambda: agent.check("gpu_xid")["findings"], LIMIT_S, "the fault is found")
    assert [f["fault"] for f in agent.check("gpu_xid")["findings"]] == ["gpu_off_bus"]


def test_what_happened_while_the_controller_was_away_arrives_when_it_is_back(agent: Agent, lone_fleet: Fleet) -> None:
    agent.kernel_log.write(XID_79)
    wait_until(lambda: agent.check("gpu_xid")["findings"], LIMIT_S, "the fault is found")

    lone_fleet.start_controller()

    wait_until(lambda: lone_fleet.raised("n1", "gpu_off_bus"), LIMIT_S, "the controller has the fault")
    wait_until(lambda: agent.status()["spool"]["events"] == 0, LIMIT_S, "everything is acknowledged")


def test_a_stopped_agent_ends_its_workers_and_says_goodbye(agent: Agent) -> None:
    pids = agent.status()["pids"].values()

    assert agent.program.stop() == 0

    wait_until(lambda: not [p for p in pids if runs(p)], LIMIT_S, "its processes are gone")
