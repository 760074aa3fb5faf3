"""What Slurm's commands print, as values. Pure. The drain reason is the only text of a user in these formats.

sinfo(1) and squeue(1), `--Format`: "type[:[.][size][suffix]]". A suffix without a size prints the field whole. The
suffixes are the ASCII separators, so a reason with bars or line breaks in it stays one field (22.05 and 24.11 alike).
"""

import re
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from nodetriage.controller.scheduler import JobView, NodeView, ReservationView
from nodetriage.controller.slurm.node_list import expand

_FIELD = "\x1f"
_RECORD = "\x1e"
SCRIPT_LIMIT = 65536  # characters of a batch script that are read for options
_NUMBERS = {int(s) for s in signal.Signals}


class Garbled(Exception):
    """The output does not have the form of this command; the text shows where."""


def _format(*types: str) -> str:
    return ",".join(f"{t}:{_FIELD}" for t in types[:-1]) + f",{types[-1]}:{_RECORD}"


NODE_FORMAT = _format("NodeList", "StateComplete", "PartitionName", "User", "Reason")
HOST_FORMAT = _format("NodeList", "NodeAddr", "NodeHost")
JOB_FORMAT = _format(
    "JobID",
    "ArrayJobID",
    "ArrayTaskID",
    "HetJobID",
    "State",
    "BatchFlag",
    "Requeue",
    "RestartCnt",
    "UserName",
    "Partition",
    "QOS",
    "SubmitTime",
    "EligibleTime",
    "StartTime",
    "NumNodes",
    "tres-alloc",
    "tres-per-node",
    "NodeList",
)

COMMENT_FORMAT = _format("JobID", "admin_comment")

# What a job may be sent early. KILL and STOP ask for nothing that a job could do.
_SIGNALS = ("HUP", "INT", "QUIT", "USR1", "USR2", "TERM", "CONT", "URG", "XCPU")
_SIGNAL = re.compile(
    r"#SBATCH\s+(?:.*\s)?--signal[= ]\s*[\"']?(?P<flags>[RB]{0,2}):?(?:SIG)?(?P<name>[A-Z0-9]+)(?:@\d+)?[\"']?(?:\s|$)"
)


@dataclass(frozen=True, slots=True)
class JobSignal:
    """What `sbatch --signal` asks for: a name as "USR1"; `batch_only` for the batch shell and not the steps."""

    name: str
    batch_only: bool


def parse_signal(script: str) -> JobSignal | None:
    """From the `#SBATCH --signal=[{R|B}:]SIGNAL[@SECONDS]` of a batch script, the last of several; None without one.

    As sbatch(1): options end at the first line that is neither a comment nor empty.
    """
    found = None
    for line in script[:SCRIPT_LIMIT].splitlines():
        if line.strip() and not line.startswith("#"):
            break
        if match := _SIGNAL.match(line):
            found = match
    if found is None:
        return None
    name = found["name"]
    if name.isdecimal():
        name = signal.Signals(int(name)).name.removeprefix("SIG") if int(name) in _NUMBERS else ""
    return JobSignal(name, "B" in found["flags"]) if name in _SIGNALS else None


def parse_comments(text: str) -> tuple[str, ...]:
    """`squeue -h -O COMMENT_FORMAT`: the AdminComment of each record that has one. Raises Garbled."""
    return tuple(comment for _, comment in _records(text, 2) if _known(comment))


def parse_nodes(text: str) -> dict[str, NodeView]:
    """`sinfo -h -a -N -O NODE_FORMAT`: a record for each node and partition. Raises Garbled."""
    found: dict[str, NodeView] = {}
    for name, state, partition, user, reason in _records(text, 5):
        # This field alone writes MAINT as "maintenance".
        base, *flags = state.lower().replace("maintenance", "maint").split("+")
        # "*" marks the default partition; a node without a reason has "none".
        partitions = (partition.removesuffix("*"),) if partition else ()
        before = found.get(name)
        found[name] = NodeView(
            name=name,
            base=base.rstrip("*~#!%$@^-"),
            flags=frozenset(flags) | ({"not_responding"} if base.endswith("*") else frozenset()),
            reason="" if reason == "none" else reason,
            reason_by="" if reason == "none" else user,
            partitions=(before.partitions if before else ()) + partitions,
        )
    return found


def parse_hosts(text: str) -> dict[str, tuple[str, ...]]:
    """`sinfo -h -a -N -O HOST_FORMAT`: NodeAddr and NodeHostName of each node. Raises Garbled."""
    return {name: tuple(dict.fromkeys((address, host))) for name, address, host in _records(text, 3)}


