"""Lines of the NVIDIA driver in the kernel log, and the catalogue of their codes.

`parse` takes the text of one kernel record, which begins with the driver's own prefix; what tools put before it in a
pasted log `log_prefix` takes off first. A user can make the kernel quote any of these lines behind its own words, so
nothing is looked for inside a record.
"""

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any, Literal

from nodetriage.checks.model import Severity
from nodetriage.checks.model.kernel_line import KernelPattern, any_of, kernel_pattern
from nodetriage.checks.model.settings import decode, load_toml

Kind = Literal["xid", "sxid", "companion"]
Sign = Literal[
    "off_bus", "init_failed", "gsp_heartbeat", "reset_required", "uuid", "driver_loaded", "found_again", "api_mismatch"
]

# A driver line is a few hundred bytes; what follows in a longer one is not ours.
_LONGEST = 4096
_PCI = r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-7])?"
_ADDRESS = rf"(?P<pci>{_PCI})"
_XID = kernel_pattern(
    rf"NVRM: Xid \((?:PCI:)?{_ADDRESS}(?: GPU-I:(?P<gi>\d+))?(?:[ ,]+GPU-CI:(?P<ci>\d+))?[^)]{{0,64}}\):"
    r"\s*(?P<code>\d{1,6})\b,?\s*(?P<rest>(?s:.*))",
    whole_record=True,  # a process name with a newline in it must not hide what the driver writes behind it
)
_SXID = kernel_pattern(rf"nvidia-nvswitch\d+: SXid \(PCI:{_ADDRESS}\):\s*(?P<code>\d{{1,6}})\b,?\s*(?P<rest>.*)")
_PROCESS = re.compile(
    r"pid='?(?:(?P<pid>\d{1,10})|<unknown>)'?(?:,\s*name=(?P<process>.{0,64}?))?(?:,\s+|,?$)(?P<rest>.*)", re.DOTALL
)
_COMPANIONS: dict[KernelPattern, Sign] = {
    kernel_pattern(rf"NVRM: GPU at (?:PCI:)?{_ADDRESS}: (?P<rest>GPU-[0-9a-fA-F-]{{36}})"): "uuid",
    kernel_pattern(rf"NVRM: GPU (?:at )?(?:PCI:)?{_ADDRESS}: (?P<rest>GPU has fallen off the bus)"): "off_bus",
    kernel_pattern(r"NVRM:\s+(?P<rest>fallen off the bus and is not responding.{0,100})"): "off_bus",
    kernel_pattern(rf"NVRM: GPU {_ADDRESS}: (?P<rest>RmInitAdapter failed.*)"): "init_failed",
    kernel_pattern(r"NVRM: (?P<rest>GPU\d+ _kgspIsHeartbeatTimedOut: Heartbeat timed out.*)"): "gsp_heartbeat",
    kernel_pattern(
        r"NVRM: (?P<rest>(?:GPU\d+ )?nv\w{5,40}: (?:Assertion|Check) failed: "
        r"Reset required \[NV_ERR_RESET_REQUIRED\].*)"
    ): "reset_required",
    kernel_pattern(r"NVRM: loading NVIDIA UNIX (?P<rest>.{0,160})"): "driver_loaded",
    kernel_pattern(
        rf"pci {_ADDRESS}: (?P<rest>\[10de:[0-9a-f]{{4}}\] type [0-9a-f]{{2}} class 0x03.{{0,40}})"
    ): "found_again",
    kernel_pattern(r"NVRM: API mismatch: (?P<rest>the client has the version .{0,80})"): "api_mismatch",
}
# One record of three lines, printed where the driver meets a dead GPU while it loads. Its first line is the driver's
# alone, so the two others are too.
_PROBE = kernel_pattern(
    rf"NVRM: The NVIDIA GPU {_ADDRESS}\s*\n"
    r"(?P<rest>\s*NVRM: \(PCI ID: [^\n]{0,80}\n\s*NVRM:\s+fallen off the bus[^\n]{0,100})",
    whole_record=True,
)
# Lines as the driver prints them, one for each rule: tests forge every one of them.
EXAMPLES = (
    "NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, name=python3, GPU has fallen off the bus.",
    "nvidia-nvswitch0: SXid (PCI:0000:86:00.0): 26006, SOE HALTED",
    "NVRM: GPU at PCI:0000:b1:00: GPU-00000000-0000-4000-8000-000000000005",
    "NVRM: GPU 0000:b1:00.0: GPU has fallen off the bus.",
    "NVRM: fallen off the bus and is not responding to commands.",
    "NVRM: GPU 0000:a4:00.0: RmInitAdapter failed! (0x26:0xffff:1482)",
    "NVRM: GPU3 _kgspIsHeartbeatTimedOut: Heartbeat timed out, currentTimeMs 40218113 heartbeat 990311",
    "NVRM: nvAssertOkFailedNoLog: Assertion failed: Reset required [NV_ERR_RESET_REQUIRED] (0x00000062) returned",
    "NVRM: GPU0 nvCheckOkFailedNoLog: Check failed: Reset required [NV_ERR_RESET_REQUIRED] (0x00000062) returned",
    "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  550.90.07  Release Build  (dvs-builder@U16)",
    "pci 0000:b1:00.0: [10de:2330] type 00 class 0x030200 PCIe Endpoint",
    "NVRM: API mismatch: the client has the version 535.154.05, but\nNVRM: this kernel module has the version 550.78.",
    "NVRM: The NVIDIA GPU 0000:c6:00.0\nNVRM: (PCI ID: 10de:2330) installed in this system has\n"
    "NVRM: fallen off the bus and is not responding to commands.",
)

