"""What the kernel's lines on disks and file systems are worth: one disk is one part, and RAID may spare it."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from nodetriage.checks.model import Finding, Host, Severity
from nodetriage.checks.model.kernel_rules import KernelRules
from nodetriage.checks.readers.disks import addresses, disk_of, is_removable, is_spared, named, read_names
from nodetriage.checks.readers.pci import ADDRESS
from nodetriage.checks.rules.kernel_log import (
    Event,
    KernelLogPolicy,
    Line,
    Log,
    each_line,
    folded,
    judged,
    read_log,
    remembered,
)

_MEMBER_LOST = "raid_member_lost"
_LOST = "disk_lost"
_SPARED = "spared"  # fact: the disk's RAID sets go on without it
_NO_DISK = ("dm ", "md", "xfs")  # components that name no block device of their own

# A server that is away and a disk that fails change no mount: the kernel only says so.
MOUNT_FAILS = (
    r"nfs: server [\w.:%-]{1,255} not responding"
    r"|Lustre: (?:[\w:.()-]{1,80} )?[\w.@-]{4,120}: Connection to \S+ \(at \S+\) was lost"
    r"|libceph: (?:mon|osd|mds)\d+ (?:\(\d\))?[0-9a-f.:\[\]]{7,60} session lost"
    r"|EXT4-fs \([\w-]{1,32}\): Remounting filesystem read-only"
    r"|XFS \([\w-]{1,32}\): (?:(?:Corruption of |Metadata I/O [Ee]rror|Log I/O [Ee]rror|I/O Error Detected"
    r"|Block device removal|All device paths lost|User initiated shutdown)[^\n]{0,200}Shutting down filesystem"
    r"|log I/O error -\d{1,4}: Filesystem has been shut down|Filesystem has been shut down due to )"
    r"|BTRFS info \(device [\w-]{1,32}(?::? state \w{1,8})?\): forced readonly"
)


@dataclass(frozen=True, slots=True)
class DiskLogPolicy(KernelLogPolicy):
    """Devices in `ignore` are not judged."""

    ignore: tuple[str, ...] = ("loop*", "nbd*", "fd*", "sr*", "ram*", "zram*")  # patterns: files and media of users


def read_disk_log(host: Host, rules: KernelRules) -> Log:
    """The lines by the disk that they are about; without those of removable media, which are not the node's."""
    log = read_log(host, rules, _but_removable, read_names)
    events = tuple(event for event in (_placed(host, e) for e in log.events) if event is not None)
    here = tuple(e.component for e in events if ADDRESS.fullmatch(e.component) and _on_bus(host, e.component))
    return replace(log, events=tuple(folded(events)), devices=None if log.devices is None else (*log.devices, *here))


def _but_removable(lines: Sequence[Line], rules: KernelRules) -> Iterable[Event]:
    media = {line.groups.get("device") for line in lines if line.rule == "scsi.removable"}
    for event in each_line(lines, rules):
        if event.component.rpartition(" ")[2] not in media:
            yield event


def _placed(host: Host, event: Event) -> Event | None:
    """The event on its disk, with the name that the line has as a fact; None where the disk is not the node's own."""
    disk = named(host, event.component)
    if disk.startswith("sd") and is_removable(host, disk):
        return None
    facts = {**event.facts, "device": event.component.removeprefix("scsi ").strip()}
    if event.component.startswith(("mpt", *_NO_DISK)) or ADDRESS.fullmatch(event.component):
        facts = dict(event.facts)
    if is_spared(host, disk_of(event.component)):
        facts[_SPARED] = True
    return replace(event, component=disk, facts=facts)


def _on_bus(host: Host, address: str) -> bool:
    return host.exists(f"/sys/bus/pci/devices/{address}")


def judge_disk_log(now: Log, before: Log | None, rules: KernelRules, policy: DiskLogPolicy) -> Iterator[Finding]:
    """A disk of which RAID sets say that they go on without it, or whose sets could, ends no job by itself."""
    known = addresses(remembered(before, now).devices)
    events = [replace(e, component=known.get(disk_of(e.component), e.component)) for e in now.events]
    events = [e for e in events if not any(fnmatchcase(e.component, pattern) for pattern in policy.ignore)]
    spared = {e.component for e in events if rules[e.rule].fault == _MEMBER_LOST or e.facts.get(_SPARED)}
    mild = [
        replace(e, severity=Severity.MAJOR) if e.component in spared and rules[e.rule].fault == _LOST else e
        for e in events
    ]
    yield from judged(replace(now, events=tuple(folded(mild))), before, rules, policy, _is_here)


def _is_here(component: str, names: Sequence[str]) -> bool:
    """A PCI address comes from the disk itself, unless the line names a controller: then it is among the names."""
    return (
        component in names or component.startswith(("mpt", *_NO_DISK)) or component in addresses(tuple(names)).values()
    )
