"""The GPU checks in their worker, on the stand-in for NVIDIA's library: hung calls, and GPUs that are left alone."""

import asyncio
import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from nvml_library import FakeGpus
from waiting import until

from nodetriage.agent.control_socket import ask
from nodetriage.agent.core import quarantine
from nodetriage.agent.core.result import Result
from nodetriage.agent.core.verdict import CheckVerdict, OpenFinding, Verdict
from nodetriage.agent.workers.pool import WorkerPool
from nodetriage.agent.workers.worker import Setup
from nodetriage.checks.gpu import gpu_lost, gpu_recovery
from nodetriage.checks.model import Check, Finding, Outcome, Severity
from nodetriage.checks.registry import ALL

CATALOGUE = "nodetriage.agent.installed_checks:CHECKS"
FIRST, SECOND = "0000:1a:00.0", "0000:2a:00.0"


@pytest.fixture
def gpus(fake_gpus: Callable[..., FakeGpus], monkeypatch: pytest.MonkeyPatch) -> FakeGpus:
    """Two GPUs, for every process that the test starts."""
    made = fake_gpus(2)
    for name in ("LD_LIBRARY_PATH", "FAKE_NVML_DIR"):
        monkeypatch.setenv(name, made.environment[name])
    return made


def with_workers(body: Callable[[WorkerPool], Awaitable[None]]) -> None:
    async def main() -> None:
        workers = WorkerPool(Setup(root="/", policies={}), CATALOGUE, lambda _: None)
        try:
            await body(workers)
        finally:
            await workers.close()

    asyncio.run(main())


def test_a_hung_nvml_call_is_hung_and_named_with_its_gpu(gpus: FakeGpus) -> None:
    gpus.set("gpu1/RemappedRows", "~forever")

    async def body(workers: WorkerPool) -> None:
        result = await workers.run(dataclasses.replace(gpu_lost.CHECK, timeout_s=3.0))
        (finding,) = result.findings
        assert result.outcome is Outcome.HUNG
        assert result.why.endswith(f"while at: nvmlDeviceGetRemappedRows {SECOND}")
        assert (finding.component, finding.fault) == (SECOND, "check_hung")

    with_workers(body)


def test_a_start_of_nvml_that_hangs_is_named_too(gpus: FakeGpus) -> None:
    gpus.set("Init", "~forever")

    async def body(workers: WorkerPool) -> None:
        result = await workers.run(dataclasses.replace(gpu_lost.CHECK, timeout_s=3.0))
        assert (result.outcome, result.findings[0].evidence["doing"]) == (Outcome.HUNG, "nvmlInit")

    with_workers(body)


def test_a_driver_that_hangs_for_every_check_is_one_fault_of_the_driver_and_over_when_it_answers(
    gpus: FakeGpus,
) -> None:
    gpus.set("Init", "~forever")

    async def look(workers: WorkerPool, check: Check[Any, Any]) -> Result:
        """The next run that a worker began: after each hang the pool waits before it starts another one."""
        result = Result(check.name, Outcome.BROKEN, ran=False)
        while not result.ran:
            result = await workers.run(dataclasses.replace(check, timeout_s=1.0))
        return result

    async def body(workers: WorkerPool) -> None:
        hung = [await look(workers, check) for check in (gpu_lost.CHECK, gpu_recovery.CHECK, gpu_lost.CHECK)]
        assert [r.findings[0].fault for r in hung] == ["check_hung", "check_hung", "gpu_driver_hung"]
        assert hung[-1].findings[0].component == "nvidia-driver"

        gpus.set("Init", "")
        while (answered := await look(workers, gpu_lost.CHECK)).outcome is Outcome.HUNG:
            pass  # on a loaded machine the start of the worker takes more than the time of a run
        assert answered.outcome is not Outcome.HUNG
        gpus.set("gpu1/all", "~forever")
        while (result := await look(workers, gpu_lost.CHECK)).outcome is not Outcome.HUNG:
            pass  # one look is shared for nvml.FRESH_S
        assert result.findings[0].fault == "check_hung"

    with_workers(body)


def test_a_gpu_in_quarantine_is_not_called_and_never_ok(gpus: FakeGpus) -> None:
    async def body(workers: WorkerPool) -> None:
        assert (await workers.run(gpu_recovery.CHECK)).outcome is Outcome.OK
        gpus.set("gpu1/all", "~forever")
        workers.quarantine((SECOND,))

        quiet = await workers.run(gpu_recovery.CHECK)
        gpus.set("gpu0/FieldValue.230", "1")
        sick = quiet
        while not sick.findings:  # one look is shared for nvml.FRESH_S; the test's own limit ends this
            sick = await workers.run(gpu_recovery.CHECK)

        assert (quiet.outcome, quiet.excluded) == (Outcome.SKIPPED, (SECOND,))
        assert SECOND in quiet.why
        assert (sick.outcome, [f.component for f in sick.findings]) == (Outcome.FINDINGS, [FIRST])
        assert SECOND in sick.why

        gpus.set("gpu1/all", "")
        workers.quarantine(())
        healed = await workers.run(gpu_recovery.CHECK)
        assert (healed.excluded, healed.why) == ((), "")

    with_workers(body)


