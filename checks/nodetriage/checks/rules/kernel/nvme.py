"""NVMe controllers and their namespaces: timeouts, resets, controllers that stay down, errors that the disk reports.

Source: drivers/nvme/host/{core,pci,multipath,fabrics}.c. Where a timeout only aborted a command the disk goes on; where
the reset that follows fails, the kernel drops the disk. Status codes: NVM Express base specification, figure "Status Code".
"""

from nodetriage.checks.model import Severity
from nodetriage.checks.model.kernel_rules import KernelRule, KernelRules

_CORE = "drivers/nvme/host/core.c"
_PCI = "drivers/nvme/host/pci.c"
_IO = r"I/O (?:tag )?\d{1,6} (?:\([^)\n]{1,40}\) )?(?:opcode 0x[0-9a-f]{1,2} (?:\([^)\n]{1,40}\) )?)?QID \d{1,5} timeout, "
# A kernel without CONFIG_NVME_VERBOSE_ERRORS names no command: these are the codes of reads, writes and flushes.
_COMMAND = r"(?P<command>(?:Read|Write|Flush|Write Zeroes|Compare)\(0x[0-9a-f]{1,2}\)|I/O Cmd\(0x[01258]\))"


def _nvme(
    name: str,
    text: str,
    fault: str,
    severity: Severity,
    source: str,
    *examples: str,
    state: str = "event",
    versions: str = "all",
) -> KernelRule:
    return KernelRule(
        f"nvme.{name}",
        text,
        fault,
        severity,
        tuple(f"nvme nvme1: {e}" for e in examples),
        r"\g<device>",
        prefix="nvme",
        state=state,
        source=source,
        versions=versions,
    )


