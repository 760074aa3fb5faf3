"""Health data of disks: the JSON of smartctl(8) or, without it, of nvme-smart-log(1).

The NVMe values are those of log page 02h (NVM Express base specification, SMART / health information).
"""

from dataclasses import dataclass
from typing import Any

from nodetriage.checks.model import Host, Unavailable
from nodetriage.checks.readers.tools.answer import json_object, table

_SMARTCTL = ("smartctl", "--json", "-i", "-H", "-A")
_NVME = ("nvme", "smart-log", "--output-format=json")
ASK_TIMEOUT_S = 3.0


@dataclass(frozen=True, slots=True)
class Smart:
    """Health data of one disk. None where the disk or the tool has no such value."""

    passed: bool | None = None  # the disk's own summary
    critical_warning: int | None = None  # bits: 0 spare, 1 temperature, 2 reliability, 3 read-only, 4 backup
    spare_pct: int | None = None
    spare_threshold_pct: int | None = None
    used_pct: int | None = None  # of its rated life; can pass 100
    media_errors: int | None = None  # that NVMe counts; uncorrected errors of SAS (SPC-4, error counter log pages)
    pending_sectors: int | None = None  # ATA attribute 197, pending defects of SAS


def ask(host: Host, device: str) -> Smart:
    """Asks a disk. Raises Unavailable without a tool for it, TimeoutError, ValueError without health data."""
    try:
        return smartctl(host.run((*_SMARTCTL, device), ASK_TIMEOUT_S).stdout)
    except Unavailable:
        if not device.startswith("/dev/nvme"):
            raise
    try:
        return nvme(host.run((*_NVME, device), ASK_TIMEOUT_S).stdout)
    except Unavailable:
        raise Unavailable("neither smartctl nor nvme is installed") from None


def smartctl(text: str) -> Smart:
    """The answer of `smartctl --json`; its exit status adds nothing. Raises ValueError."""
    report = json_object(text, "smartctl")
    log, status = table(report, "nvme_smart_health_information_log"), table(report, "smart_status")
    passed = status.get("passed") if isinstance(status.get("passed"), bool) else None
    if passed is None and not log:
        raise ValueError(f"smartctl: no health information: {_message(report)}")
    attributes = table(report, "ata_smart_attributes").get("table")
    pending = [table(a, "raw") for a in attributes if _whole(a, "id") == 197] if isinstance(attributes, list) else []
    pending_key = "value" if pending else "count"
    return Smart(
        passed=passed,
        critical_warning=_whole(log, "critical_warning"),
        spare_pct=_whole(log, "available_spare"),
        spare_threshold_pct=_whole(log, "available_spare_threshold"),
        used_pct=_whole(log, "percentage_used"),
        media_errors=_whole(log, "media_errors") if log else _uncorrected(table(report, "scsi_error_counter_log")),
        pending_sectors=_whole(pending[0] if pending else table(report, "scsi_pending_defects"), pending_key),
    )


def _uncorrected(log: dict[str, Any]) -> int | None:
    """Of a SAS disk, in reads, writes and verifications; None where it counts none of them."""
    pages = (_whole(table(log, page), "total_uncorrected_errors") for page in ("read", "write", "verify"))
    counts = [count for count in pages if count is not None]
    return sum(counts) if counts else None


def nvme(text: str) -> Smart:
    """The answer of `nvme smart-log --output-format=json`. Raises ValueError."""
    log = json_object(text, "nvme smart-log")
    # Newer versions give the bits by name beside their value.
    warning = _whole(table(log, "critical_warning"), "value")
    warning = _whole(log, "critical_warning") if warning is None else warning
    if warning is None:
        raise ValueError(f"nvme smart-log: no critical_warning in {text[:80]!r}")
    return Smart(
        critical_warning=warning,
        spare_pct=_whole(log, "avail_spare"),
        spare_threshold_pct=_whole(log, "spare_thresh"),
        used_pct=_whole(log, "percent_used"),
        media_errors=_whole(log, "media_errors"),
    )


def _whole(within: Any, key: str) -> int | None:
    """Some versions write large counts as strings."""
    found = within.get(key) if isinstance(within, dict) else None
    if isinstance(found, str) and found.isascii() and found.isdecimal() and len(found) < 40:
        return int(found)
    return found if isinstance(found, int) and not isinstance(found, bool) and found >= 0 else None


def _message(report: dict[str, Any]) -> str:
    messages = table(report, "smartctl").get("messages")
    words = [str(_m.get("string", "")) for _m in messages if isinstance(_m, dict)] if isinstance(messages, list) else []
    return "; ".join(words)[:200] or f"exit status {table(report, 'smartctl').get('exit_status')}"
