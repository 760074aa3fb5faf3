"""Slurm's answers as values, and Slurm's absence, slowness, refusals and nonsense as errors. Real ones: tests/slurm."""

import asyncio
import contextlib
import os
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from slurm_wait import wait_until

from nodetriage.controller.policy.reason import Ours, is_schedulers_own, parse_reason, reason_text
from nodetriage.controller.scheduler import (
    NodeView,
    NoScheduler,
    ReservationView,
    SchedulerRefused,
    SchedulerUnavailable,
    with_maintenance,
)
from nodetriage.controller.slurm import commands
from nodetriage.controller.slurm.client import Slurm
from nodetriage.controller.slurm.output import (
    JOB_FORMAT,
    NODE_FORMAT,
    Garbled,
    JobSignal,
    parse_jobs,
    parse_nodes,
    parse_reservations,
    parse_signal,
    parse_topology,
)
from nodetriage.controller.token_bucket import Bucket, wait_for_token

# As sinfo and squeue of 22.05.8 and 24.11.5 printed them, with the separators as | and ;
NODES = """n1|mixed+drain+not_responding|main|root|a
b, c = d;
n1|mixed+drain+not_responding|debug*|root|a
b, c = d;
n2|idle|main|Unknown|none;
n3|down*|main|slurm|Not responding;
n4|idle~+power_down|main|Unknown|none;
"""
AT = "2026-11-30T04:40:37"
JOBS = f"""2|2|N/A|N/A|RUNNING|1|1|0|root|main|(null)|{AT}|{AT}|{AT}|2|cpu=2|gres:gpu:h100:4|n[1-2];
10|3|2|N/A|SUSPENDED|1|0|4|ann|main|normal|{AT}|N/A|N/A|1|cpu=1,gres/gpu=8,gres/gpu:h100=8|N/A|n1;
7|7|N/A|6|RUNNING|1|1|0|ann|main|(null)|{AT}|N/A|N/A|1|cpu=1|N/A|n2;
6|6|N/A|6|RUNNING|1|1|1|ann|main|(null)|{AT}|N/A|N/A|1|cpu=1|gres/gpu:1|n1;
12|12|N/A|N/A|RUNNING|0|1|0|ann|main|(null)|{AT}|N/A|N/A|1|cpu=1|N/A|n2;
"""


# Nodes in odd states, as both versions printed them.
ODD_22_05 = """n1|idle+maintenance+reserved|main|Unknown|none;
n2|idle+reserved|main|Unknown|none;
n3|idle+fail+reserved|main|root|failing x;
n4|allocated+drain+reboot_requested|main|root|why not;
n6|idle+planned|main|Unknown|none;
c2|idle+cloud+powered_down|cloud|root|none;
"""
ODD_24_11 = """c2|idle+cloud+powered_down|cloud|root|none;
f1|future|cloud|root|none;
n1|idle|main|root|none;
n2|idle|main|root|none;
n3|idle+fail|main|root|failing x;
n4|mixed+drain+reboot_requested|main|root|why not;
n6|idle+planned|main|root|none;
"""
_RESERVATION = (
    "ReservationName={} StartTime=2026-11-30T05:47:31 EndTime=2026-11-30T06:47:31 Duration=01:00:00 Nodes={} "
    "NodeCnt=1 CoreCnt=16 Features=(null) PartitionName=(null) Flags={} TRES=cpu=16 Users=root Groups=(null) "
    "Accounts=(null) Licenses=(null) State={} BurstBuffer=(null) {}MaxStartDelay=(null)\n"
)
RESERVATIONS = (
    _RESERVATION.format("fix", "n1", "MAINT,IGNORE_JOBS,SPEC_NODES", "ACTIVE", "Watts=n/a ")
    + _RESERVATION.format("team", "n[2-3]", "SPEC_NODES", "ACTIVE", "")
    + _RESERVATION.format("later", "n4", "MAINT,SPEC_NODES", "INACTIVE", "")
    + _RESERVATION.format("cores", "(null)", "", "ACTIVE", "Comment=x State=INACTIVE Nodes=n9 ")
)
TOPOLOGY = """SwitchName=leaf1 Level=0 LinkSpeed=1 Nodes=n[1-2]
SwitchName=leaf2 Level=0 LinkSpeed=1 Nodes=n[3-6]
SwitchName=spine Level=1 LinkSpeed=1 Nodes=n[1-6] Switches=leaf[1-2]
"""


