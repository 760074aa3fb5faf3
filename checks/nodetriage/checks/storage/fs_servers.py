"""File servers that this node's clients lost, or that evicted them: NFS, Lustre, Ceph, BeeGFS, WekaFS.

Source: the kernel log, by the table rules/kernel/network_fs.py. The part is the server or target as the line names it;
evidence `source` is what many nodes share, so that one dead server is one incident. A line that says that the server is
back ends the fault.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from nodetriage.checks.model import Check, Finding, Host
from nodetriage.checks.readers.mounts import read_mounts
from nodetriage.checks.rules.kernel import network_fs
from nodetriage.checks.rules.kernel_log import (
    UNKNOWN_DEVICE,
    Event,
    KernelLogPolicy,
    Line,
    Log,
    event_of,
    folded,
    judged,
    lines_of,
    remembered,
)

RULES = network_fs.RULES
_ENDED = ("fs_server_lost", "fs_client_evicted")
_TYPES = {"nfs4": "nfs", "lustre_tgt": "lustre"}  # of mounts, by the client that they belong to


@dataclass(frozen=True, slots=True)
class Said:
    """What the clients said: lines that report a fault, and the servers that are back since the last look."""

    log: Log
    back: tuple[str, ...] = ()


def read(host: Host) -> Said:
    events, back = _sorted_out(lines_of(host.kernel_log(), RULES))
    return Said(Log(tuple(folded(events)), _clients(host), host.boottime_s() if events else 0.0), back)


def _sorted_out(lines: Sequence[Line]) -> tuple[list[Event], tuple[str, ...]]:
    """What is still so after the last line, and the servers that came back at some time."""
    events: list[Event] = []
    back: dict[str, None] = {}
    for line in lines:
        if RULES[line.rule].fault:
            kind = line.rule.partition(".")[0]
            known = {"source": line.component.partition(" ")[2], **line.groups}
            events.append(replace(event_of(line, fstype=kind), facts={**known, "fstype": kind}))
        else:
            back[line.component] = None
            events = [e for e in events if e.component != line.component or RULES[e.rule].fault not in _ENDED]
    return events, tuple(back)


def _clients(host: Host) -> tuple[str, ...] | None:
    """The kinds of file systems that are mounted, and "nfs SERVER" for each NFS server; None without a mount table."""
    try:
        mounts = read_mounts(host)
    except OSError:
        return None
    kinds = {_TYPES.get(m.fstype, m.fstype): None for m in mounts}
    servers = (m.source.rpartition(":/")[0].strip("[]") for m in mounts if m.fstype in ("nfs", "nfs4"))
    return tuple(dict.fromkeys((*kinds, *(f"nfs {server}" for server in servers))))


def judge(now: Said, before: Said | None, policy: KernelLogPolicy) -> Iterator[Finding]:
    yield from judged(now.log, before.log if before else None, RULES, policy, _is_here)


def _is_here(component: str, clients: Sequence[str]) -> bool:
    """An NFS server has to be the source of a mount; of the others, a file system of the kind has to be mounted."""
    kind = component.partition(" ")[0]
    return component in clients if kind == "nfs" else kind in clients


def clears(now: Said, before: Said | None) -> Iterable[tuple[str, str]]:
    """What the servers end that answer again."""
    return ((server, fault) for server in now.back for fault in _ENDED)


def next_state(before: Said | None, now: Said) -> Said:
    return Said(remembered(before.log if before else None, now.log))


CHECK = Check(
    name="fs_servers",
    read=read,
    judge=judge,
    policy=KernelLogPolicy(),
    faults=(*RULES.faults, UNKNOWN_DEVICE),
    next_state=next_state,
    clears=clears,
    kernel_pattern=RULES,
)
