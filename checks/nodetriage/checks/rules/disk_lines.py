"""What the kernel says of disks and file systems that fail.

Source: block/blk-core.c, drivers/nvme/host, drivers/md, fs/ext4, fs/xfs, fs/btrfs, fs/nfs, net/ceph, Lustre.
"""

from nodetriage.checks.rules.kernel_lines import rule

_DEVICE = r"([\w-]{1,32})"
_XFS_SHUTS_DOWN = (
    r"(?:Corruption of in-memory data|Metadata I/O Error|Log I/O [Ee]rror|I/O Error Detected|Block device removal"
    r"|All device paths lost|User initiated shutdown received)[^\n]{0,200}Shutting down filesystem"
    r"|Filesystem has been shut down due to "
)
RULES = (
    rule(
        "fs_read_only", rf"EXT4-fs \({_DEVICE}\): Remounting filesystem read-only", r"\1",
        "EXT4-fs (nvme0n1p2): Remounting filesystem read-only",
    ),
    rule(
        "fs_read_only", rf"XFS \({_DEVICE}\): (?:{_XFS_SHUTS_DOWN})", r"\1",
        "XFS (nvme1n1): Log I/O Error (0x2) detected at xlog_ioend_work+0x80/0xa0 [xfs].  Shutting down filesystem.",
        "XFS (dm-0): Corruption of in-memory data detected.  Shutting down filesystem",
        "XFS (nvme1n1): Filesystem has been shut down due to log error (0x2).",
    ),
    rule(
        "fs_read_only", rf"BTRFS (?:info|error|critical) \(device {_DEVICE}(?::? state \w{{1,8}})?\): forced readonly",
        r"\1", "BTRFS info (device nvme1n1: state EA): forced readonly",
    ),
    rule(
        "fs_error", rf"EXT4-fs (?:error|critical) \(device {_DEVICE}\)", r"\1",
        "EXT4-fs error (device sda2): ext4_lookup:1855: inode #131074: comm python3: iget: checksum invalid",
    ),
    rule(
        "fs_error", r"Aborting journal on device ([\w-]{1,32}?)(?:-\d+)?\.$", r"\1",
        "Aborting journal on device nvme0n1p2-8.",
    ),
    rule(
        "fs_error",
        rf"XFS \({_DEVICE}\): (?:Corruption|[Mm]etadata (?:corruption|CRC error|I/O error)|[Ll]og I/O error)", r"\1",
        "XFS (nvme1n1): Metadata corruption detected at xfs_inode_buf_verify+0x14d/0x160 [xfs], xfs_inode block 0x1",
        "XFS (nvme1n1): log I/O error -5",
    ),
    rule(
        "fs_error", rf"BTRFS:? (?:error|critical) \(device {_DEVICE}", r"\1",
        "BTRFS error (device nvme1n1): bdev /dev/nvme2n1 errs: wr 12, rd 3, flush 0, corrupt 0, gen 0",
    ),
    rule(
        "disk_lost", r"nvme (nvme\d+): (?:Removing after probe failure|Disabling device after reset failure)", r"\1",
        "nvme nvme1: Disabling device after reset failure: -19", "nvme nvme1: Removing after probe failure status: -19",
    ),
    rule(
        "disk_lost", rf"md/\w{{4,8}}:\w{{1,32}}: Disk failure on {_DEVICE}, disabling device", r"\1",
        "md/raid1:md0: Disk failure on nvme1n1p2, disabling device.\nmd/raid1:md0: Operation continuing on 1 devices.",
    ),
    rule(
        "disk_reset",
        r"nvme (nvme\d+): (?:controller is down; will reset"
        r"|I/O (?:tag )?\d+ [\w()/ ]{0,80}QID \d+ timeout, (?:reset|disable))",
        r"\1",
        "nvme nvme1: controller is down; will reset: CSTS=0x3, PCI_STATUS=0x10",
        "nvme nvme1: I/O 23 QID 5 timeout, reset controller",
        "nvme nvme1: I/O tag 23 (1017) opcode 0x2 (I/O Cmd) QID 5 timeout, reset controller",
    ),
    rule(
        "io_error",
        r"(?:(?:blk_update_request|print_req_error|end_request): )?"
        rf"(?:I/O|critical (?:medium|target|nexus)|protection) error, dev {_DEVICE}, sector \d",
        r"\1",
        "I/O error, dev nvme1n1, sector 2056 op 0x1:(WRITE) flags 0x103000 phys_seg 8 prio class 2",
        "blk_update_request: critical medium error, dev sda, sector 4096 op 0x0:(READ)",
    ),
    rule(
        "io_error", rf"Buffer I/O error on dev(?:ice)? {_DEVICE}, logical block", r"\1",
        "Buffer I/O error on dev dm-0, logical block 0, async page read",
    ),
)  # fmt: skip

# A server that is away and a disk that fails change no mount: the kernel only says so.
MOUNT_FAILS = (
    r"nfs: server [\w.:%-]{1,255} not responding"
    r"|Lustre: (?:[\w:.()-]{1,80} )?[\w.@:-]{4,120}: [Cc]onnection to \S+ (?:\(at \S+\) )?was lost"
    r"|libceph: (?:mon|osd|mds)\d+ (?:\(\d\))?[0-9a-f.:\[\]]{7,60} session lost"
    r"|EXT4-fs \([\w-]{1,32}\): Remounting filesystem read-only"
    rf"|XFS \([\w-]{{1,32}}\): (?:{_XFS_SHUTS_DOWN}|log I/O error -\d+: Filesystem has been shut down)"
    r"|BTRFS info \(device [\w-]{1,32}(?::? state \w{1,8})?\): forced readonly"
)
