"""What the BMC of a GPU board knows and the host may not: leaks, rows not remapped, NVLink ports down, GPUs gone.

Asks the BMC's Redfish service where the site names it ([redfish]); it answers also while the host's driver hangs.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from nodetriage.checks.model import Check, Finding, Host, Scalar, Severity, Unavailable
from nodetriage.checks.readers.redfish.parts import Board, read_board


@dataclass(frozen=True, slots=True)
class Policy:
    """Severities."""

    leak: Severity = Severity.CRITICAL  # liquid where none should be
    gpu_absent: Severity = Severity.CRITICAL  # a GPU that was there earlier in this boot
    remap_failed: Severity = Severity.MAJOR  # the GPU has to be replaced
    port_down: Severity = Severity.MAJOR  # an NVLink port that was up earlier in this boot


def read(host: Host) -> Board:
    """Raises Unavailable without [redfish], OSError and ValueError where the service refuses or does not answer."""
    board = read_board(host)
    if not any(rollup.health for rollup in board.rollups):
        raise Unavailable("the Redfish service says nothing about the health of a system or a chassis")
    return board


def next_state(before: Board | None, now: Board) -> Board:
    """With the ports and GPUs of all runs in this boot."""
    if before is None:
        return now
    ports = tuple(dict.fromkeys((*before.ports_up, *now.ports_up)))
    return replace(now, ports_up=ports, gpus=tuple(dict.fromkeys((*before.gpus, *now.gpus))))


def judge(now: Board, before: Board | None, policy: Policy) -> Iterator[Finding]:
    found = [*_leaks(now, policy), *_gpus(now, before, policy)]
    yield from found
    for rollup in now.rollups:
        if rollup.health in ("Warning", "Critical"):
            evidence: dict[str, Scalar] = {"health": rollup.health, "parts_found": len(found)}
            severity = Severity.WARNING if not found else Severity.INFO
            yield Finding(rollup.name, "bmc_health", severity, evidence)


def _leaks(now: Board, policy: Policy) -> Iterator[Finding]:
    for leak in now.leaks:
        if leak.state in ("Warning", "Critical"):
            severity = policy.leak if leak.state == "Critical" else Severity.WARNING
            yield Finding(leak.name, "bmc_leak", severity, {"state": leak.state})


def _gpus(now: Board, before: Board | None, policy: Policy) -> Iterator[Finding]:
    for part in now.remap_failed:
        yield Finding(part, "bmc_gpu_remap", policy.remap_failed, {"failed": True})
    for part in now.remap_pending:
        if part not in now.remap_failed:
            yield Finding(part, "bmc_gpu_remap", Severity.WARNING, {"pending": True})
    if before is None:  # a port that nobody connected and an empty place are no faults
        return
    for port in now.ports_down:
        if port in before.ports_up:
            yield Finding(port, "bmc_nvlink_down", policy.port_down, {})
    for gpu in before.gpus:
        if gpu in now.gpus_absent:
            yield Finding(gpu, "bmc_gpu_absent", policy.gpu_absent, {})


CHECK = Check(
    name="bmc_redfish",
    read=read,
    judge=judge,
    policy=Policy(),
    faults=("bmc_leak", "bmc_gpu_remap", "bmc_nvlink_down", "bmc_gpu_absent", "bmc_health"),
    worker="bmc",
    timeout_s=200,
    next_state=next_state,
    raise_after=2,
)
