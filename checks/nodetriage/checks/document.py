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
(Meta's paper "Revisiting Reliability in Large-Scale Machine Learning Research Clusters" calls the first of them high
severity and the second low.)

How a fault ends:

- *when it is gone*: a later run of the check no longer finds it.
- *at reboot*: it is an event. It stays open until a new boot, a later event that ends it, or an operator clears it.
- *after N h*: it is an event that ends when it was not reported again for that long, or as above.

A fault that is marked *in shadow* is new. The controller records what it would do about it, but drains no node for it,
and no hook refuses a job for it. That ends when a release trusts the fault, or when a site lists it in
`[shadow] trusted` of `policy.toml` and in `hooks.trusted`.
"""

_DIFFERENCES = """
## Where a severity differs from the requirements

The requirements are the project's first list of checks, after "Revisiting Reliability in Large-Scale Machine Learning
Research Clusters": high there is critical here, low is major. A site that wants theirs writes a rule for the fault in
`policy.toml`, or sets the severity in the check's settings where it is one.

| requirement | it says | fault: ours | why |
|---|---|---|---|
"""
# Requirement, what it says, the faults, and the reason for a severity of ours that differs, decided one by one.
DIFFERENCES: tuple[tuple[str, str, tuple[str, ...], str], ...] = (
    (
        "R18 corrected GPU memory errors over a threshold", "major",
        ("gpu_ecc_corrected_storm", "gpu_ecc_corrected_rate"),
        "As required where the driver's own threshold is passed (Xid 92). Our threshold on the counters is a guess and"
        " no data is lost, so it only warns.",
    ),
    (
        "R23 context switch timeout (Xid 109)", "warning", ("gpu_context_switch_timeout",),
        "The channel is lost and later jobs on the GPU often hang, so the node drains after its job; twice a day on"
        ' one GPU it is critical. A program that never yields can cause it too; a rule can make it a warning.',
    ),
    (
        "R28 corrected DIMM errors", "major", ("mem_corrected_storm", "mem_uncorrected"),
        "Uncorrected is critical, as required. Corrected errors lose nothing, come in storms on healthy DIMMs, and the "
        "kernel takes the page away: draining for them would cost more than it saves.",
    ),
    (
        "R30 block device errors", "critical", ("disk_io_error", "disk_failing", "disk_dead", "disk_lost"),
        "A disk that fails, is dead or is lost is critical, as required. One error of a sector ends the job that reads "
        "it and no other, so the other jobs may finish.",
    ),
    (
        "R34 firmware that differs", "major", ("gpu_vbios_drift", "ib_firmware_drift"),
        "It is mostly a rollout under way. Draining for it would empty the fleet in the middle of one.",
    ),
)  # fmt: skip

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
    return _HEAD + "".join(sections) + _DIFFERENCES + "".join(_differences()) + _XIDS + "".join(_rows())


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


def _differences() -> Iterator[str]:
    for requirement, severity, codes, why in DIFFERENCES:
        ours = ", ".join(f"`{code}`: {faults()[code].severity.name.lower()}" for code in codes)
        yield f"| {requirement} | {severity} | {ours} | {why} |\n"


def _rows() -> Iterator[str]:
    for code, xid in catalogue().items():
        yield f"| {code} | `{xid.fault}` | {xid.severity.name.lower()} | {xid.meaning} |\n"


if __name__ == "__main__":
    sys.stdout.write(page())
