"""docs/faults.md, from the tables: `make docs`, or `python -m nodetriage.checks.document > docs/faults.md`."""

import sys
from collections.abc import Iterator

from nodetriage.checks.model.faults import Fault, faults
from nodetriage.checks.readers.nvidia_log import catalogue

_HEAD = """\
# Faults

<!-- Made by `make docs` from faults.toml and xid.toml; edit those. -->

Findings, policy rules and the history use these codes; a code is never used for another fault later.
`nodetriage explain CODE` prints one of them, `nodetriage explain 79` an Xid.

The severity is the usual one; the check decides from the evidence. **critical**: remove the node now. **major**: the
job may finish, then the node is drained. **warning**: record. **info**: keep. The controller's policy decides what is
done.

How a fault ends:

- *when it is gone*: a later run of the check no longer finds it.
- *at reboot*: it is an event. It stays open until a new boot, a later event that ends it, or an operator clears it.
- *after N h*: it is an event that ends when it was not reported again for that long, or as above.

A fault that is marked *in shadow* is new. The controller records what it would do about it, but drains no node for it,
and no hook refuses a job for it. That ends when a release trusts the fault, or when a site lists it in
`[shadow] trusted` of `policy.toml` and in `hooks.trusted`.
"""

_XIDS = """
## Xid codes

The severity of each Xid of the NVIDIA driver, before the agent reads the rest of its line. The rest can change it: 94
and 95 say whether the GPU needs a reset, 64 whether the row only waits, 45 what the cause was, 154 what to do (by its
number), and 144 to 150 have words that the agent decodes. 171 and 172 say which memory a 48 concerns. A code that is
missing here is `gpu_xid_unknown`.

The severities are ours. Where tools disagree, they follow NVIDIA's immediate action and what the driver prints next. An
error that needs a reset before anything else can run is critical. One whose job is already dead, or that takes effect
at the next reset, is major. One that programs cause is info, whatever its name, and never drains a node.

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