def printed(text: str) -> str:
    return text.replace("|", "\x1f").replace(";\n", "\x1e\n")


def test_a_node_is_seen_with_its_flags_apart_and_all_its_partitions() -> None:
    seen = parse_nodes(printed(NODES))
    assert seen["n1"] == NodeView(
        "n1", "mixed", frozenset({"drain", "not_responding"}), "a\nb, c = d", "root", ("main", "debug")
    )
    assert seen["n2"] == NodeView("n2", "idle", partitions=("main",))
    assert (seen["n3"].base, seen["n3"].down, seen["n3"].draining) == ("down", True, False)
    assert (seen["n4"].base, seen["n4"].flags) == ("idle", {"power_down"})
    assert {n: v.busy for n, v in seen.items()} == {"n1": True, "n2": False, "n3": False, "n4": False}


@pytest.mark.parametrize("text", [ODD_22_05, ODD_24_11], ids=["22.05", "24.11"])
def test_odd_states_are_told_by_name_in_every_version(text: str) -> None:
    seen = parse_nodes(printed(text))
    running = with_maintenance(seen, parse_reservations(RESERVATIONS))
    assert {n for n, v in running.items() if v.in_maintenance} == {"n1"}
    assert {n for n, v in seen.items() if v.rebooting} == {"n4"}
    assert {n for n, v in seen.items() if v.draining} == {"n3", "n4"}
    assert {n for n, v in seen.items() if v.planned} == {"n6"}
    assert {n for n, v in seen.items() if v.power_saving} == {"c2"}
    assert {n for n, v in seen.items() if not v.exists} == {"f1"} & seen.keys()
    assert not any(v.down for v in seen.values())


def test_reservations_that_run_are_seen_and_those_to_come_are_not() -> None:
    assert parse_reservations(RESERVATIONS) == (
        ReservationView("fix", ("n1",), maintenance=True),
        ReservationView("team", ("n2", "n3")),
    )
    assert parse_reservations("No reservations in the system\n") == ()
    for nonsense in ("<html>", "ReservationName=x State=ACTIVE", _RESERVATION.format("x", "n[1-", "", "ACTIVE", "")):
        with pytest.raises(Garbled, match="expected"):
            parse_reservations(nonsense)


def test_nodes_share_the_switches_and_blocks_that_are_not_the_whole_fleet() -> None:
    leaf1, leaf2 = ("switch leaf1",), ("switch leaf2",)
    assert parse_topology(TOPOLOGY) == {"n1": leaf1, "n2": leaf1} | dict.fromkeys(("n3", "n4", "n5", "n6"), leaf2)
    blocks = "BlockName=b1 BlockIndex=0 Nodes=n[1-2] BlockSize=2\nBlockName=b2 BlockIndex=1 Nodes=n3 BlockSize=2\n"
    assert parse_topology(blocks)["n3"] == ("block b2",)
    assert parse_topology("") == {}
    with pytest.raises(Garbled, match="SwitchName"):
        parse_topology("topology.conf is missing")


