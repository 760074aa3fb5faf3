"""The controller's word to the nodes' Slurm hooks, on its way down the stream."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from fleet_client import agent, serving

from nodetriage.controller.policy.fleet_state import BreakerFacts, FleetIncident, HookFacts, HookFinding
from nodetriage.controller.policy.state import FleetState
from nodetriage.controller.rpc import hook_authority
from nodetriage.controller.rpc.session import Session
from nodetriage.controller.settings.limits import HookLimits, Shadow
from nodetriage.controller.settings.rules import Mode, Policy, Response, Rule
from nodetriage.v1 import health_pb2 as pb

NOW = datetime(2026, 12, 1, 12, tzinfo=UTC)
ENFORCE = Policy(mode=Mode.ENFORCE, hooks=HookLimits(mode="enforce", valid_s=120))
GRANT = HookFinding("gpu_xid", "GPU-1", "gpu_off_bus", "261201-1")


async def test_an_agent_learns_after_its_welcome_what_its_hooks_may_do(tmp_path: Path) -> None:
    async with serving(tmp_path) as (server, _, target), agent(target) as stream:
        server.hooks.update(FleetState(hooks={"n1": HookFacts((GRANT,))}), ENFORCE)
        await stream.hello("n1")
        word = await stream.next_hooks()
    assert (word.mode, word.valid_ms) == (pb.HOOK_MODE_ENFORCE, 120_000)
    assert [(f.component, f.fault, f.incident) for f in word.granted] == [("GPU-1", "gpu_off_bus", "261201-1")]


async def test_a_change_reaches_the_node_that_it_concerns_and_no_other(tmp_path: Path) -> None:
    async with serving(tmp_path) as (server, _, target), agent(target) as first, agent(target) as second:
        server.hooks.update(FleetState(), ENFORCE)
        for name, stream in (("n1", first), ("n2", second)):
            await stream.hello(name)
            assert not (await stream.next_hooks()).granted
        server.hooks.update(FleetState(hooks={"n1": HookFacts((GRANT,))}), ENFORCE)
        assert (await first.next_hooks()).granted
        server.hooks.update(FleetState(), replace(ENFORCE, mode=Mode.OBSERVE))
        word = await second.next_hooks()
        assert word.mode == pb.HOOK_MODE_OBSERVE  # and not the grant of n1 before it
    versions = [w.version for w in second.hooks]
    assert versions == sorted(set(versions))


async def test_before_the_state_is_known_nothing_is_said(tmp_path: Path) -> None:
    async with serving(tmp_path) as (server, _, target), agent(target) as stream:
        await stream.hello("n1")
        assert server.hooks.word("n1") is None
        server.hooks.update(FleetState(), ENFORCE)
        assert (await stream.next_hooks()).mode == pb.HOOK_MODE_ENFORCE


def test_breaker_and_fleet_incidents_go_to_every_node() -> None:
    incident = FleetIncident("261201-2", "mount_missing", ("fs_mounts",), "", "", NOW, 9, NOW)
    state = FleetState(breaker=BreakerFacts(NOW, "too much"), fleet_incidents=(incident,))
    word = hook_authority.fleet_wide(state, ENFORCE, [], [])
    assert word.breaker_why == "the breaker is open (too much)"
    assert list(word.incident_faults) == ["mount_missing"]
    assert "mount_*" in word.shared_faults


def test_what_the_policy_exempts_or_does_not_trust_refuses_no_job_without_the_controller() -> None:
    policy = replace(
        ENFORCE,
        rule=(Rule(Response.RECORD, fault="gpu_hot"),),
        shadow=Shadow(checks=("my_check",), faults=("gpu_missing",)),
    )
    faults, checks = hook_authority.excluded(policy)
    assert {"gpu_hot", "gpu_missing"} <= set(faults)
    assert "gpu_off_bus" not in faults
    assert checks == ["my_check"]


async def test_of_words_that_an_agent_does_not_read_only_the_newest_waits() -> None:
    session = Session("n1", "boot", "peer")
    for version in range(1000):
        session.send_word(pb.ControllerMessage(hooks=pb.HookAuthority(version=version)))
    written: list[pb.ControllerMessage] = []

    class Context:
        async def write(self, message: pb.ControllerMessage) -> None:
            written.append(message)

    session.close()
    await session.send_all(Context())  # type: ignore[arg-type]
    assert [message.hooks.version for message in written] == [999]
