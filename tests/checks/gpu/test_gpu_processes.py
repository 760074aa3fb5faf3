"""Processes that no job owns."""

import json
from pathlib import Path, PurePosixPath

import pytest

from nodetriage.agent.machine.host import Host
from nodetriage.agent.workers.run import run
from nodetriage.checks.gpu.gpu_processes import CHECK, Policy, Process, Processes, judge, read
from nodetriage.checks.model import Gpu, Outcome, Unavailable

STAT = "{pid} ({comm}) {state} 1 1 1 0 -1 4194304 9 0 1 0 4 8 0 0 20 0 4 0 {start} 9 1 18446744073709551615 1 1 0 0\n"
JOB = "0::/system.slice/slurmstepd.scope/job_1182/step_0/user/task_0"
NOBODY = "0::/user.slice/user-1004.slice/session-88.scope"


GIB = 1 << 30


def machine(root: Path, **processes: tuple[str, str, str]) -> Host:
    """`p4711=(comm, state, cgroup)`; up for 1,000 s, each process for 900."""
    pids = [int(name[1:]) for name in processes]
    gpus = [{"index": 0, "pci": "0000:1b:00.0", "uuid": "GPU-1", "processes": [*pids, 99]}]  # 99 is gone already
    (root / "nvml.json").write_text(json.dumps({"gpus": gpus}))
    (root / "clock.toml").write_text("boottime_s = 1000.0\n")
    for pid, (comm, state, cgroup) in zip(pids, processes.values(), strict=True):
        folder = root / f"proc/{pid}"
        folder.mkdir(parents=True)
        (folder / "stat").write_text(STAT.format(pid=pid, comm=comm, state=state, start=10_000))
        (folder / "cgroup").write_text(f"{cgroup}\n")
    return Host(root)


def with_slurm(root: Path) -> None:
    (root / "sys/fs/cgroup/system.slice/slurmstepd.scope").mkdir(parents=True)


def faults(host: Host, policy: Policy | None = None) -> list[tuple[str, object]]:
    return [(f.component, f.evidence["pid"]) for f in judge(read(host), None, policy or Policy())]


def test_a_process_that_vanishes_while_it_is_read_is_forgiven(tmp_path: Path) -> None:
    host = machine(tmp_path, p4711=("python3", "S", JOB))

    assert [p.pid for p in read(host).found] == [4711]
    assert run(CHECK, host.for_check(CHECK), CHECK.policy, None).outcome is Outcome.OK


def test_a_process_of_a_job_is_well_and_one_of_no_job_is_left_over(tmp_path: Path) -> None:
    with_slurm(tmp_path)
    host = machine(tmp_path, p4711=("python3", "S", JOB), p4712=("python3", "S", NOBODY))

    assert faults(host) == [("0000:1b:00.0", 4712)]


def test_where_slurm_keeps_no_cgroups_only_what_cannot_be_ended_counts(tmp_path: Path) -> None:
    host = machine(tmp_path, p1=("python3", "S", NOBODY), p2=("python3", "D", NOBODY), p3=("python3", "R", NOBODY))

    assert faults(host) == [("0000:1b:00.0", 2)]


def test_what_serves_the_gpus_is_not_left_over(tmp_path: Path) -> None:
    with_slurm(tmp_path)
    host = machine(tmp_path, p1=("nv-hostengine", "S", NOBODY), p2=("nvidia-cuda-mps", "S", NOBODY))

    assert faults(host) == []
    assert faults(host, Policy(ignore=())) == [("0000:1b:00.0", 1)]


def test_a_process_that_has_just_started_is_given_time(tmp_path: Path) -> None:
    with_slurm(tmp_path)
    host = machine(tmp_path, p1=("python3", "S", NOBODY))

    assert faults(host, Policy(min_age_s=901)) == []


def test_a_name_with_blanks_and_brackets_is_read_whole(tmp_path: Path) -> None:
    host = machine(tmp_path, p7=("a ) R (b", "D", NOBODY))

    assert [(p.comm, p.state, p.age_s) for p in read(host).found] == [("a ) R (b", "D", 900.0)]


def test_the_command_line_of_a_stuck_process_is_never_read(tmp_path: Path) -> None:
    host = machine(tmp_path, p7=("python3", "D", NOBODY))
    (tmp_path / "errors.toml").write_text('"/proc/7/cmdline" = "EIO"\n"/proc/7/environ" = "EIO"\n')

    assert len(faults(host)) == 1
    assert "cmdline" not in {p.name for p in (tmp_path / "proc/7").iterdir()}


def test_a_process_file_that_is_nonsense_makes_the_check_broken(tmp_path: Path) -> None:
    host = machine(tmp_path, p7=("python3", "S", NOBODY))
    (tmp_path / "proc/7/stat").write_text("nonsense")

    result = run(CHECK, host.for_check(CHECK), CHECK.policy, None)
    assert result.outcome is Outcome.BROKEN
    assert "/proc/7/stat" in result.why


def test_a_driver_that_lists_no_processes_is_skipped(tmp_path: Path) -> None:
    (tmp_path / "nvml.json").write_text('{"gpus": [{"index": 0, "pci": "0000:1b:00.0", "uuid": "GPU-1"}]}')

    with pytest.raises(Unavailable, match="processes"):
        read(Host(tmp_path))


def test_the_oldest_of_several_is_named_with_their_number() -> None:
    found = tuple(
        Process("0000:1b:00.0", "GPU-1", pid, "python3", "S", age_s, "") for pid, age_s in ((1, 70.0), (2, 900.0))
    )
    (finding,) = judge(Processes(found, jobs_known=True), None, Policy())

    assert (finding.evidence["pid"], finding.evidence["processes"]) == (2, 2)


class OneGpu:
    """A Host with one GPU and no process in /proc."""

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu

    def gpus(self, whole: bool = False) -> tuple[Gpu, ...]:
        return (self._gpu,)

    def boottime_s(self) -> float:
        return 1000.0

    def glob(self, pattern: str) -> list[PurePosixPath]:
        return []

    def text(self, path: str) -> str:
        raise FileNotFoundError(path)


def holding(used_gib: float, processes: tuple[int, ...] = (), **facts: int) -> Processes:
    gpu = Gpu(
        0, "0000:1b:00.0", "GPU-1", processes=processes, facts={"memory_used_bytes": int(used_gib * GIB), **facts}
    )
    return read(OneGpu(gpu))


def held(now: Processes, before: Processes | None) -> list[tuple[str, str, dict[str, object]]]:
    return [(f.component, f.fault, dict(f.evidence)) for f in judge(now, before, Policy())]


def test_memory_in_use_that_no_process_has_is_found_in_the_second_run() -> None:
    assert held(holding(60), None) == []
    assert held(holding(60), holding(60)) == [("0000:1b:00.0", "gpu_memory_held", {"used_gib": 60.0})]


@pytest.mark.parametrize(
    "now",
    [
        holding(0.6),  # what the driver reserves
        holding(60, processes=(4711,)),
        holding(60, mig_enabled=1),  # it may be an instance's
        holding(60, addressing_mode=2),  # a NUMA node: the kernel's own pages
    ],
)
def test_memory_that_somebody_may_have_is_not(now: Processes) -> None:
    assert held(now, holding(60)) == []


def test_memory_that_was_given_back_in_between_is_not() -> None:
    assert held(holding(60), holding(0.6)) == []
