"""What dmesg, the journal, syslog and log collectors write before the kernel's own text, for logs that somebody pasted.

Formats: dmesg(1) with -T, -H, -x, --time-format iso and CONFIG_PRINTK_CALLER; journalctl(1) short, short-iso,
short-full and short-monotonic; RFC 3164 and RFC 5424; the Kubernetes and Docker log formats. A prefix counts only at
the start of the line and only whole, so that what the kernel quotes behind it is never taken for a line of its own.
"""

import json
import re

_COLOUR = re.compile(r"\x1b\[[0-9;]{0,12}m")
_HOST = r"[\w.:-]{1,255}"
_ISO = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?"
_SYSLOG = r"\w{2,9}\.? +\d{1,2}\.? \d\d:\d\d:\d\d"  # the month in the node's own language
_FULL = r"\w{2,9} \d{4}-\d\d-\d\d \d\d:\d\d:\d\d \w{1,5}"
_STAMP = r"\[(?:\.\.\.|(?=[^\]]{0,40}\d)[\w:+., ]{1,40})\] ?(?:\[ *[TC]\d{1,10}\] ?)?"
_LEVEL = r"(?:[A-Z]{2,8} | {0,9}!\w{3,8} \| )"  # as collectors of logs add it
_PREFIX = re.compile(
    r"(?:> |/[\w./-]{1,255}:\d{1,9}:)?(?:<\d{1,3}>(?:1 )?)?(?:kern +:\w{1,8} *: )?(?:"
    rf"(?:{_SYSLOG}|{_FULL}|{_ISO}) {_HOST} {_LEVEL}?kernel(?:: ?| - - - | )(?:{_STAMP})?"
    rf"|{_ISO} (?:std(?:out|err) [FP] )?(?:{_STAMP})?"
    rf"|(?:{_HOST}: )?{_STAMP}(?:{_HOST} kernel: )?"
    rf"|kernel: (?:{_STAMP})?"
    r")?"
)
_JSON_LIMIT = 65536
_WHEN = re.compile(rf"{_ISO}|{_FULL}|{_SYSLOG}|\[ *(?P<since>\d{{1,10}}\.\d{{1,9}})\]|\[(?P<other>[^\]]{{5,40}})\]")


def message(line: str) -> str:
    """The kernel's text in a line of a pasted log; the line itself where it has no known prefix."""
    return split(line)[1]


def split(line: str) -> tuple[str, str]:
    """The moment as the log prints it ("" where it prints none), and the kernel's text."""
    line, when = _COLOUR.sub("", line).lstrip(), ""
    if line.startswith("{") and '"' in line[:3]:
        when, line = _json_when(line), _json_text(line)
    found = _PREFIX.match(line)
    if not found:
        return when, line
    moment = _WHEN.search(found[0])
    if moment and not when:
        when = next((text.strip() for text in (moment["since"], moment["other"]) if text), moment[0])
    return when, line[found.end() :]


def _json_when(line: str) -> str:
    """The moment of a line of `journalctl -o json`, in microseconds since 1970, or of a container's log."""
    found = re.search(r'"(?:__REALTIME_TIMESTAMP|time)" ?: ?"([\w:.+-]{1,40})"', line[:_JSON_LIMIT])
    return found[1] if found else ""


def _json_text(line: str) -> str:
    """The text in one line of `journalctl -o json` of the kernel's transport, or of a container's log."""
    try:
        known = json.loads(line[:_JSON_LIMIT])
    except (ValueError, RecursionError):
        return line
    if not isinstance(known, dict):
        return line
    text = known.get("MESSAGE") if known.get("_TRANSPORT") == "kernel" else known.get("log")
    return text.rstrip() if isinstance(text, str) else line
