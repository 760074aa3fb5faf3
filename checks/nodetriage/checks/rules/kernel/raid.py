"""Software RAID (md) and device mapper: members that fail, sets that go on without them, sets that are lost.

Source: drivers/md/{md,raid0,raid1,raid10,raid5}.c, drivers/md/dm-*.c. RAID 1, 4, 5, 6 and 10 say of each failed member
whether they go on; a RAID 0 is lost with its first.
"""

from nodetriage.checks.model import Severity
from nodetriage.checks.model.kernel_rules import KernelRule, KernelRules

_DISK = r"(?P<device>[\w-]{1,32})"
_SET = r"md/(?:raid1|raid10|raid|multipath|linear):(?P<array>[\w-]{1,32}): "
_RAID5 = "drivers/md/raid5.c"


def _md(
    name: str,
    text: str,
    fault: str,
    severity: Severity,
    source: str,
    *examples: str,
    component: str = r"\g<device>",
    state: str = "event",
    never: tuple[str, ...] = (),
) -> KernelRule:
    return KernelRule(f"md.{name}", text, fault, severity, examples, component, state=state, source=source, never=never)


def _dm(
    name: str,
    text: str,
    fault: str,
    severity: Severity,
    *examples: str,
    component: str,
    state: str = "lasting",
    never: tuple[str, ...] = (),
) -> KernelRule:
    return KernelRule(
        f"dm.{name}",
        rf"device-mapper: {text}",
        fault,
        severity,
        examples,
        component,
        state=state,
        source="drivers/md/dm-*.c",
        never=never,
    )