def test_a_job_is_named_as_operators_write_it_and_a_het_job_is_one() -> None:
    jobs = {j.job: j for j in parse_jobs(printed(JOBS))}
    assert set(jobs) == {"2", "3_2", "6", "12"}
    assert (jobs["2"].gpus, jobs["2"].node_count, jobs["2"].nodes) == (8, 2, "n[1-2]")
    assert (jobs["3_2"].gpus, jobs["3_2"].requeueable, jobs["3_2"].restarts, jobs["3_2"].active) == (8, False, 4, True)
    assert (jobs["6"].restarts, jobs["6"].nodes, jobs["6"].gpus) == (1, "n1", 1)
    assert jobs["12"].batch is False
    assert jobs["2"].started_at == datetime(2026, 11, 30, 4, 40, 37, tzinfo=UTC)
    assert jobs["3_2"].started_at is None
    assert (jobs["2"].qos, jobs["3_2"].qos) == ("", "normal")


@pytest.mark.parametrize("parse", [parse_nodes, parse_jobs])
@given(text=st.text(st.sampled_from("n1|;\n+*0aé")).map(printed))
def test_nonsense_is_refused_and_never_half_believed(parse: Callable[[str], object], text: str) -> None:
    if text.rpartition("\x1e\n")[2].strip():
        with pytest.raises(Garbled, match="expected"):
            parse(text)
    else:
        with contextlib.suppress(Garbled):
            parse(text)


@given(st.text(), st.text(st.characters(exclude_characters="\x1e"), min_size=1))
def test_no_reason_can_pass_for_another_field(component: str, reason: str) -> None:
    if "\x1f" in reason:
        return
    view = parse_nodes(f"n1\x1fidle+drain\x1fmain\x1fann\x1f{reason}\x1e\n")["n1"]
    assert (view.base, view.partitions) == ("idle", ("main",))
    ours = reason_text("gpu_off_bus", component, "261130-7")
    assert "\n" not in ours
    parsed = parse_reason(ours + " : reboot issued [root@2026-11-30T04:40:41]")
    assert parsed is not None
    assert (parsed.fault, parsed.incident) == ("gpu_off_bus", "261130-7")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "none",
        "nodetriage",
        "nodetriage: broken",
        "my nodetriage: f p [incident 1]",
        "Nodetriage: f p [incident 1]",
        "nodetriage: f p [incident 1] do not touch, RMA 12 (bob)",
        "nodetriage: f p [incident 1] : reboot issued : by bob",
        "nodetriage: f p [incident 1] : Not responding to ping, RMA 12",
    ],
)
def test_what_only_looks_like_ours_is_not(text: str) -> None:
    assert parse_reason(text) is None


def test_a_reason_of_ours_names_its_incident() -> None:
    assert parse_reason("nodetriage: f 0000:3b:00.0 [incident 1-2]") == Ours("f", "0000:3b:00.0", "1-2")


def test_what_slurm_appends_to_our_reason_leaves_it_ours() -> None:
    """From 23.11 on slurmctld appends its own words to a reason that is there."""
    told = "nodetriage: f p [incident 1-2] : Not responding"
    assert parse_reason(told) == parse_reason(f"{told} [slurm@2026-11-30T04:40:41]") == Ours("f", "p", "1-2")


SLURMS_OWN = (
    "Not responding",
    "Not responding [slurm@2026-11-30T04:40:41]",
    "Node unexpectedly rebooted",
    "ResumeTimeout reached",
    "Low RealMemory (reported:1000 < 100.00% of configured:2000)",
    "Low socket*core*thread count, Low CPUs",
    "gres/gpu count reported lower than configured (7 < 8)",
    "gres/gpu count too low (7 < 8)",
)


@pytest.mark.parametrize("text", SLURMS_OWN)
def test_slurms_own_text_is_slurms_only_where_slurm_set_it_and_nothing_was_added(text: str) -> None:
    assert is_schedulers_own(NodeView("n1", "down", reason=text, reason_by="slurm"))
    assert is_schedulers_own(NodeView("n1", "down", reason=text, reason_by="root"))
    assert not is_schedulers_own(NodeView("n1", "down", reason=text, reason_by="bob"))
    for more in (f"{text} to ping since the PSU swap, ticket 4711 (bob)", f"{text} ", f"bob: {text}", text.upper()):
        assert not is_schedulers_own(NodeView("n1", "down", reason=more, reason_by="root"))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Node powers on but not responding, RMA 12",
        "not responding - Bob is on it",
        "Kill task failed",
        "not my fan",
    ],
)
def test_any_other_text_is_a_persons_or_a_decision(text: str) -> None:
    assert not is_schedulers_own(NodeView("n1", "down", reason=text, reason_by="root"))


