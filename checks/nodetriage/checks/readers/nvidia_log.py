"""Lines of the NVIDIA driver in the kernel log, whatever put a prefix before them, and the catalogue of their codes.

`parse` takes the text of a raw /dev/kmsg record and what dmesg, rsyslog or the journal make of it. The address, the
pid and the process are the driver's words; stamps and host names before "NVRM:" are never looked at, because their
shape depends on the tool and the locale.
"""

import functools
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any, Literal

from nodetriage.checks.model import Severity
from nodetriage.checks.model.settings import decode, load_toml

Kind = Literal["xid", "sxid", "companion"]
Sign = Literal["off_bus", "init_failed", "gsp_heartbeat", "reset_required", "uuid"]

# A driver line is a few hundred bytes; what follows in a longer one is not ours.
_LONGEST = 4096
_ADDRESS = r"(?P<pci>[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-7])?)"
_XID = re.compile(
    rf"NVRM: Xid \((?:PCI:)?{_ADDRESS}(?: GPU-I:(?P<gi>\d+))?(?:[ ,]+GPU-CI:(?P<ci>\d+))?[^)]{{0,64}}\):"
    r"\s*(?P<code>\d{1,6})\b,?\s*(?P<rest>.*)",
    re.DOTALL,
)
_SXID = re.compile(rf"nvswitch\d*: SXid \(PCI:{_ADDRESS}\):\s*(?P<code>\d{{1,6}})\b,?\s*(?P<rest>.*)", re.DOTALL)
_PROCESS = re.compile(
    r"pid='?(?:(?P<pid>\d{1,10})|<unknown>)'?(?:,\s*name=(?P<process>.{0,64}?))?(?:,\s+|,?$)(?P<rest>.*)", re.DOTALL
)
_COMPANIONS: tuple[tuple[Sign, re.Pattern[str]], ...] = (
    ("uuid", re.compile(rf"NVRM: GPU at (?:PCI:)?{_ADDRESS}: (?P<rest>GPU-[0-9a-fA-F-]{{36}})")),
    ("off_bus", re.compile(rf"NVRM: GPU (?:at )?(?:PCI:)?{_ADDRESS}: (?P<rest>GPU has fallen off the bus)")),
    # One record of three lines, printed where the driver meets a dead GPU while it loads.
    (
        "off_bus",
        re.compile(
            rf"NVRM: The NVIDIA GPU {_ADDRESS}\b(?P<rest>.{{0,300}}?fallen off the bus[^\n]{{0,100}})", re.DOTALL
        ),
    ),
    ("off_bus", re.compile(r"NVRM:\s+(?P<rest>fallen off the bus and is not responding[^\n]{0,100})")),
    ("init_failed", re.compile(rf"NVRM: GPU {_ADDRESS}: (?P<rest>RmInitAdapter failed.*)", re.DOTALL)),
    ("gsp_heartbeat", re.compile(r"NVRM: (?P<rest>GPU\d+ _kgspIsHeartbeatTimedOut: Heartbeat timed out.*)", re.DOTALL)),
    ("reset_required", re.compile(r"NVRM: (?P<rest>.{0,100}Reset required \[NV_ERR_RESET_REQUIRED\].*)", re.DOTALL)),
)

# What the kernel log has to contain for a record to be worth parsing; the agent searches each record with it.
KERNEL_PATTERN = r"NVRM: (?:Xid|GPU|The NVIDIA GPU|fallen off)|: SXid \(|NV_ERR_RESET_REQUIRED"


@dataclass(frozen=True, slots=True)
class XidLine:
    """One line of the driver. None is absent; "unknown" is the driver's own placeholder."""

    kind: Kind
    pci: str | None  # dddd:bb:dd or dddd:bb:dd.f as printed, lower case
    code: int | None = None  # None for a companion
    mig: str | None = None  # "GI=5": the MIG instance; `pci` is then its parent
    pid: int | Literal["unknown"] | None = None
    process: str | None = None
    rest: str = ""  # what follows the code, pid and process
    sign: Sign | None = None  # what a companion says

    @property
    def component(self) -> str:
        """The device as findings name it. The driver prints most GPUs without the function, which is always 0."""
        if self.pci is None:
            return "unknown-gpu"
        return self.pci if "." in self.pci else f"{self.pci}.0"


@dataclass(frozen=True, slots=True)
class Xid:
    """A code of xid.toml (see its head)."""

    mnemonic: str
    meaning: str
    class_: Literal["application", "driver", "hardware", "either"]
    severity: Severity
    fault: str
    advice: str
    source: str
    code: int = 0