def parse_jobs(text: str) -> tuple[JobView, ...]:
    """`squeue -h -a -r -O JOB_FORMAT`: a record for each job, each array task, each part of a het job. Raises Garbled.

    The parts of a het job come back as one, under their leader's id: it is requeued whole.
    """
    found: dict[str, JobView] = {}
    for row in _records(text, 18):
        job = _job_name(row[0], row[1], row[2], row[3])
        if job in found and row[0] != job:
            continue
        found[job] = JobView(
            job=job,
            state=row[4],
            batch=_number(row[5]) == 1,
            requeueable=_number(row[6]) == 1,
            restarts=_number(row[7]),
            user=row[8],
            partition=row[9],
            qos=_known(row[10]),
            submitted_at=_time(row[11]),
            eligible_at=_time(row[12]),
            started_at=_time(row[13]),
            node_count=_number(row[14]),
            gpus=_gpus(row[15], row[16], _number(row[14])),
            nodes=row[17],
        )
    return tuple(found.values())


def parse_reservations(text: str) -> tuple[ReservationView, ...]:
    """`scontrol show reservation -o`: those that run now and hold nodes. Raises Garbled."""
    found = []
    for line in text.splitlines():
        if not line.strip() or line.startswith("No reservations"):
            continue
        if not line.startswith("ReservationName="):
            raise Garbled(f"expected ReservationName=, got {line[:80]!r}")
        pairs = _pairs(line)
        if not pairs.keys() >= {"Nodes", "Flags", "State"}:
            raise Garbled(f"expected Nodes=, Flags= and State=, got {line[:80]!r}")
        if pairs["State"] == "ACTIVE" and (nodes := _expanded(pairs["Nodes"])):
            found.append(ReservationView(pairs["ReservationName"], nodes, "MAINT" in pairs["Flags"].split(",")))
    return tuple(found)


def parse_topology(text: str) -> dict[str, tuple[str, ...]]:
    """`scontrol show topology`, of trees and of blocks: node -> "switch leaf3". Raises Garbled.

    What all nodes share tells none from another, and is left out.
    """
    groups: dict[str, tuple[str, ...]] = {}
    for line in text.splitlines():
        words = line.split()
        if not words:
            continue
        kind, _, name = words[0].partition("=")
        if kind not in ("SwitchName", "BlockName"):
            raise Garbled(f"expected SwitchName= or BlockName=, got {line[:80]!r}")
        groups[f"{kind.removesuffix('Name').lower()} {name}"] = _expanded(_pairs(line).get("Nodes", ""))
    everyone = {node for nodes in groups.values() for node in nodes}
    shared: dict[str, tuple[str, ...]] = {}
    for group, nodes in groups.items():
        if len(nodes) < len(everyone):
            shared |= {node: (*shared.get(node, ()), group) for node in nodes}
    return shared


def _pairs(line: str) -> dict[str, str]:
    """Words of the form Key=value; of a key that comes again, in someone's comment, the first counts."""
    found: dict[str, str] = {}
    for word in line.split():
        key, equals, value = word.partition("=")
        if equals:
            found.setdefault(key, value)
    return found


def _expanded(nodes: str) -> tuple[str, ...]:
    found = expand(nodes)
    if found is None:
        raise Garbled(f"expected a node list, got {nodes[:80]!r}")
    return found


def _records(text: str, width: int) -> Iterator[list[str]]:
    *records, rest = text.split(_RECORD + "\n")
    if rest.strip():
        raise Garbled(f"expected records of {width} fields, got {rest[:80]!r}")
    for record in records:
        fields = record.split(_FIELD)
        if len(fields) != width or not fields[0]:
            raise Garbled(f"expected {width} fields, got {record[:80]!r}")
        yield fields


def _job_name(job: str, array: str, task: str, het: str) -> str:
    if het.isdecimal() and het != "0":
        return het
    return f"{array}_{task}" if task.isdecimal() else job


def _number(word: str) -> int:
    if not word.isdecimal() or not word.isascii():
        raise Garbled(f"expected a number, got {word[:80]!r}")
    return int(word)


def _known(word: str) -> str:
    return "" if word in ("(null)", "N/A", "n/a") else word


def _time(word: str) -> datetime | None:
    """Local time of the command, which runs in UTC. N/A, NONE and Unknown are no time."""
    try:
        return datetime.strptime(word, "%Y-%m-%dT%H:%M:%S").replace(tzinfo=UTC)
    except ValueError:
        return None


def _gpus(allocated: str, per_node: str, nodes: int) -> int:
    """From "gres/gpu=16" of the allocation where the site tracks it, else from "gres:gpu:h100:2" for each node."""
    if match := re.search(r"(?:^|,)gres/gpu=(\d+)", allocated):
        return int(match[1])
    match = re.search(r"(?:^|,)gres[:/]gpu(?::[^,:=]+)?[:=](\d+)", per_node)
    return int(match[1]) * nodes if match else 0
