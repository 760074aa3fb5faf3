"""File systems on the node's own disks: ext4 and its journal, XFS, Btrfs.

Source: fs/ext4, fs/jbd2, fs/xfs, fs/btrfs. A file system that reports an error is damaged or its disk is; one that shuts
down or turns read-only fails every write from then on. The wording of XFS changed in 5.14, 5.15 and 6.1; Btrfs puts its state
in the parenthesis from 6.1.
"""

from nodetriage.checks.model import Severity
from nodetriage.checks.model.kernel_rules import KernelRule, KernelRules

_DISK = r"(?P<device>[\w-]{1,32})"
_EXT4 = rf"EXT4-fs \({_DISK}\): "
_XFS = rf"XFS \({_DISK}\): "
_JOURNAL = r"(?P<device>[\w-]{1,32}?)(?:-\d{1,10})?\.?"
_STATE = r"(?::? state \w{1,8})?"
_SHUT = (
    r"(?:(?:Log I/O [Ee]rror|Metadata I/O [Ee]rror|Corruption of in-memory data|Corruption of on-disk metadata|Block device removal"
    r"|I/O Error|All device paths lost)[^\n]{0,200}Shutting down filesystem|Filesystem has been shut down due to |log I/O error -\d|xfs_log_force: error -?\d)"
)
_FS = {"fs_error": Severity.MAJOR, "fs_forced_read_only": Severity.CRITICAL, "fs_needs_check": Severity.WARNING}


def _fs(name: str, text: str, fault: str, *examples: str, source: str, never: tuple[str, ...] = ()) -> KernelRule:
    state = "lasting" if fault == "fs_forced_read_only" else "event"
    return KernelRule(
        f"fs.{name}", text, fault, _FS[fault], examples, r"\g<device>", state=state, source=source, never=never
    )


def _btrfs(name: str, level: str, text: str, fault: str, *examples: str, never: tuple[str, ...] = ()) -> KernelRule:
    return _fs(
        f"btrfs.{name}",
        rf"BTRFS:? {level} \(device {_DISK}{_STATE}\):? {text}",
        fault,
        *examples,
        source="fs/btrfs",
        never=never,
    )