@dataclass(frozen=True, slots=True)
class Sxid:
    """A code of sxid.toml (see its head)."""

    name: str
    meaning: str
    guide: Literal["always fatal", "fatal", "non-fatal", "other notable", ""]
    severity: Severity
    advice: str
    code: int = 0


def parse(text: str) -> XidLine | None:
    """The driver's line in `text`, or None where there is none. Never raises, whatever the text."""
    text = text[:_LONGEST]
    if found := _XID.search(text):
        return _xid_line(found)
    if found := _SXID.search(text):
        return XidLine("sxid", _address(found["pci"]), int(found["code"]), rest=found["rest"].strip())
    for sign, pattern in _COMPANIONS:
        if found := pattern.search(text):
            pci = found.groupdict().get("pci")
            # These print a function that Xid lines leave out: one device, one name.
            address = _address(pci).removesuffix(".0") if pci else None
            return XidLine("companion", address, rest=found["rest"].strip(), sign=sign)
    return None


def _xid_line(found: re.Match[str]) -> XidLine:
    mig = f"GI={int(found['gi'])}" if found["gi"] else None
    if mig and found["ci"]:
        mig += f",CI={int(found['ci'])}"
    pid: int | Literal["unknown"] | None = None
    process, rest = None, found["rest"]
    if owner := _PROCESS.match(rest):
        pid = int(owner["pid"]) if owner["pid"] else "unknown"
        process, rest = owner["process"], owner["rest"]
        process = "unknown" if process == "<unknown>" else process
    return XidLine("xid", _address(found["pci"]), int(found["code"]), mig, pid, process, rest.strip())


def _address(pci: str) -> str:
    """Lower case, and the domain in four digits where it fits: NVML prints eight."""
    domain, _, rest = pci.lower().partition(":")
    return f"{domain.lstrip('0').rjust(4, '0')}:{rest}"


def records(log: str | Iterable[str]) -> Iterator[str]:
    """The records of a pasted log: one a line, but the three lines of the driver's probe message together.

    Given lines without their ends, it gives each record as soon as its end is seen.
    """
    held: list[str] = []
    for line in log.splitlines() if isinstance(log, str) else log:
        if "NVRM: The NVIDIA GPU" in line:
            yield from ["\n".join(held)] if held else []
            held = [line]
        elif held and "NVRM:" in line and len(held) < 3 and "Xid" not in line:
            held.append(line)
        else:
            yield from ["\n".join(held)] if held else []
            held = []
            yield line
    if held:
        yield "\n".join(held)


def code_of(word: str) -> tuple[Literal["xid", "sxid"], int] | None:
    """What a person means by "79", "xid 79" or "SXid:20034"; None for anything else."""
    number = re.fullmatch(r"(xid|sxid|)[ :=#-]*([0-9]{1,6})", word.strip(), re.IGNORECASE)
    return ("sxid" if number[1].lower() == "sxid" else "xid", int(number[2])) if number else None


def explain(code: int) -> Xid:
    """What the catalogue says of an Xid; for a code that it lacks, a warning that says so."""
    return catalogue().get(code) or Xid(
        mnemonic="UNKNOWN",
        meaning="not in the catalogue of this version",
        class_="either",
        severity=Severity.WARNING,
        fault="gpu_xid_unknown",
        advice="Look it up in NVIDIA's catalogue. If the GPU needs a reset, an Xid 154 says so.",
        source="",
        code=code,
    )


def explain_switch(code: int) -> Sxid | None:
    """What the catalogue says of an SXid."""
    return _sxids().get(code)


@functools.cache
def catalogue() -> Mapping[int, Xid]:
    """Every Xid of xid.toml by its code. Raises ConfigError where the shipped table is wrong (a test walks it)."""
    found = {}
    for code, row in _table("xid.toml").items():
        row["class_"] = row.pop("class", None)
        found[int(code)] = decode(Xid, {**row, "code": int(code)}, "xid.toml", code)
    return found


@functools.cache
def _sxids() -> Mapping[int, Sxid]:
    return {int(c): decode(Sxid, {**row, "code": int(c)}, "sxid.toml", c) for c, row in _table("sxid.toml").items()}


def _table(name: str) -> dict[str, Any]:
    with resources.as_file(resources.files("nodetriage.checks.rules") / name) as path:
        return load_toml(path)
