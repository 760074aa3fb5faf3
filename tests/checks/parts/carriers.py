"""Formats of the kernel with text that a user chooses in them, by source file, for the tests that forge lines.

`{comm}` is a process name (TASK_COMM_LEN: 15 characters), `{ifname}` that of an interface (IFNAMSIZ: 15, without
blanks, colons and slashes), `{path}` a file's name or mount's option (255), `{string}` a string of a USB device (126),
`{group}` a control group's name (255, without slashes).
"""

import re

FIELD_CHARS = {"comm": 15, "ifname": 15, "path": 255, "string": 126, "group": 255}
_NEVER = {"ifname": re.compile(r"[\s:/]"), "path": re.compile(r"\0"), "group": re.compile(r"[/\n]")}
CARRIERS = (
    # At the very start: the dangerous ones.
    "{comm}[4711]: segfault at 0 ip 0000000000401136 sp 00007ffc error 6 in {path}[401000+1000]",  # arch/x86/mm/fault.c
    "{comm}[4711] trap invalid opcode ip:401136 sp:7ffd31d2b4f0 error:0 in {path}[401000+1000]",
    "{comm}[4711] vsyscall attempted with vsyscall=none ip:ffffffffff600000 cs:33",  # arch/x86/entry/vsyscall
    "{comm}[4711] bad frame in rt_sigreturn frame:00000000 ip:401136 sp:7ffd orax:ffffffff in {path}[401000+1000]",
    "{comm}/4711: potentially unexpected fatal signal 11.",  # kernel/signal.c
    "{comm}: page allocation failure: order:4, mode:0x40dc0(GFP_KERNEL), nodemask=(null),cpuset={group},mems_allowed=0",
    "{comm} invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0",  # mm/oom_kill.c
    "{comm} (4711): drop_caches: 3",  # fs/drop_caches.c
    "{comm} (4711) used greatest stack depth: 10512 bytes left",  # kernel/exit.c
    "{comm}(4711): WARNING: {path} is deprecated",
    "{comm} (4711): Attempt to set a LOCK_MAND lock via flock(2). This support has been removed",
    "{comm}:4711 map pfn expected mapping type uncached-minus for [mem 0x0-0xfff], got write-back",  # memtype.c
    "{comm} uses wireless extensions which will stop working for Wi-Fi 7 hardware; use nl80211",
    "{ifname}: renamed from {ifname}",  # net/core/dev.c
    "{ifname}: port 1({ifname}) entered disabled state",  # net/bridge
    "{ifname}: Invalid MTU 9000 requested, hw max 1500",
    # Behind the kernel's own words.
    "overlayfs: failed to resolve '{path}': -2",  # fs/overlayfs/params.c
    "overlayfs: unrecognized mount option \"{path}\" or missing value",
    "overlay: Unknown parameter '{path}'",  # fs/fs_parser.c, of any type that may be mounted in a user namespace
    "tmpfs: Bad value for '{path}'",
    "fuse: Unknown parameter '{path}'",
    "nfs: server {path} not responding, still trying",
    "EXT4-fs (loop0): Unrecognized mount option \"{path}\" or missing value",
    "EXT4-fs error (device loop9): ext4_lookup:1855: inode #131074: comm {comm}: iget: checksum invalid",
    "XFS (loop0): unknown mount option [{path}].",
    "traps: {comm}[4711] general protection fault ip:401136 sp:7ffd31d2b4f0 error:0 in {path}[401000+1000]",
    "INFO: task {comm}:4711 is blocked on a mutex likely owned by task {comm}:4712.",
    "task:{comm}           state:D stack:0     pid:4711  tgid:4711  ppid:1",
    "CPU: 3 PID: 4711 Comm: {comm} Not tainted 6.8.0 #1",
    "Memory cgroup out of memory: Killed process 4711 ({comm}) total-vm:104857600kB, anon-rss:0kB",
    "Out of memory: Killed process 4711 ({comm}) total-vm:104857600kB, anon-rss:0kB",
    "Tasks in /{group} are going to be killed due to memory.oom.group set",
    "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset={group},mems_allowed=0,task={comm},pid=4711,uid=1000",
    "oom_reaper: reaped process 4711 ({comm}), now anon-rss:0kB",
    "audit: type=1400 audit(1.2:3): apparmor=\"DENIED\" operation=\"open\" name=\"{path}\" pid=4711 comm=\"{comm}\"",
    "audit: type=1326 audit(1.2:3): auid=1000 uid=1000 pid=4711 comm=\"{comm}\" exe=\"{path}\" sig=31",
    "warning: `{comm}' uses 32-bit capabilities (legacy support in use)",
    "process '{path}' started with executable stack",  # fs/exec.c
    "process 4711 ({comm}) attempted a POSIX timer syscall while CONFIG_POSIX_TIMERS is not set",
    "device {ifname} entered promiscuous mode",
    "IPv6: ADDRCONF(NETDEV_CHANGE): {ifname}: link becomes ready",
    "dummy: {ifname}: set promiscuous mode",
    "usb 1-1: Product: {string}",
    "usb 1-1: Manufacturer: {string}",
    "input: {string} as /devices/virtual/input/input7",
    "hid-generic 0003:046D:C31C.0001: input,hidraw0: USB HID v1.11 Keyboard [{string}] on usb-0000:00:14.0-1/input0",
    "scsi 6:0:0:0: Direct-Access     {string} PQ: 0 ANSI: 6",
    "nvidia: unknown parameter '{path}' ignored",  # kernel/module/main.c
    "Unknown kernel command line parameters \"{path}\", will be passed to user space.",
    "request_module fs-{path} succeeded, but still no fs?",
    "x86/split lock detection: #AC: {comm}/4711 took a split_lock trap at address: 0x401136",
    "perf: interrupt took too long in {comm}",
    "TCP: request_sock_TCP: Possible SYN flooding on port 80. {comm}",
    "NVRM: Xid (PCI:0000:3b:00): 13, pid=4711, name={comm}, Graphics Exception: ChID 0014",
    "{path}IN= OUT=lo SRC=127.0.0.1 DST=127.0.0.1 LEN=84 TOS=0x00",  # nf_log_syslog: the prefix of a firewall rule
)  # fmt: skip
_FIELD = re.compile(r"\{(\w+)\}")


def forged(carrier: str, wanted: str) -> set[str]:
    """The records that come of putting pieces of the wanted line, as long as they may be, into the carrier's fields.

    The first field takes the line from its beginning; a further one takes it from the beginning, or from any character
    on, so that two fields may give its two ends.
    """
    fields = _FIELD.findall(carrier)
    records = {_filled(carrier, fields, [wanted] * len(fields))}
    if len(fields) > 1:
        records |= {_filled(carrier, fields, [wanted, wanted[at:]]) for at in range(len(wanted))}
    # A newline in the field, and the line behind it.
    return records | {_filled(carrier, fields, [f"x\n{wanted}"] * len(fields))}


def _filled(carrier: str, fields: list[str], texts: list[str]) -> str:
    values = iter([_cut(name, text) for name, text in zip(fields, texts, strict=True)])
    return _FIELD.sub(lambda _: next(values), carrier)


def _cut(field: str, text: str) -> str:
    if field in _NEVER:
        text = _NEVER[field].sub("_", text)
    return text[: FIELD_CHARS[field]] or "x"
