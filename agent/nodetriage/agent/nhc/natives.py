"""NHC's checks that checks of ours do: (arguments) -> (settings, what is lost). Raises Untranslatable."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from nodetriage.agent.nhc.arguments import Untranslatable, gib, options
from nodetriage.agent.nhc.match import is_pattern

Settings = tuple[Mapping[str, Any], str]
ALWAYS = {  # checks of ours look at it without a setting; the text says what is lost, if anything
    "check_hw_mcelog": "",
    "check_nvsmi_healthmon": "",
    "check_nv_healthmon": "",
    "check_gpu_xid": "",
    "check_gpu_ecc": "",
    "check_ps_userproc_lineage": "after_job finds what jobs leave behind; nothing logs or kills it",
}


def _mount(name: str, arguments: list[str]) -> Settings:
    """In fs_mounts a mount must answer too, and be writable unless it may be read-only."""
    found, rest = options(arguments, "r0", "tsoOeEfFm")
    points = [*found.get("f", []), *found.get("F", []), *rest]
    if len(points) != 1 or is_pattern(points[0]) or not points[0].startswith("/"):
        raise Untranslatable("expected one mount point that is no pattern")
    point = points[0].rstrip("/") or "/"
    table = {} if name == "check_fs_mount_rw" else {"read_only": True}
    lost = [word for letter, word in (("t", "type"), ("s", "source"), ("o", "options")) if letter in found]
    notes = [f"its {', '.join(lost)} may be any"] if lost else []
    notes += ["nothing mounts it or runs a command"] if found.keys() & set("rOeE") else []
    notes += ["it may be writable too"] if name == "check_fs_mount_ro" else []
    return {"checks": {"fs_mounts": {"expected": {point: table}}}}, "; ".join(notes)


def _space(name: str, arguments: list[str]) -> Settings:
    """fs_full has one limit for all: 95 % used. One that is no stricter than that is covered."""
    _, rest = options(arguments, "", "")
    limit = rest[1] if len(rest) == 2 else ""
    percent = int(limit[:-1]) if re.fullmatch(r"\d{1,3}%", limit) else -1
    is_covered = 0 <= percent <= 5 if "free" in name else 95 <= percent <= 100
    if not is_covered:
        raise Untranslatable("fs_full has one limit for all file systems (used_pct, used_inodes_pct: 95)")
    return {}, ""


def _memory(name: str, arguments: list[str]) -> Settings:
    _, rest = options(arguments, "", "")
    if not 1 <= len(rest) <= 3 or (least := gib(rest[0])) < 1:
        raise Untranslatable("mem_size takes the installed memory, and the lower limit is less than 1 GiB")
    table: dict[str, Any] = {"expected_gib": round(least, 2)}
    if re.fullmatch(r"\d{1,2}%", rest[-1]):
        table["tolerance_pct"] = float(rest[-1][:-1])
    return {"checks": {"mem_size": table}}, "" if len(rest) == 1 else "more memory than expected is no fault"


def _ib(name: str, arguments: list[str]) -> Settings:
    _, rest = options(arguments, "", "")
    if len(rest) != 2 or not rest[0].isdecimal() or not re.fullmatch(r"\w+(?::\d+)?", rest[1], re.ASCII):
        raise Untranslatable(
            "ib_link wants to know which ports: `nodetriage profile --learn` names them on a good machine"
        )
    hca, _, port = rest[1].partition(":")
    role = {"hcas": [hca], "ports": 1, "rate_gbps": float(rest[0])}
    note = "a faster port is right too" + (f"; every port of {hca}, not only {port}" if port not in ("", "1") else "")
    return {"checks": {"ib_link": {"roles": {f"nhc_{hca}": role}}}}, note


def _eth(name: str, arguments: list[str]) -> Settings:
    if len(arguments) != 1 or is_pattern(arguments[0]) or arguments[0].startswith("-"):
        raise Untranslatable("expected one interface")
    if arguments[0] == "lo":
        return {}, "the loopback interface has no link"
    return {"checks": {"eth_link": {"expected": {arguments[0]: {}}}}}, ""


def _dmi(name: str, arguments: list[str]) -> Settings:
    """Only the BIOS's version, which node_drift compares."""
    found, rest = options(arguments, "", "ht")
    version = re.fullmatch(r"BIOS Information: Version: ([\w.*?+ -]{1,60})", rest[0]) if len(rest) == 1 else None
    if version is None or found:
        raise Untranslatable("node_drift compares the versions of BIOS, kernel, GPU driver and OFED alone")
    return {"checks": {"node_drift": {"bios": [version[1]]}}}, ""


def _service(name: str, arguments: list[str]) -> Settings:
    """NHC looks for the process, we ask systemd for the unit."""
    found, rest = options(arguments, "0fvSrsckK", "udmeE")
    if name == "check_ps_daemon":
        rest = rest[:1]
    if len(rest) != 1 or is_pattern(rest[0]) or not re.fullmatch(r"[\w@.:-]{1,200}", rest[0], re.ASCII):
        raise Untranslatable("expected one service")
    unit = rest[0] if rest[0].endswith((".service", ".mount", ".timer")) else f"{rest[0]}.service"
    notes = ["nothing starts, restarts or stops it"] if found.keys() & set("SrsckKeE") else []
    notes += ["its user is not compared"] if "u" in found or len(arguments) > 1 > len(found) else []
    return {"checks": {"services": {"expected": {unit: "major"}}}}, "; ".join(notes)


CHECKS: Mapping[str, Callable[[str, list[str]], Settings]] = {
    "check_fs_mount": _mount,
    "check_fs_mount_rw": _mount,
    "check_fs_mount_ro": _mount,
    "check_fs_free": _space,
    "check_fs_used": _space,
    "check_fs_ifree": _space,
    "check_fs_iused": _space,
    "check_hw_physmem": _memory,
    "check_hw_ib": _ib,
    "check_hw_eth": _eth,
    "check_dmi_data_match": _dmi,
    "check_ps_service": _service,
    "check_ps_daemon": _service,
}