@given(st.sampled_from(SLURMS_OWN), st.text(min_size=1, max_size=40))
def test_no_text_with_something_added_is_slurms(text: str, added: str) -> None:
    for more in (text + added, added + text):
        if not any(more == own or more.startswith(f"{own} [slurm@") for own in SLURMS_OWN):
            view = NodeView("n1", "down", reason=more, reason_by="slurm")
            assert not is_schedulers_own(view) or more.replace(", ", "") != more


@pytest.fixture
def programs(tmp_path: Path) -> Callable[..., Slurm]:
    """A Slurm whose every command is the given shell script."""

    def make(script: str, timeout_s: float = 60) -> Slurm:
        for name in ("sinfo", "squeue", "scontrol"):
            path = tmp_path / name
            path.write_text(f"#!/bin/sh\n{script}\n")
            path.chmod(0o755)
        return Slurm(timeout_s=timeout_s, environment={"PATH": f"{tmp_path}:{os.defpath}"})

    return make


def test_missing_commands_are_said() -> None:
    slurm = Slurm(environment={"PATH": "/nonexistent"})
    with pytest.raises(SchedulerUnavailable, match="sinfo: not installed"):
        asyncio.run(slurm.nodes())


def test_a_command_that_may_not_be_run_is_said(tmp_path: Path) -> None:
    (tmp_path / "sinfo").write_bytes(b"\x7fELF nonsense")
    (tmp_path / "sinfo").chmod(0o755)
    with pytest.raises(SchedulerUnavailable, match="sinfo"):
        asyncio.run(Slurm(environment={"PATH": str(tmp_path)}).nodes())


def test_a_slow_command_is_killed_with_all_it_started(programs: Callable[..., Slurm], tmp_path: Path) -> None:
    slurm = programs(
        f"sleep 600 & echo $! > {tmp_path}/pid; wait", timeout_s=5
    )  # time enough to start what is then to be killed
    began = time.monotonic()
    with pytest.raises(SchedulerUnavailable, match=r"no answer after 5 s"):
        asyncio.run(slurm.nodes())
    assert time.monotonic() - began < 60
    grandchild = Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}/status")
    wait_until(lambda: not grandchild.exists() or "State:\tZ" in grandchild.read_text(), 60, "the grandchild is dead")


@pytest.mark.parametrize(
    ("script", "error"),
    [
        ("echo 'sinfo: error: Unable to contact slurm controller' >&2; exit 1", SchedulerUnavailable),
        ("echo 'slurm_update error: Invalid node name specified' >&2; exit 1", SchedulerRefused),
        ("echo 'slurm_update error: Invalid user id' >&2; exit 1", SchedulerRefused),
        ("echo 'slurm_update error: Access/permission denied' >&2; exit 1", SchedulerRefused),
        ("exit 139", SchedulerUnavailable),
        ("echo '<html>502</html>'", SchedulerUnavailable),
        ("head -c 3000 /dev/urandom", SchedulerUnavailable),
    ],
)
def test_a_failing_command_is_an_error_and_never_an_empty_cluster(
    programs: Callable[..., Slurm], script: str, error: type[Exception]
) -> None:
    with pytest.raises(error) as raised:
        asyncio.run(programs(script).nodes())
    assert "sinfo" in str(raised.value)


def test_a_flood_of_output_is_cut_off(programs: Callable[..., Slurm], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "OUTPUT_LIMIT_BYTES", 1 << 20)
    with pytest.raises(SchedulerUnavailable, match="more than 1048576 bytes"):
        asyncio.run(programs("cat /dev/zero").nodes())