RULES = KernelRules((
    _nvme(
        "gone", r"controller is down; will reset: CSTS=0xffffffff", "disk_lost", Severity.CRITICAL, f"{_PCI}:nvme_warn_reset",
        "controller is down; will reset: CSTS=0xffffffff, PCI_STATUS read failed (134)", state="lasting",
    ),
    _nvme(
        "down", r"controller is down; will reset: CSTS=0x(?!ffffffff)", "disk_reset", Severity.MAJOR, f"{_PCI}:nvme_warn_reset",
        "controller is down; will reset: CSTS=0x3, PCI_STATUS=0x10",
    ),
    _nvme(
        "timeout.reset", rf"{_IO}reset controller", "disk_reset", Severity.MAJOR, f"{_PCI}:nvme_timeout",
        "I/O 23 QID 5 timeout, reset controller", "I/O tag 23 (1017) opcode 0x2 (I/O Cmd) QID 5 timeout, reset controller",
        "I/O 832 (I/O Cmd) QID 12 timeout, reset controller",
    ),
    _nvme(
        "timeout.disable", rf"{_IO}disable controller", "disk_lost", Severity.CRITICAL, f"{_PCI}:nvme_timeout",
        "I/O tag 9 (3009) QID 0 timeout, disable controller", "I/O 9 QID 0 timeout, disable controller", state="lasting",
    ),
    _nvme(
        "timeout.abort", rf"{_IO}aborting", "disk_command_timeout", Severity.WARNING, f"{_PCI}:nvme_timeout",
        "I/O 23 QID 5 timeout, aborting",
        "I/O tag 23 (1017) opcode 0x1 (I/O Cmd) QID 5 timeout, aborting req_op:WRITE(1) size:131072",
    ),
    _nvme(
        "timeout.polled", rf"{_IO}completion polled", "disk_command_timeout", Severity.WARNING, f"{_PCI}:nvme_timeout",
        "I/O tag 23 (1017) QID 5 timeout, completion polled", "I/O 23 QID 5 timeout, completion polled", state="recovered",
    ),
    _nvme(
        "removed", r"(?:Removing after probe failure|Disabling device after reset failure)", "disk_lost", Severity.CRITICAL,
        f"{_PCI}:nvme_reset_work", "Removing after probe failure status: -19", "Disabling device after reset failure: -19",
        state="lasting",
    ),
    _nvme(
        "queues", r"(?:IO queues lost|IO queues not created)", "disk_lost", Severity.CRITICAL, f"{_PCI}:nvme_reset_work",
        "IO queues lost", "IO queues not created", state="lasting",
    ),
    _nvme(
        "not_ready", r"Device not ready; aborting (?:reset|initialisation)", "disk_lost", Severity.CRITICAL,
        f"{_CORE}:nvme_wait_ready", "Device not ready; aborting reset, CSTS=0x1", "Device not ready; aborting initialisation, CSTS=0x0",
        state="lasting",
    ),
    _nvme(
        "identify", r"Identify Controller failed \(", "disk_lost", Severity.CRITICAL, f"{_CORE}:nvme_init_identify",
        "Identify Controller failed (-4)", state="lasting",
    ),
    _nvme(
        "shutdown", r"Device shutdown incomplete; abort shutdown", "disk_command_timeout", Severity.WARNING,
        f"{_CORE}:nvme_disable_ctrl", "Device shutdown incomplete; abort shutdown",
    ),
    _nvme(
        "pcie.frozen", r"frozen state error detected, reset controller", "disk_reset", Severity.MAJOR, f"{_PCI}:nvme_error_detected",
        "frozen state error detected, reset controller",
    ),
    _nvme(
        "pcie.failed", r"failure state error detected, request disconnect", "disk_lost", Severity.CRITICAL,
        f"{_PCI}:nvme_error_detected", "failure state error detected, request disconnect", state="lasting",
    ),
    _nvme(
        "persistent", r"resetting controller due to (?:persistent internal error|AER)", "disk_reset", Severity.MAJOR,
        f"{_CORE}:nvme_handle_aer_persistent_error", "resetting controller due to persistent internal error",
        "resetting controller due to AER",
    ),
    _nvme(
        "keep_alive", r"keep-alive failed: ", "disk_command_timeout", Severity.WARNING, f"{_CORE}:nvme_keep_alive_end_io",
        "keep-alive failed: -5",
    ),
    _nvme(
        "fabrics", r"starting error recovery", "disk_command_timeout", Severity.WARNING, "drivers/nvme/host/{rdma,tcp}.c",
        "starting error recovery",
    ),
    _nvme(
        "fabrics.lost", r"Removing controller\.\.\.", "disk_lost", Severity.CRITICAL,
        "drivers/nvme/host/{rdma,tcp}.c:reconnect_or_remove", "Removing controller...", state="lasting",
    ),
    _nvme(
        "duplicate", r"ignoring nsid \d{1,10} because of duplicate IDs", "disk_identity", Severity.WARNING,
        f"{_CORE}:nvme_alloc_ns", "ignoring nsid 1 because of duplicate IDs", state="lasting",
    ),
    KernelRule(
        "nvme.mpath", r"block (?P<device>nvme\d{1,4}n\d{1,4}): no available path - failing I/O", "disk_lost", Severity.CRITICAL,
        ("block nvme4n1: no available path - failing I/O",), r"\g<device>", state="lasting",
        source="drivers/nvme/host/multipath.c:nvme_ns_head_submit_bio",
        never=("block nvme4n1: no usable path - requeuing I/O",),
    ),
    KernelRule(
        "nvme.error.path",
        rf"nvme(?P<number>\d{{1,4}}(?:c\d{{1,4}})?n\d{{1,4}}): {_COMMAND}"
        r"(?: @ LBA \d{1,20}, \d{1,10} blocks)?, [^\n]{1,60}\(sct 0x3 / sc 0x[0-9a-f]{1,2}\)",
        "disk_command_timeout", Severity.WARNING,
        (
            "nvme1n1: Read(0x2) @ LBA 81920, 256 blocks, Host Aborted Command (sct 0x3 / sc 0x71) ",
            "nvme1n1: I/O Cmd(0x2) @ LBA 81920, 200 blocks, I/O Error (sct 0x3 / sc 0x71) ",
        ), r"nvme\g<number>",
        source=f"{_CORE}:nvme_log_error",
    ),
    KernelRule(
        "nvme.error.io",
        rf"nvme(?P<number>\d{{1,4}}(?:c\d{{1,4}})?n\d{{1,4}}): {_COMMAND}"
        r"(?: @ LBA \d{1,20}, \d{1,10} blocks)?, (?P<status>[^\n]{1,60})\((?:sct 0x2 / sc 0x(?!82|85)[0-9a-f]{1,2}"
        r"|sct 0x0 / sc 0x(?:4|6))\)",
        "disk_io_error", Severity.MAJOR,
        (
            "nvme1n1: Read(0x2) @ LBA 2056, 8 blocks, Unrecovered Read Error (sct 0x2 / sc 0x81) DNR",
            "nvme1n1: Write(0x1) @ LBA 81920, 256 blocks, Write Fault (sct 0x2 / sc 0x80) ",
            "nvme1n1: Read(0x2) @ LBA 81920, 256 blocks, Internal Error (sct 0x0 / sc 0x6) ",
            "nvme1n1: I/O Cmd(0x2) @ LBA 2056, 8 blocks, I/O Error (sct 0x2 / sc 0x81) DNR",
        ),
        r"nvme\g<number>", source=f"{_CORE}:nvme_log_error",
        never=(
            "nvme1n1: Dataset Management(0x9) @ LBA 0, 0 blocks, Invalid Field in Command (sct 0x0 / sc 0x2) DNR",
            "nvme1n1: I/O Cmd(0x9) @ LBA 0, 0 blocks, I/O Error (sct 0x2 / sc 0x80) DNR",
            "nvme1: Get Log Page(0x2), Invalid Field in Command (sct 0x0 / sc 0x2) DNR",
        ),
    ),
))  # fmt: skip
