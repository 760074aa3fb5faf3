"""What a node may say: every string, name and number is bounded, and what is over is set aside or refused."""

import pytest
from hostile import event
from hypothesis import given
from hypothesis import strategies as st

from nodetriage.controller.engine.check_reports import known_names
from nodetriage.controller.rpc import event_bounds
from nodetriage.controller.rpc.event_bounds import KnownNames, heartbeat_over, result_over, sort
from nodetriage.controller.rpc.peer_limits import AdmissionSettings
from nodetriage.controller.rpc.quota import DAY_S, Quota, Quotas
from nodetriage.v1 import health_pb2 as pb

OVER = {
    "a long fault": event(1, fault="f" * 65),
    "a long check": event(1, check="c" * 65),
    "a long component": event(1, component="p" * 257),
    "a long text": event(1, evidence={"line": pb.Value(text="x" * 4097)}),
    "a long key": event(1, evidence={"k" * 65: pb.Value(whole=1)}),
    "many values": event(1, evidence={f"k{i}": pb.Value(whole=i) for i in range(65)}),
    "many bytes": event(1, evidence={f"k{i}": pb.Value(text="x" * 4000) for i in range(5)}),
}


@pytest.mark.parametrize("what", OVER)
def test_an_event_that_is_too_long_is_set_aside_and_the_rest_of_its_batch_kept(what: str) -> None:
    found = sort("n1", [event(1), OVER[what], event(3)], KnownNames())
    assert [e.seq for e in found.kept] == [1, 3]
    [(_, why)] = found.aside
    assert "at most" in why


def test_an_event_at_every_bound_is_kept_as_it_is() -> None:
    evidence = {f"k{i}": pb.Value(text="x" * 200) for i in range(64)}
    longest = event(1, fault="f" * 64, check="c" * 64, component="p" * 256, evidence=evidence)
    assert sort("n1", [longest], KnownNames()) == ([longest], [])


def test_a_name_of_the_catalogue_is_kept_whoever_says_it_and_whatever_others_said() -> None:
    names = KnownNames(known_names())
    for i in range(10_000):
        names.of(f"n{i % 300}", f"made_up_{i}")
    assert names.of("n1", "gpu_off_bus") == "gpu_off_bus"
    assert names.of("n1", "gpu_xid") == "gpu_xid"


def test_a_newer_agents_first_names_are_kept_and_further_ones_are_unknown() -> None:
    names = KnownNames()
    said = [names.of("n1", f"new_{i}") for i in range(50)]
    assert said[:16] == [f"new_{i}" for i in range(16)]
    assert set(said[16:]) == {"unknown"}
    assert names.of("n2", "new_3") == "new_3"
    assert names.of("n2", "another") == "another"


def test_what_an_unknown_name_was_is_in_the_evidence() -> None:
    names = KnownNames()
    [kept], aside = sort("n1", [event(1, fault="two words")], names)
    assert (kept.fault, kept.evidence["reported_fault"].text, aside) == ("unknown", "two words", [])


@given(st.lists(st.tuples(st.integers(0, 40), st.text(max_size=70)), max_size=400))
def test_no_number_of_nodes_fills_the_names(said: list[tuple[int, str]]) -> None:
    names = KnownNames()
    kept = {names.of(f"n{node}", name) for node, name in said}
    assert len(kept) <= event_bounds.MOST_NEW_NAMES + 2
    assert all(len(name) <= event_bounds.MOST_NAME and name.isascii() for name in kept)


def test_heartbeats_and_results_have_bounds_too() -> None:
    assert heartbeat_over(pb.Heartbeat(checks=[pb.CheckState(check="c" * 65)]))
    assert heartbeat_over(pb.Heartbeat(checks=[pb.CheckState(check=f"c{i}") for i in range(513)]))
    assert heartbeat_over(pb.Heartbeat(ports=[pb.PortTraffic(port=f"p{i}") for i in range(513)]))
    assert heartbeat_over(pb.Heartbeat(boot_id="b" * 65))
    assert not heartbeat_over(pb.Heartbeat(checks=[pb.CheckState(check="c" * 64)], boot_id="b"))
    assert result_over(pb.CommandResult(id="i" * 65))
    assert result_over(pb.CommandResult(message="m" * 4097))
    assert not result_over(pb.CommandResult(id="i", message="m" * 4096))


def test_a_node_is_read_no_faster_than_its_bytes_allow() -> None:
    quota = Quota(AdmissionSettings(bytes_per_s_per_node=1000.0, burst_bytes_per_node=5000), 0.0)
    assert quota.read(1, 5000, 0.0) == 0
    assert quota.read(1, 2000, 0.0) == pytest.approx(2.0)
    assert quota.read(1, 100, 10.0) == 0


def test_over_the_days_quota_only_grave_events_are_stored_and_over_twice_the_quota_nothing() -> None:
    quota = Quota(AdmissionSettings(mib_per_day_per_node=1.0), 0.0)
    mib = 1024 * 1024
    assert quota.may_store(mib, False, 0.0)
    assert quota.may_store(1000, False, 0.0)  # the one that reaches it
    assert not quota.may_store(1000, False, 0.0)
    assert quota.may_store(mib, True, 0.0)
    assert not quota.may_store(1000, True, 0.0)
    assert quota.may_store(1000, False, 2 * DAY_S)


def test_a_node_that_connects_again_keeps_its_quota_and_its_debt() -> None:
    quotas = Quotas(AdmissionSettings(max_agents=1, bytes_per_s_per_node=1000.0, burst_bytes_per_node=1000))
    quotas.of("n1", 0.0).read(1, 5000, 0.0)
    quotas.of("n2", 0.0)
    assert quotas.of("n1", 0.0).read(1, 1000, 0.0) > 4
    quotas.of("n3", 0.0)
    quotas.of("n4", 0.0)
    assert quotas.of("n1", 0.0).read(1, 1000, 0.0) == 0  # forgotten: two nodes are remembered here


def test_a_finding_of_the_open_set_that_is_too_long_counts_as_left_out() -> None:
    stated = pb.OpenSet(stated=True, findings=[event(0), event(0, fault="f" * 65), event(0, fault="two words")])
    event_bounds.bound_open_set("n1", stated, KnownNames())
    assert [f.fault for f in stated.findings] == ["gpu_xid_notice", "unknown"]
    assert stated.left_out == 1