async def test_what_is_asked_of_slurm(
    programs: Callable[..., Slurm], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SINFO_FORMAT", "%all")
    said = tmp_path / "said"
    slurm = programs(f'printf "%s|" "${{0##*/}}" "$@" "$TZ" "$LC_ALL" "$SINFO_FORMAT" >> {said}; echo >> {said}')

    await slurm.nodes()
    await slurm.jobs_on("n1")
    await slurm.drain(["n1", "n2"], "nodetriage: f p [incident 1]")
    await slurm.undrain("n1")
    await slurm.requeue("3_1", hold=False)
    await slurm.requeue("4", hold=True)
    await slurm.release("4")
    assert said.read_text().split("\n")[:-1] == [  # splitlines would split at the separators too
        f"sinfo|-h|-a|-N|-O|{NODE_FORMAT}|UTC|C||",
        f"squeue|-h|-a|-r|-w|n1|-O|{JOB_FORMAT}|UTC|C||",
        "scontrol|update|nodename=n1,n2|state=drain|reason=nodetriage: f p [incident 1]|UTC|C||",
        "scontrol|update|nodename=n1|state=undrain|UTC|C||",
        "scontrol|requeue|Incomplete|3_1|UTC|C||",
        "scontrol|requeuehold|Incomplete|4|UTC|C||",
        "scontrol|release|4|UTC|C||",
    ]


def test_calls_to_slurm_keep_their_distance_after_the_first_few() -> None:
    async def at_once(bucket: Bucket, times: int) -> int:
        turns = [asyncio.ensure_future(wait_for_token(bucket)) for _ in range(times)]
        await asyncio.sleep(0)
        return sum(work.done() for work in turns)

    async def ask(bucket: Bucket, times: int) -> float:
        began = asyncio.get_running_loop().time()
        await asyncio.gather(*(wait_for_token(bucket) for _ in range(times)))
        return asyncio.get_running_loop().time() - began

    assert asyncio.run(at_once(Bucket(2, 4, 0.0), 5)) >= 4  # the next comes after half a second
    assert asyncio.run(ask(Bucket(100, 200, 0.0), 230)) >= 0.29


def test_without_a_scheduler_there_is_nothing_to_see_and_nothing_is_done() -> None:
    none = NoScheduler()
    assert none.acts is False
    assert asyncio.run(none.nodes()) == {}
    with pytest.raises(SchedulerRefused, match="no scheduler"):
        asyncio.run(none.drain(["n1"], "x"))


@pytest.mark.parametrize(
    ("line", "asks"),
    [
        ("#SBATCH --signal=USR1", JobSignal("USR1", False)),
        ("#SBATCH --signal=B:USR1@60", JobSignal("USR1", True)),
        ("#SBATCH --signal=RB:SIGTERM@300", JobSignal("TERM", True)),
        ("#SBATCH -N2 --signal=10@90 --time=1", JobSignal("USR1", False)),
        ("#SBATCH --signal B:12", JobSignal("USR2", True)),
        ("#SBATCH --signal=KILL@60", None),
        ("#SBATCH --signal=9", None),
        ("#SBATCH --signal=USR1;reboot", None),
        ("#SBATCH --signal=999", None),
        ("## --signal=USR1", None),
        ("echo --signal=USR1", None),
    ],
)
def test_the_signal_that_a_script_asks_for_is_found(line: str, asks: JobSignal | None) -> None:
    assert parse_signal(f"#!/bin/sh\n#SBATCH -J x\n\n{line}\nsleep 600\n") == asks


def test_an_option_below_the_first_command_is_none() -> None:
    assert parse_signal("#!/bin/sh\nsleep 1\n#SBATCH --signal=USR1\n") is None


@given(st.text())
def test_no_script_gives_anything_but_a_signal_that_a_job_can_catch(script: str) -> None:
    found = parse_signal(f"#SBATCH --signal={script}")
    assert found is None or found.name.isalnum()
