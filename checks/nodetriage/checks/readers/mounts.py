"""The mount table of process 1, /proc/1/mountinfo (proc_pid_mountinfo(5)), and /etc/fstab (fstab(5)), as values."""

import re
from dataclasses import dataclass

from nodetriage.checks.model import Host

# File systems with no device or server behind them.
_PSEUDO = frozenset({
    "autofs", "binfmt_misc", "bpf", "cgroup", "cgroup2", "configfs", "debugfs", "devpts", "devtmpfs", "efivarfs",
    "fusectl", "hugetlbfs", "mqueue", "nsfs", "overlay", "proc", "pstore", "ramfs", "resctrl", "rpc_pipefs",
    "securityfs", "selinuxfs", "sysfs", "tmpfs", "tracefs",
})  # fmt: skip
_LOCAL = frozenset(("ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "zfs", "jfs", "vfat", "tmpfs"))
_BORN_READ_ONLY = frozenset(("squashfs", "erofs", "iso9660", "cramfs", "romfs"))
INIT_ROOT = "/proc/1/root"
_OCTAL = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class Mount:
    """One line of mountinfo. Of several mounts on one point it is the last, which hides the others."""

    point: str
    fstype: str
    source: str
    mount_read_only: bool  # this mount alone
    super_read_only: bool  # the whole file system
    emergency: bool  # the kernel made it read-only after an error
    device: str = ""  # major:minor; one file system may be mounted at several points
    by_user: bool = False  # a user other than root mounted it, with FUSE
    automounted: bool = False  # mounted on or below an autofs trigger
    error: str = ""  # the errno name with which statvfs(2) failed

    @property
    def real(self) -> bool:
        """Whether there is a disk or a server behind it, and no program of a user."""
        return self.fstype not in _PSEUDO and not self.by_user

    @property
    def local(self) -> bool:
        """Whether its space is on the disks or in the memory of this node."""
        return self.fstype in _LOCAL

    @property
    def read_only(self) -> bool:
        return (self.mount_read_only or self.super_read_only) and self.fstype not in _BORN_READ_ONLY


@dataclass(frozen=True, slots=True)
class Fstab:
    """One line of fstab(5)."""

    source: str
    point: str
    fstype: str
    options: tuple[str, ...]

    @property
    def wanted(self) -> bool:
        """Whether it should be mounted once the node is up."""
        return self.point.startswith("/") and self.fstype != "swap" and "noauto" not in self.options


def read_mounts(host: Host) -> tuple[Mount, ...]:
    """Raises ValueError for a line of another form: half a mount table must not look like a whole one."""
    try:
        text = host.text("/proc/1/mountinfo")
    except PermissionError:  # not root: only our own namespace can be read
        text = host.text("/proc/self/mountinfo")
    mounts = [_mount(line) for line in text.split("\n")]  # the name of a mount point may contain other line ends
    triggers = [m.point for m in mounts if m.fstype == "autofs"]
    top = {m.point: m for m in mounts if m.fstype != "autofs"}
    bare = {m.point: m for m in mounts if m.fstype == "autofs" and m.point not in top}
    return tuple(
        Mount(
            m.point, m.fstype, m.source, m.mount_read_only, m.super_read_only, m.emergency, m.device,
            m.by_user, automounted=any(m.point == t or m.point.startswith(f"{t.rstrip('/')}/") for t in triggers),
        )
        for m in (*top.values(), *bare.values())
    )  # fmt: skip


def _mount(line: str) -> Mount:
    left, dash, right = line.partition(" - ")
    fields, rest = left.split(" "), right.split(" ")
    if not dash or len(fields) < 6 or len(rest) < 3:
        raise ValueError(f"/proc/1/mountinfo: expected a line as proc_pid_mountinfo(5) describes, got {line[:80]!r}")
    options, super_options = fields[5].split(","), rest[2].split(",")
    return Mount(
        point=_plain(fields[4]),
        fstype=rest[0],
        source=_plain(rest[1]),
        mount_read_only="ro" in options,
        super_read_only="ro" in super_options,
        emergency="emergency_ro" in super_options,
        device=fields[2],
        by_user=any(o.startswith("user_id=") and o != "user_id=0" for o in super_options),
    )


def root_of_init(host: Host) -> str:
    """What to put before a mount point of `read_mounts` to reach it: "" or "/proc/1/root" (proc_pid_root(5)).

    In a mount namespace of its own (a hardened unit, a container) the agent may lack a mount, or have another there.
    """
    try:
        theirs, ours = (host.link(f"/proc/{pid}/ns/mnt").name for pid in ("1", "self"))
    except OSError:
        return ""  # not root, or a recorded tree
    return "" if theirs == ours else INIT_ROOT


def read_fstab(host: Host) -> tuple[Fstab, ...]:
    """The entries of /etc/fstab; like mount(8), without lines that are none. Empty where there is no such file."""
    if not host.exists("/etc/fstab"):
        return ()
    found = []
    for line in host.text("/etc/fstab").splitlines():
        fields = line.split()
        if len(fields) >= 3 and not fields[0].startswith("#"):
            options = tuple(fields[3].split(",")) if len(fields) > 3 else ()
            found.append(Fstab(_plain(fields[0]), _plain(fields[1]).rstrip("/") or "/", fields[2], options))
    return tuple(found)


def on_autofs(point: str, mounts: tuple[Mount, ...]) -> bool:
    """Whether the point is, or lies below, an autofs trigger, which mounts it when somebody uses it."""
    return any(
        m.fstype == "autofs" and (m.point == point or point.startswith(f"{m.point.rstrip('/')}/")) for m in mounts
    )


def _plain(word: str) -> str:
    """Undoes the octal escapes for white space and backslash."""
    return _OCTAL.sub(lambda m: chr(int(m[1], 8)), word)