# The records that are this module's to parse.
KERNEL_PATTERN = any_of(
    (
        rf"NVRM: Xid \((?:PCI:)?{_PCI}",
        rf"nvidia-nvswitch\d+: SXid \(PCI:{_PCI}",
        rf"NVRM: GPU (?:at )?(?:PCI:)?{_PCI}: (?:GPU|RmInitAdapter failed)",
        rf"NVRM: The NVIDIA GPU {_PCI}",
        r"NVRM:\s+fallen off the bus and is not responding",
        r"NVRM: GPU\d+ _kgspIsHeartbeatTimedOut: ",
        r"NVRM: (?:GPU\d+ )?nv\w{5,40}: (?:Assertion|Check) failed: Reset required",
        r"NVRM: loading NVIDIA UNIX ",
        rf"pci {_PCI}: \[10de:[0-9a-f]{{4}}\] type [0-9a-f]{{2}} class 0x03",
        r"NVRM: API mismatch: the client has the version ",
    )
)


def xids(*codes: int) -> str:
    """An expression for Check.kernel_wakes: the Xid lines with these codes."""
    return rf"NVRM: Xid \((?:PCI:)?{_PCI}[^)]{{0,64}}\): (?:{'|'.join(map(str, codes))})\b"


SXIDS = rf"nvidia-nvswitch\d+: SXid \(PCI:{_PCI}\): "
OFF_BUS = (
    rf"NVRM: GPU (?:at )?(?:PCI:)?{_PCI}: (?:GPU has fallen off the bus|RmInitAdapter failed)"
    rf"|NVRM: The NVIDIA GPU {_PCI}"
)


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
            return "driver" if self.sign == "api_mismatch" else "unknown-gpu"
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
    """What the driver says in this record; None where the record is not the driver's. Never raises."""
    text = text[:_LONGEST]
    if not text.startswith(("NVRM:", "nvidia-nvswitch", "pci ")):
        return None
    if found := _XID.match(text):
        return _xid_line(found)
    if found := _SXID.match(text):
        return XidLine("sxid", _address(found["pci"]), int(found["code"]), rest=found["rest"].strip())
    for pattern, sign in _COMPANIONS.items():
        if found := pattern.match(text):
            return _companion(sign, found)
    return _companion("off_bus", found) if (found := _PROBE.match(text)) else None


def _companion(sign: Sign, found: re.Match[str]) -> XidLine:
    """These print a function that Xid lines leave out: one device, one name."""
    pci = found.groupdict().get("pci")
    address = _address(pci).removesuffix(".0") if pci else None
    return XidLine("companion", address, rest=found["rest"].strip(), sign=sign)


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
