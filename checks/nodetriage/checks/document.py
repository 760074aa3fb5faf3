"""docs/faults.md, from the tables: `make docs`, or `python -m nodetriage.checks.document > docs/faults.md`."""

import sys
from collections.abc import Iterator

from nodetriage.checks.model.faults import Fault, faults
from nodetriage.checks.readers.nvidia_log import catalogue

_HEAD = """\
# Faults

<!-- Made by `make docs` from faults.toml and xid.toml; edit those. -->

A fault code is what a finding says, what a policy rule names and what the history is counted by. Codes are never
reused. `nodetriage explain CODE` prints one of these; `nodetriage explain 79` an Xid.

Severity is what the check gives unless the evidence says otherwise: **critical**, remove the node now; **major**,
serious, but the job may finish; **warning**, record; **info**, keep. The controller's policy decides what
is done.

How a fault ends:

- *when it is gone*: the check looks again and no longer sees it.
- *at reboot*: it is an event. It stays until a new boot, a later event that takes it back, or an operator's word.
- *after N h*: it is an event that is forgotten when it has not come again for that long.

A fault that is marked *in shadow* is new. The controller records what it would do about it, but drains no node for it,
and no hook refuses a job for it. That ends when a release trusts the fault, or when a site lists it in
`[shadow] trusted` of `policy.toml` and in `hooks.trusted`.
"""

_XIDS = """
## Xid codes

What each Xid of the NVIDIA driver is worth, before the text of its line is read. The text can change it: 94 and 95
say whether a reset is needed, 64 whether the row only waits, 45 what caused it, 154 what is to be done (by its number),
144 to 150 carry words that are decoded. 171 and 172 say which memory a 48 was about. A code that is missing here is
`gpu_xid_unknown`.

The severities are ours. Where tools disagree we took what NVIDIA's catalogue says to do at once, read against what the
driver prints next: an error that needs a reset before anything else can run is critical; one whose job is already
dead, or that takes effect at the next reset, is major; what programs cause is info, whatever its name, and never
drains a node.

| Xid | fault | severity | what it means |
|---|---|---|---|
"""


def page() -> str:
    """The whole page."""
    known = faults()
    classes = dict.fromkeys(fault.class_ for fault in known.values())
    sections = (
        f"\n## {name}\n\n" + "\n".join(_entry(f) for f in known.values() if f.class_ == name) for name in classes
    )
    return _HEAD + "".join(sections) + _XIDS + "".join(_rows())


def _entry(fault: Fault) -> str:
    causes = ", ".join(fault.domains)
    facts = f"{fault.severity.name.lower()} · ends {_end(fault)} · cause: {causes}"
    if not fault.trusted:
        facts += " · in shadow"
    title = fault.title[0].upper() + fault.title[1:]
    return f"### `{fault.code}`\n\n{title}. *{facts}*\n\n{fault.means}\n\n→ {fault.advice}\n"


def _end(fault: Fault) -> str:
    if fault.forgotten_after_s is not None:
        return f"after {fault.forgotten_after_s / 3600:g} h"
    return "at reboot" if fault.latching == "boot" else "when it is gone"


def _rows() -> Iterator[str]:
    for code, xid in catalogue().items():
        yield f"| {code} | `{xid.fault}` | {xid.severity.name.lower()} | {xid.meaning} |\n"


if __name__ == "__main__":
    sys.stdout.write(page())