RULES = KernelRules((
    _fs(
        "ext4.read_only", rf"{_EXT4}Remounting filesystem read-only", "fs_forced_read_only",
        "EXT4-fs (nvme0n1p2): Remounting filesystem read-only", source="fs/ext4/super.c:ext4_handle_error",
        never=("EXT4-fs (sda2): re-mounted 6f0b0d2e-1a2b-4c3d-8e4f-5a6b7c8d9e0f ro. Quota mode: none.",),
    ),
    _fs(
        "ext4.aborted", rf"EXT4-fs error \(device {_DISK}\): ext4_journal_check_start:\d{{1,6}}: (?:comm .{{1,15}}: )?Detected aborted journal",
        "fs_forced_read_only", "EXT4-fs error (device dm-0): ext4_journal_check_start:84: comm rsyslogd: Detected aborted journal",
        source="fs/ext4/ext4_jbd2.c",
    ),
    _fs(
        "ext4.multiply_mounted", rf"EXT4-fs error \(device {_DISK}\): kmmpd:\d{{1,6}}: ", "fs_forced_read_only",
        "EXT4-fs error (device sdb1): kmmpd:179: comm kmmpd-sdb1: Error while updating MMP info.", source="fs/ext4/mmp.c",
    ),
    _fs(
        "ext4.error", rf"EXT4-fs (?:error|critical) \(device {_DISK}\)", "fs_error",
        "EXT4-fs error (device sda2): ext4_lookup:1855: inode #131074: comm python3: iget: checksum invalid",
        "EXT4-fs error (device sda2) in ext4_reserve_inode_write:5764: IO failure", source="fs/ext4/super.c:__ext4_error",
    ),
    _fs(
        "ext4.superblock", rf"{_EXT4}(?:I/O error while writing superblock|previous I/O error to superblock detected)",
        "fs_forced_read_only", "EXT4-fs (nvme1n1p1): I/O error while writing superblock",
        "EXT4-fs (nvme1n1p1): previous I/O error to superblock detected", source="fs/ext4/super.c:ext4_commit_super",
    ),
    _fs(
        "ext4.write", rf"EXT4-fs warning \(device {_DISK}\): ext4_end_bio:\d{{1,6}}: I/O error", "fs_error",
        "EXT4-fs warning (device nvme1n1p1): ext4_end_bio:342: I/O error 10 writing to inode 1310722 starting block 5296128)",
        source="fs/ext4/page-io.c",
    ),
    _fs(
        "ext4.lost",
        rf"{_EXT4}(?:This should not happen!! Data will be lost|Delayed block allocation failed for inode [^\n]{{1,120}} with error (?!28\b)\d)",
        "fs_error", "EXT4-fs (nvme1n1p1): This should not happen!! Data will be lost",
        "EXT4-fs (nvme1n1p1): Delayed block allocation failed for inode 1310722 at logical offset 0 with max blocks 2048 with error 117",
        source="fs/ext4/inode.c:mpage_map_and_submit_extent",
        never=("EXT4-fs (sda2): Delayed block allocation failed for inode 1 at logical offset 0 with max blocks 2 with error 28",),
    ),
    _fs(
        "ext4.errors_before",
        rf"{_EXT4}(?:error count since last fsck: \d|initial error at time \d|last error at time \d|warning: mounting fs with errors)",
        "fs_needs_check", "EXT4-fs (sda2): initial error at time 1717243260: ext4_lookup:1855",
        "EXT4-fs (sda2): error count since last fsck: 3", "EXT4-fs (sda2): last error at time 1717243260: ext4_lookup:1855: inode 131074",
        "EXT4-fs (sda2): warning: mounting fs with errors, running e2fsck is recommended", source="fs/ext4/super.c:print_daily_error_info",
    ),
    _fs(
        "jbd2.aborted", rf"Aborting journal on device {_JOURNAL}$", "fs_forced_read_only", "Aborting journal on device nvme0n1p2-8.",
        "Aborting journal on device dm-0-8.", source="fs/jbd2/journal.c:jbd2_journal_abort",
    ),
    _fs(
        "jbd2.superblock", rf"JBD2: I/O error (?:detected )?when updating journal superblock for {_JOURNAL}$", "fs_forced_read_only",
        "JBD2: I/O error when updating journal superblock for nvme0n1p2-8.",
        "JBD2: I/O error detected when updating journal superblock for nvme0n1p2-8.", source="fs/jbd2/journal.c:jbd2_write_superblock",
    ),
    _fs(
        "jbd2.data", rf"JBD2: Detected IO errors while flushing file data on {_JOURNAL}$", "fs_error",
        "JBD2: Detected IO errors while flushing file data on nvme1n1p1-8", source="fs/jbd2/commit.c",
    ),
    _fs(
        "xfs.shutdown", rf"{_XFS}{_SHUT}", "fs_forced_read_only",
        "XFS (nvme1n1): Log I/O Error (0x2) detected at xlog_ioend_work+0x80/0xa0 [xfs] (fs/xfs/xfs_log.c:1378).  Shutting down filesystem.",
        "XFS (dm-0): Corruption of in-memory data detected.  Shutting down filesystem",
        "XFS (nvme1n1): Filesystem has been shut down due to log error (0x2).", "XFS (nvme1n1): log I/O error -5",
        "XFS (dm-0): xfs_log_force: error -5 returned.",
        "XFS (dm-3): All device paths lost. Shutting down filesystem", "XFS (nvme1n1): I/O Error Detected. Shutting down filesystem",
        source="fs/xfs/xfs_fsops.c:xfs_do_force_shutdown",
        never=(
            "XFS (nvme1n1): User initiated shutdown received. Shutting down filesystem",
            "XFS (nvme1n1): Unmounting Filesystem 6f0b0d2e-1a2b-4c3d-8e4f-5a6b7c8d9e0f",
        ),
    ),
    _fs(
        "xfs.mount", rf"{_XFS}(?:Failed to read root inode 0x|log mount/recovery failed: error )", "fs_forced_read_only",
        "XFS (nvme1n1): Failed to read root inode 0x80, error 117", "XFS (nvme1n1): log mount/recovery failed: error -117",
        source="fs/xfs/xfs_mount.c",
    ),
    _fs(
        "xfs.error",
        rf"{_XFS}(?:Metadata (?:corruption|CRC error) detected|[Mm]etadata I/O error|Corruption (?:detected|warning)|Corruption Alert: |Failing async write )",
        "fs_error",
        "XFS (nvme1n1): Metadata corruption detected at xfs_inode_buf_verify+0x14d/0x160 [xfs], xfs_inode block 0x1d1c0",
        'XFS (nvme1n1): metadata I/O error in "xfs_btree_read_buf_block.constprop.0+0xa6/0xe0 [xfs]" at daddr 0x1d1c8 len 8 error 5',
        "XFS (nvme1n1): Corruption detected. Unmount and run xfs_repair",
        "XFS (nvme1n1): Corruption Alert: Buffer at daddr 0x1d1c8 had permanent write failures!",
        "XFS (nvme1n1): Failing async write on buffer block 0x1d1c8. Retrying async write.", source="fs/xfs",
    ),
    KernelRule(
        "fs.xfs.memory", r"XFS: .{1,15}\(\d{1,10}\) possible memory allocation deadlock size ", "fs_memory_short", Severity.WARNING,
        ("XFS: kworker/3:1(1234) possible memory allocation deadlock size 65552 in kmem_alloc (mode:0x2400240)",), "xfs",
        source="fs/xfs/kmem.c:kmem_alloc",
    ),
    _btrfs(
        "read_only", r"(?:info|error|critical)", r"forced readonly", "fs_forced_read_only",
        "BTRFS info (device nvme1n1: state EA): forced readonly",
    ),
    _btrfs(
        "aborted", r"error", r"(?:in [\w.]{1,60}:\d{1,6}: errno=|Transaction aborted \(error )", "fs_forced_read_only",
        "BTRFS: error (device nvme1n1: state A) in btrfs_finish_ordered_io:3319: errno=-5 IO failure",
        "BTRFS error (device nvme1n1: state A): Transaction aborted (error -5)",
    ),
    _btrfs(
        "transid", r"error", r"parent transid verify failed on ", "fs_forced_read_only",
        "BTRFS error (device nvme1n1): parent transid verify failed on logical 30408704 mirror 1 wanted 4210 found 4200",
    ),
    _btrfs(
        "fixed", r"error", r"fixed up error at logical ", "fs_needs_check",
        "BTRFS error (device nvme1n1): fixed up error at logical 131072 on dev /dev/nvme2n1 physical 131072",
    ),
    _btrfs(
        "corrected", r"info", r"read error corrected: ino ", "fs_needs_check",
        "BTRFS info (device nvme1n1): read error corrected: ino 257 off 131072 (dev /dev/nvme2n1 sector 81920)",
    ),
    _btrfs(
        "warning", r"warning", r"(?:csum failed root |checksum error at |lost (?:page|super block) write due to IO error|devid \d{1,10} uuid [0-9a-f-]{36} is missing)",
        "fs_error", "BTRFS warning (device nvme1n1): csum failed root 5 ino 257 off 131072 csum 0x8941f998 expected csum 0x63e6f2a1 mirror 1",
        "BTRFS warning (device nvme1n1): lost page write due to IO error on /dev/nvme2n1 (-5)",
        "BTRFS warning (device nvme1n1): devid 2 uuid 6f0b0d2e-1a2b-4c3d-8e4f-5a6b7c8d9e0f is missing",
    ),
    _btrfs(
        "error", r"(?:error|critical)", r"(?:bdev |error writing |unable to fixup |bad |corrupt |checksum |tree |block=|level |csum )",
        "fs_error", "BTRFS error (device nvme1n1): bdev /dev/nvme2n1 errs: wr 12, rd 3, flush 0, corrupt 0, gen 0",
        "BTRFS error (device nvme1n1): error writing primary super block to device 2",
        "BTRFS error (device nvme1n1): unable to fixup (regular) error at logical 131072 on dev /dev/nvme2n1 physical 131072",
        never=("BTRFS info (device nvme1n1): bdev /dev/nvme2n1 errs: wr 0, rd 3, flush 0, corrupt 0, gen 0",),
    ),
))  # fmt: skip
