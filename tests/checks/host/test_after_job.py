"""What a job leaves behind on a node."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodetriage.agent.machine.host import Host
from nodetriage.checks.host.after_job import CHECK, Left, Policy, judge, next_state, read
from nodetriage.checks.model import Process, Unavailable
from nodetriage.checks.model.faults import faults
from nodetriage.checks.rules.job_memory import GIB, Memory
from nodetriage.checks.rules.slurm_groups import job_of

OF_JOB = "/system.slice/slurmstepd.scope/job_17/step_0/user/task_0"
MEMORY = Memory(used=40 * GIB, huge=0, shm=0)
PYTHON = Process(4711, 1, 1000, "python3", "S", 100.0, 5000.0, 3 * GIB, OF_JOB, ("/dev/nvidia0",))


def left(*processes: Process, jobs: tuple[str, ...] = (), known: bool = True, memory: Memory = MEMORY) -> Left:
    return Left(1000.0, jobs, known, memory, processes)


def found(now: Left, before: Left | None = None) -> list[tuple[str, str]]:
    return [(f.component, f.fault) for f in judge(now, before, Policy())]


def test_a_process_of_a_job_that_is_over_is_found_with_what_it_holds() -> None:
    (finding,) = judge(left(PYTHON), None, Policy())

    assert (finding.component, finding.fault) == ("processes", "job_processes_left")
    assert finding.evidence == {
        "processes": 1, "pid": 4711, "uid": 1000, "process": "python3", "state": "S", "age_s": 900, "cpu_s": 5000,
        "memory_gib": 3.0, "job_id": "17", "devices": "/dev/nvidia0",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("process", "jobs", "known"),
    [
        (PYTHON, ("17",), True),  # its job runs
        (replace(PYTHON, group="/user.slice/user-1000.slice/session-3.scope"), (), True),  # a login
        (replace(PYTHON, group="/system.slice/jupyterhub.service"), (), True),  # a service
        (replace(PYTHON, started_s=990.0), (), True),  # it may still be ending
        (PYTHON, (), False),  # Slurm keeps no control groups: nobody knows
    ],
)
def test_a_process_that_may_be_there_is_none_of_a_job_that_is_over(
    process: Process, jobs: tuple[str, ...], known: bool
) -> None:
    assert found(left(process, jobs=jobs, known=known)) == []


def test_a_process_in_slurmds_own_group_has_escaped_its_job() -> None:
    assert found(left(replace(PYTHON, group="/system.slice/slurmd.service"))) == [("processes", "job_processes_left")]


def test_a_process_that_sleeps_uninterruptibly_for_minutes_is_found_whatever_job_runs() -> None:
    stuck = replace(PYTHON, state="D")
    first = left(stuck, jobs=("17",))
    assert found(first) == []
    memory = next_state(None, first)

    assert found(replace(first, at_s=1200.0), memory) == []
    assert found(replace(first, at_s=1301.0), memory) == [("processes", "process_uninterruptible")]


def test_a_process_that_woke_in_between_or_has_anothers_number_is_not_stuck() -> None:
    stuck = left(replace(PYTHON, state="D"), jobs=("17",))
    awake = next_state(next_state(None, stuck), left(PYTHON, jobs=("17",)))
    assert found(replace(stuck, at_s=2000.0), awake) == []

    other = left(replace(PYTHON, state="D", started_s=1900.0), jobs=("17",))
    assert found(replace(other, at_s=2000.0), next_state(None, stuck)) == []


def test_memory_that_stays_in_use_after_a_job_is_found_beside_the_least_of_this_boot() -> None:
    idle = next_state(None, left())
    after = left(memory=Memory(used=90 * GIB, huge=2 * GIB, shm=5 * GIB))

    assert found(after, idle) == [
        ("shm", "job_memory_left"), ("huge_pages", "job_memory_left"), ("memory", "job_memory_left")
    ]  # fmt: skip


def test_while_a_job_runs_its_memory_is_its_own_and_does_not_count_as_the_least() -> None:
    busy = left(jobs=("17",), memory=Memory(used=1500 * GIB, huge=9 * GIB, shm=50 * GIB))
    assert found(busy, next_state(None, left())) == []

    memory = next_state(next_state(None, busy), left(memory=Memory(used=50 * GIB, huge=0, shm=0)))
    assert memory.memory.least_used == 50 * GIB


def test_a_little_more_than_before_and_a_node_first_seen_full_are_no_fault() -> None:
    assert found(left(memory=Memory(60 * GIB, GIB // 2, GIB // 2)), next_state(None, left())) == []
    assert found(left(memory=Memory(900 * GIB, 64 * GIB, None))) == []


@given(st.text(max_size=200))
def test_only_slurms_own_group_names_a_job(path: str) -> None:
    job = job_of(path)
    assert job == "" or f"/job_{job}" in path


def tree(root: Path, stepd: str) -> Host:
    scope = root / "sys/fs/cgroup/system.slice/slurmstepd.scope/job_17/step_0/slurm"
    scope.mkdir(parents=True)
    (scope / "cgroup.procs").write_text(stepd)
    (root / "proc").mkdir()
    (root / "proc/meminfo").write_text("MemTotal: 1000 kB\nMemAvailable: 400 kB\nHugePages_Total: 8\n"
                                       "HugePages_Free: 2\nHugepagesize: 2048 kB\n")  # fmt: skip
    (root / "processes.json").write_text(json.dumps([asdict(PYTHON)]))
    return Host(root)


@pytest.mark.parametrize(("stepd", "jobs"), [("812\n", ("17",)), ("", ())])
def test_a_job_runs_as_long_as_its_step_daemon(tmp_path: Path, stepd: str, jobs: tuple[str, ...]) -> None:
    now = read(tree(tmp_path, stepd))

    assert (now.jobs, now.jobs_known, now.processes) == (jobs, True, (PYTHON,))
    assert now.memory == Memory(used=600 * 1024, huge=6 * 2048 * 1024, shm=None)
    assert found(replace(now, at_s=9000.0)) == ([] if jobs else [("processes", "job_processes_left")])


def test_a_recording_without_processes_is_skipped_and_a_table_without_its_lines_is_broken(tmp_path: Path) -> None:
    host = tree(tmp_path, "")
    (tmp_path / "proc/meminfo").write_text("MemTotal: 1000 kB\n")
    with pytest.raises(ValueError, match="MemAvailable is missing"):
        read(host)
    (tmp_path / "processes.json").unlink()
    with pytest.raises(Unavailable, match=r"processes\.json"):
        read(Host(tmp_path))


def test_its_faults_are_in_shadow() -> None:
    assert [faults()[code].trusted for code in CHECK.faults] == [False, False, False]
