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
_PREFIX = re.compile(
    r"(?:> |/[\w./-]{1,255}:\d{1,9}:)?(?:<\d{1,3}>(?:1 )?)?(?:kern +:\w{1,8} *: )?(?:"
    rf"(?:{_SYSLOG}|{_FULL}|{_ISO}) {_HOST} (?:[A-Z]{{2,8}} )?kernel(?:: ?| - - - | )(?:{_STAMP})?"
    rf"|{_ISO} (?:std(?:out|err) [FP] )?(?:{_STAMP})?"
    rf"|(?:{_HOST}: )?{_STAMP}(?:{_HOST} kernel: )?"
    rf"|kernel: (?:{_STAMP})?"
    r")?"
)
_JSON_LIMIT = 65536


def message(line: str) -> str:
    """The kernel's text in a line of a pasted log; the line itself where it has no known prefix."""
    line = _COLOUR.sub("", line).lstrip()
    if line.startswith("{") and '"' in line[:3]:
        line = _json_text(line)
    found = _PREFIX.match(line)
    return line[found.end() :] if found else line


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
