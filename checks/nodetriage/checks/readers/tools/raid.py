"""Volumes and drives of RAID controllers: `storcli /call show J`, its twin perccli, or `ssacli ctrl all show config`.

storcli gives JSON with VD LIST (State: Optl, Pdgd, Dgrd, Rec, OfLn) and PD LIST (Onln, UGood, UBad, Offln, Msng, ...);
nolog keeps it from writing a file. Controllers of the 9600 series and PERC 12 answer only storcli2 and perccli2, whose
PD LIST has a Status (Online, Offline, Good, Bad, Missing, ...) beside the State.

ssacli gives lines such as "logicaldrive 1 (1.8 TB, RAID 1, OK)".
"""

import re
from dataclasses import dataclass

from nodetriage.checks.model import Host, Unavailable
from nodetriage.checks.readers.tools.answer import json_object, rows, table, word

TIMEOUT_S = 20.0
_STORCLI = (
    "storcli64", "storcli", "perccli64", "perccli",
    "/opt/MegaRAID/storcli/storcli64", "/opt/MegaRAID/perccli/perccli64",
    "storcli2", "perccli2", "/opt/MegaRAID/storcli2/storcli2", "/opt/MegaRAID/perccli2/perccli2",
)  # fmt: skip
_WELL = {"optl": "optimal", "ok": "optimal"}
_DEGRADED = ("pdgd", "dgrd", "rec", "interim recovery mode", "ready for rebuild", "recovering", "rebuilding")
_FAILED = ("ofln", "failed", "failed to start", "dead")
_BAD_DRIVES = (
    "ubad", "offln", "msng", "failed", "ubunsp", "predictive failure", "predict fail", "bad", "offline", "missing",
)  # fmt: skip
_CONTROLLER = re.compile(r"\S.{0,80} in Slot (\w{1,20})", re.MULTILINE)
_LINE = re.compile(r"\s{1,12}(logicaldrive|physicaldrive) (\S{1,20}) \((.{1,200})\)\s{0,20}(?:$|,)")
_VOLUMES = 512  # and drives, that are read


@dataclass(frozen=True, slots=True)
class Volume:
    """`state` is optimal, degraded or failed, else the tool's own word."""

    name: str  # raid0/v0: controller and volume
    group: str  # of drives; "" where the tool does not say
    level: str
    state: str


@dataclass(frozen=True, slots=True)
class Drive:
    """One drive behind a controller."""

    name: str  # raid0/252:1: controller, enclosure and slot
    group: str
    state: str
    bad: bool


@dataclass(frozen=True, slots=True)
class Raid:
    """All RAID controllers that one tool knows."""

    volumes: tuple[Volume, ...] = ()
    drives: tuple[Drive, ...] = ()


def read_raid(host: Host) -> Raid:
    """What the first tool says that knows a volume or a drive.

    Raises Unavailable where no tool is installed, TimeoutError, ValueError for another answer.
    """
    empty = None
    for program in _STORCLI:
        try:
            found = storcli(host.run((program, "/call", "show", "J", "nolog"), TIMEOUT_S).stdout)
        except Unavailable:
            continue
        if found.volumes or found.drives:
            return found
        empty = found
    try:
        return ssacli(host.run(("ssacli", "ctrl", "all", "show", "config"), TIMEOUT_S).stdout)
    except Unavailable:
        if empty is not None:
            return empty
        raise Unavailable("neither storcli, perccli nor ssacli is installed") from None


def storcli(text: str) -> Raid:
    """Raises ValueError where the answer names no controller."""
    controllers = rows(json_object(text, "storcli"), "Controllers")
    if not controllers:
        raise ValueError(f"storcli: expected a list of controllers, got {text[:80]!r}")
    volumes, drives = [], []
    for controller in controllers:
        number = word(table(controller, "Command Status"), "Controller") or "?"
        data = table(controller, "Response Data")
        for row in rows(data, "VD LIST")[:_VOLUMES]:
            group, _, volume = word(row, "DG/VD").partition("/")
            volumes.append(Volume(f"raid{number}/v{volume}", group, word(row, "TYPE"), _state(word(row, "State"))))
        for row in rows(data, "PD LIST")[:_VOLUMES]:
            name, group = f"raid{number}/{word(row, 'EID:Slt')}", word(row, "DG")
            state = word(row, "Status") or word(row, "State")
            drives.append(_drive(name, group if group.isdecimal() else "", state))
    return Raid(tuple(volumes), tuple(drives))


def ssacli(text: str) -> Raid:
    """Raises ValueError where the answer names no controller."""
    volumes, drives, slot = [], [], ""
    for line in text.splitlines()[: 4 * _VOLUMES]:
        if found := _CONTROLLER.match(line):
            slot = found[1]
        elif found := _LINE.match(line):
            facts = [fact.strip() for fact in found[3].split(",")]
            if found[1] == "logicaldrive":
                level = next((fact for fact in facts if fact.startswith("RAID")), "")
                state = next((f for f in reversed(facts) if not f.endswith("complete") and "%" not in f), "")
                volumes.append(Volume(f"raid{slot}/v{found[2]}", "", level, _state(state)))
            else:
                state = next((f for f in reversed(facts) if not f.endswith("spare") and "spare for" not in f), "")
                drives.append(_drive(f"raid{slot}/{found[2]}", "", state))
    if not slot:
        raise ValueError(f"ssacli: expected a controller, got {text[:80]!r}")
    return Raid(tuple(volumes), tuple(drives))


def _state(told_by: str) -> str:
    known = told_by.lower()
    if known in _FAILED:
        return "failed"
    return "degraded" if known.startswith(_DEGRADED) else _WELL.get(known, told_by)


def _drive(name: str, group: str, state: str) -> Drive:
    return Drive(name, group, state, state.lower() in _BAD_DRIVES)