def test_a_quarantine_outlives_new_settings(gpus: FakeGpus) -> None:
    async def body(workers: WorkerPool) -> None:
        workers.quarantine((SECOND,))
        workers.configure(Setup(root="/", policies={}))
        await workers.run(gpu_recovery.CHECK)
        assert (await workers.run(gpu_recovery.CHECK)).excluded == (SECOND,)

    with_workers(body)


@pytest.mark.parametrize(
    ("component", "fault", "kept_apart"),
    [
        (SECOND, "gpu_off_bus", (SECOND,)),
        (SECOND, "gpu_gsp_timeout", (SECOND,)),
        (SECOND, "gpu_ecc_contained", ()),
        ("unknown-gpu", "gpu_gsp_timeout", ()),
    ],
)
def test_a_gpu_is_kept_apart_for_as_long_as_its_fault_is_held(component: str, fault: str, kept_apart: tuple) -> None:
    held = OpenFinding(component, fault, Severity.CRITICAL, {}, 0.0, 0.0, 0.0)

    assert quarantine.of(Verdict("b", {"gpu_xid": CheckVerdict(Outcome.FINDINGS, open=(held,))})) == kept_apart
    assert quarantine.of(Verdict("b", {"other": CheckVerdict(Outcome.FINDINGS, open=(held,))})) == ()
    assert quarantine.of(Verdict("b")) == ()
    assert quarantine.addresses([Finding(component, fault, Severity.CRITICAL)]) == kept_apart


CHECKS = ("gpu_xid", "gpu_lost", "gpu_recovery")


@pytest.fixture
def folder(gpus: FakeGpus, tmp_path: Path) -> Path:
    """Settings for an agent with three checks, on the stand-in library and a kernel log of the test's own."""
    off = "".join(f"[checks.{c.name}]\nenabled = false\n" for c in ALL if c.name not in CHECKS)
    (tmp_path / "kmsg").touch()
    (tmp_path / "agent.toml").write_text(
        f'[agent]\nnode = "n1"\nstate_dir = "{tmp_path}/state"\nrun_dir = "{tmp_path}/run"\n'
        f'[kernel_log]\npath = "{tmp_path}/kmsg"\n[checks.gpu_xid]\nany_device = true\n{off}'
    )
    return tmp_path


@pytest.fixture
def agent(folder: Path) -> Iterator[Path]:
    """The real agent; gives its folder."""
    process = subprocess.Popen(
        [sys.executable, "-m", "nodetriage.agent.cli.main", "agent", "--config", folder / "agent.toml"],
        env=dict(os.environ),
        stderr=subprocess.DEVNULL,
    )
    try:
        yield folder
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def said(folder: Path, check: str, verb: str = "status") -> dict[str, Any]:
    with contextlib.suppress(OSError, ValueError):
        known: dict[str, Any] = ask(folder / "run/agent.sock", {"ask": verb, "checks": [check]}, 60)["checks"][check]
        return known
    return {}


def now_us() -> int:
    """What the kernel would stamp on a line now: an old one is history at the first look."""
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * 1e6)


def test_after_a_gsp_timeout_in_the_kernel_log_the_gpu_is_left_alone_until_the_driver_needs_nothing(
    agent: Path, gpus: FakeGpus
) -> None:
    until(lambda: said(agent, "gpu_recovery").get("outcome") == "ok")
    line = "4,{},{},-;NVRM: Xid (PCI:0000:2a:00): {}\n"
    gpus.set("gpu1/all", "~forever")  # every call about this GPU would hang from here on
    with (agent / "kmsg").open("a") as kmsg:
        kmsg.write(
            line.format(7, now_us(), "119, pid=1, name=a, Timeout after 6s of waiting for RPC response from GPU1 GSP!")
        )
    until(lambda: said(agent, "gpu_xid").get("findings"))

    left = said(agent, "gpu_recovery", "run")
    assert left["outcome"] == "skipped"
    assert SECOND in left["why"]
    assert said(agent, "gpu_lost", "run")["outcome"] == "skipped"

    gpus.set("gpu1/all", "")
    with (agent / "kmsg").open("a") as kmsg:
        kmsg.write(
            line.format(8, now_us(), "154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)")
        )
    until(lambda: said(agent, "gpu_xid").get("findings") == [])
    until(lambda: said(agent, "gpu_recovery", "run").get("outcome") == "ok")


@pytest.mark.parametrize("asked", [(), ("gpu_recovery",)])
def test_the_command_leaves_a_gpu_alone_that_the_kernel_log_says_is_lost(
    folder: Path, gpus: FakeGpus, asked: tuple[str, ...]
) -> None:
    gpus.set("gpu1/RemappedRows", "~forever")
    line = f"4,7,{now_us()},-;NVRM: Xid (PCI:0000:2a:00): 79, pid=1, name=a, GPU has fallen off the bus.\n"
    (folder / "kmsg").write_text(line)

    command = [
        sys.executable,
        "-m",
        "nodetriage.agent.cli.main",
        "check",
        *asked,
        "--config",
        folder / "agent.toml",
        "--json",
    ]
    ran = subprocess.run(command, env=dict(os.environ), capture_output=True, text=True, timeout=60)

    said = {check["check"]: check for check in json.loads(ran.stdout)["checks"]}
    assert said["gpu_recovery"]["outcome"] == "skipped"
    assert SECOND in said["gpu_recovery"]["why"]
    assert set(said) == set(asked or CHECKS)