RULES = KernelRules((
    _md(
        "member", rf"{_SET}Disk failure on {_DISK}, disabling device", "raid_member_lost", Severity.MAJOR,
        "drivers/md/{raid1,raid10,raid5}.c",
        "md/raid1:md0: Disk failure on nvme1n1p2, disabling device.\nmd/raid1:md0: Operation continuing on 1 devices.",
        "md/raid:md2: Disk failure on sdc1, disabling device.", "md/raid10:md1: Disk failure on sdb1, disabling device.",
        state="lasting",
    ),
    _md(
        "raid0", r"md/(?:raid0|linear):?(?P<array>[\w-]{1,32}): Disk failure on (?P<member>[\w-]{1,32}) detected, failing array",
        "raid_stopped", Severity.CRITICAL, "drivers/md/raid0.c:raid0_error",
        "md/raid0md3: Disk failure on nvme3n1 detected, failing array.",
        "md/raid0:md0: Disk failure on nvme0n1p1 detected, failing array.", component=r"\g<array>", state="lasting",
    ),
    _md(
        "stopped", rf"{_SET}(?:Cannot continue operation \(|not enough operational (?:devices|mirrors)|failed to run raid set)",
        "raid_stopped", Severity.CRITICAL, "drivers/md/{raid5,raid10}.c", "md/raid:md2: Cannot continue operation (2/4 failed).",
        "md/raid:md2: not enough operational devices (2/4 failed)", "md/raid10:md1: not enough operational mirrors.",
        component=r"\g<array>", state="lasting",
    ),
    _md(
        "unreadable", rf"md/raid10:(?P<array>[\w-]{{1,32}}): {_DISK}: unrecoverable I/O read error", "disk_io_error", Severity.MAJOR,
        "drivers/md/raid10.c:raid10_read_request", "md/raid10:md1: sda1: unrecoverable I/O read error for block 81920",
    ),
    _md(
        "unreadable.raid1", r"md/raid1:(?P<device>[\w-]{1,32}): (?:[\w-]{1,32}: )?unrecoverable I/O (?:block )?read error",
        "disk_io_error", Severity.MAJOR, "drivers/md/raid1.c:raid1_read_request",
        "md/raid1:md0: nvme1n1p2: unrecoverable I/O read error for block 81920",
    ),
    _md(
        "corrected", rf"{_SET}read error corrected \(\d{{1,9}} sectors at \d{{1,20}} on {_DISK}\)", "disk_corrected",
        Severity.WARNING, f"{_RAID5}:raid5_end_read_request", "md/raid:md2: read error corrected (8 sectors at 81920 on sdc1)",
        "md/raid1:md0: read error corrected (8 sectors at 81920 on nvme1n1p2)", state="corrected",
    ),
    _md(
        "uncorrected", rf"{_SET}read error (?:NOT corrected!!|not correctable) \(sector \d{{1,20}} on {_DISK}\)", "disk_io_error",
        Severity.MAJOR, f"{_RAID5}:raid5_end_read_request", "md/raid:md2: read error NOT corrected!! (sector 81920 on sdc1).",
        "md/raid:md2: read error not correctable (sector 81920 on sdc1).",
    ),
    _md(
        "too_many", rf"{_SET}Too many read errors, failing device {_DISK}\.", "raid_member_lost", Severity.MAJOR,
        f"{_RAID5}:raid5_end_read_request", "md/raid:md2: Too many read errors, failing device sdc1.", state="lasting",
    ),
    _md(
        "superblock", r"md: super_written gets error=", "disk_io_error", Severity.MAJOR, "drivers/md/md.c:super_written",
        "md: super_written gets error=-5", component="md",
    ),
    _md(
        "no_superblock", rf"md: disabled device {_DISK}, could not read superblock", "raid_member_lost", Severity.MAJOR,
        "drivers/md/md.c:read_disk_sb", "md: disabled device sdb1, could not read superblock.", state="lasting",
    ),
    _md(
        "degraded", r"md/raid(?:1|10):(?P<array>[\w-]{1,32}): active with (?P<active>\d{1,4}) out of (?!(?P=active) )(?P<wanted>\d{1,4}) (?:mirrors|devices)",
        "raid_member_lost", Severity.MAJOR, "drivers/md/{raid1,raid10}.c:run", "md/raid1:md0: active with 1 out of 2 mirrors",
        component=r"\g<array>", state="lasting", never=("md/raid1:md0: active with 2 out of 2 mirrors",),
    ),
    _dm(
        "multipath", r"multipath: queue_if_no_path timeout on (?P<device>[\w.-]{1,60}), failing queued IO", "disk_lost",
        Severity.CRITICAL, "device-mapper: multipath: queue_if_no_path timeout on mpatha, failing queued IO",
        component=r"dm \g<device>",
    ),
    _dm(
        "failover", r"multipath: Could not failover the device: Handler", "disk_reset", Severity.MAJOR,
        "device-mapper: multipath: Could not failover the device: Handler scsi_dh_alua Error 15.", component="dm multipath",
        state="event",
    ),
    _dm(
        "thin.mode", r"thin: (?P<device>\d{1,4}:\d{1,8}): switching pool to (?!write mode)(?P<mode>[\w-]{1,30}(?: \([\w ]{1,30}\))?)",
        "thin_pool_failed", Severity.MAJOR, "device-mapper: thin: 253:4: switching pool to read-only mode",
        "device-mapper: thin: 253:4: switching pool to out-of-data-space (error IO) mode", component=r"dm \g<device>",
        never=("device-mapper: thin: 253:4: switching pool to write mode",),
    ),
    _dm(
        "thin.metadata", r"thin: (?P<device>\d{1,4}:\d{1,8}): metadata operation '\w{1,60}' failed", "thin_pool_failed", Severity.MAJOR,
        "device-mapper: thin: 253:4: metadata operation 'dm_pool_commit_metadata' failed: error = -5", component=r"dm \g<device>",
    ),
    _dm(
        "verity", r"verity: (?P<device>[\w:-]{1,32}): (?:data|metadata) block \d{1,20} is corrupted", "disk_io_error", Severity.MAJOR,
        "device-mapper: verity: 259:3: data block 1280 is corrupted", component=r"dm \g<device>", state="event",
    ),
    _dm(
        "integrity", r"integrity: (?P<device>[\w:-]{1,32}): Checksum failed at sector 0x", "disk_io_error", Severity.MAJOR,
        "device-mapper: integrity: nvme1n1: Checksum failed at sector 0x1f40", component=r"\g<device>", state="event",
    ),
    _dm(
        "mirror", r"raid1: All sides of mirror have failed", "raid_stopped", Severity.CRITICAL,
        "device-mapper: raid1: All sides of mirror have failed.", component="dm raid1",
    ),
))  # fmt: skip
