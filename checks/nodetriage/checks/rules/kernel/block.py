"""The block layer, SCSI disks and their controllers, ATA: errors, timeouts, disks that are taken offline.

Source: block/blk-core.c (blk_errors, blk_print_req_error), block/bio.c, fs/buffer.c, drivers/scsi, drivers/ata/libata-*.c.
Status and operation of a block error decide together: a disk that refuses a discard, and a disk that another host has
reserved, are well. The prefix of the function (blk_update_request, print_req_error) is there up to 5.15.
"""

from nodetriage.checks.model import Severity
from nodetriage.checks.model.kernel_rules import KernelRule, KernelRules

_CORE = "block/blk-core.c:blk_print_req_error"
_DISK = r"(?P<device>[\w-]{1,32})"
_USED = r"(?: op 0x[0-9a-f]{1,3}:\((?P<operation>READ|WRITE|FLUSH|WRITE_SAME|ZONE_APPEND)\)| flags |$)"


def _block(
    name: str, status: str, severity: Severity, *examples: str, state: str = "event", never: tuple[str, ...] = ()
) -> KernelRule:
    fault = "disk_lost" if severity is Severity.CRITICAL else "disk_io_error"
    return KernelRule(
        f"block.{name}",
        rf"{status} error, dev {_DISK}, sector \d{{1,20}}{_USED}",
        fault,
        severity,
        examples,
        r"\g<device>",
        prefix="block",
        state=state,
        source=_CORE,
        never=never,
    )


def _scsi(
    name: str,
    text: str,
    fault: str,
    severity: Severity,
    source: str,
    *examples: str,
    state: str = "event",
    never: tuple[str, ...] = (),
) -> KernelRule:
    return KernelRule(
        f"scsi.{name}",
        text,
        fault,
        severity,
        examples,
        r"scsi \g<host> \g<device>",
        prefix="scsi",
        state=state,
        source=source,
        never=never,
    )


def _ata(
    name: str, text: str, fault: str, severity: Severity, source: str, *examples: str, state: str = "event"
) -> KernelRule:
    return KernelRule(
        f"ata.{name}",
        text,
        fault,
        severity,
        examples,
        r"\g<device>",
        prefix="ata",
        state=state,
        source=f"drivers/ata/{source}",
    )


def _controller(
    name: str, text: str, source: str, *examples: str, prefix: str = "pci", component: str = r"\g<device>"
) -> KernelRule:
    return KernelRule(
        f"scsi.{name}",
        text,
        "storage_controller_failed",
        Severity.CRITICAL,
        examples,
        component,
        prefix=prefix,
        state="lasting",
        source=source,
    )


RULES = KernelRules((
    _block(
        "io", "I/O", Severity.MAJOR, "I/O error, dev nvme1n1, sector 2056 op 0x1:(WRITE) flags 0x103000 phys_seg 8 prio class 2",
        "I/O error, dev sda, sector 0 op 0x2:(FLUSH) flags 0x800 phys_seg 0 prio class 2",
        "blk_update_request: I/O error, dev sda, sector 4096 op 0x0:(READ) flags 0x0", "print_req_error: I/O error, dev sda, sector 8",
        never=("I/O error, dev nvme1n1, sector 2056 op 0x3:(DISCARD) flags 0x800 phys_seg 1 prio class 2",),
    ),
    _block(
        "medium", "critical medium", Severity.MAJOR,
        "critical medium error, dev sda, sector 1953523968 op 0x0:(READ) flags 0x80700 phys_seg 1 prio class 2",
        "blk_update_request: critical medium error, dev sda, sector 4096 op 0x0:(READ)",
    ),
    _block(
        "target", "critical target", Severity.MAJOR,
        "critical target error, dev sda, sector 81920 op 0x1:(WRITE) flags 0x8800 phys_seg 1 prio class 2",
        never=(
            "critical target error, dev nvme1n1, sector 0 op 0x3:(DISCARD) flags 0x800 phys_seg 1 prio class 2",
            "blk_update_request: critical target error, dev sda, sector 2048 op 0x9:(WRITE_ZEROES) flags 0x0 phys_seg 0",
            "critical nexus error, dev sdc, sector 0 op 0x1:(WRITE) flags 0x800 phys_seg 1 prio class 0",
        ),
    ),
    _block(
        "timeout", "timeout", Severity.MAJOR, "timeout error, dev sda, sector 81920 op 0x1:(WRITE) flags 0x8800 phys_seg 1 prio class 2",
        never=("nonblocking retry error, dev nvme1n1, sector 2056 op 0x1:(WRITE) flags 0x200800 phys_seg 1 prio class 2",),
    ),
    _block(
        "offline", "device offline", Severity.CRITICAL,
        "device offline error, dev sda, sector 81920 op 0x1:(WRITE) flags 0x8800 phys_seg 1 prio class 2", state="lasting",
    ),
    _block(
        "protection", "protection", Severity.MAJOR,
        "protection error, dev nvme1n1, sector 2056 op 0x0:(READ) flags 0x0 phys_seg 1 prio class 2",
    ),
    _block(
        "space", "critical space allocation", Severity.MAJOR,
        "critical space allocation error, dev dm-7, sector 81920 op 0x1:(WRITE) flags 0x8800 phys_seg 1 prio class 2", state="lasting",
    ),
    KernelRule(
        "block.buffer", rf"Buffer I/O error on dev(?:ice)? {_DISK}, logical block \d{{1,20}}", "disk_io_error", Severity.MAJOR,
        (
            "Buffer I/O error on dev dm-0, logical block 0, async page read",
            "Buffer I/O error on device nvme1n1p1, logical block 5296128",
        ),
        r"\g<device>", source="fs/buffer.c:buffer_io_error",
    ),
    KernelRule(
        "block.gone", r"detected capacity change from \d{1,20} to 0$",
        "disk_lost", Severity.CRITICAL, ("nvme1n1: detected capacity change from 7501476528 to 0",), r"\g<device>",
        prefix="disk", state="lasting", source="block/genhd.c:set_capacity_and_notify",
        never=("loop3: detected capacity change from 0 to 130488", "loop3: detected capacity change from 130488 to 0"),
    ),
    KernelRule(
        "block.guard", r"(?:guard|ref|app) tag error at sector \d{1,20}",
        "disk_io_error", Severity.MAJOR,
        ("nvme1n1: guard tag error at sector 2056 (rcvd 0000, want 8f31)", "sda: ref tag error at sector 2056 (rcvd 1)"),
        r"\g<device>", prefix="disk", source="block/t10-pi.c",
    ),
    _scsi(
        "gone", r"tag#\d{1,6} FAILED Result: hostbyte=(?:DID_NO_CONNECT|DID_BAD_TARGET)", "disk_lost", Severity.CRITICAL,
        "drivers/scsi/scsi_logging.c:scsi_print_result",
        "sd 0:2:0:0: [sda] tag#94 FAILED Result: hostbyte=DID_NO_CONNECT driverbyte=DRIVER_OK cmd_age=30s", state="lasting",
    ),
    _scsi(
        "timed_out", r"tag#\d{1,6} FAILED Result: hostbyte=DID_TIME_OUT", "disk_reset", Severity.MAJOR,
        "drivers/scsi/scsi_logging.c:scsi_print_result",
        "sd 0:2:0:0: [sda] tag#94 FAILED Result: hostbyte=DID_TIME_OUT driverbyte=DRIVER_OK cmd_age=30s",
    ),
    _scsi(
        "sense", r"tag#\d{1,6} Sense Key : (?:Medium|Hardware) Error \[current\]", "disk_io_error", Severity.MAJOR,
        "drivers/scsi/scsi_logging.c:scsi_log_print_sense", "sd 0:2:0:0: [sda] tag#94 Sense Key : Hardware Error [current] ",
        never=(
            "sd 0:2:0:0: [sda] tag#94 Sense Key : Illegal Request [current] ",
            "sd 0:2:0:0: [sda] tag#94 FAILED Result: hostbyte=DID_OK driverbyte=DRIVER_OK cmd_age=2s",
        ),
    ),
    _scsi(
        "offlined", r"(?:Device offlined - not ready after error recovery|rejecting I/O to (?:offline|dead) device)", "disk_lost",
        Severity.CRITICAL, "drivers/scsi/{scsi_error,scsi_lib}.c", "sd 0:2:0:0: Device offlined - not ready after error recovery",
        "sd 0:2:0:0: rejecting I/O to offline device", "sd 0:2:0:0: [sda] rejecting I/O to dead device", state="lasting",
    ),
    _scsi(
        "medium_timeout", r"(?:tag#\d{1,6} )?Medium access timeout failure\. Offlining disk!", "disk_lost", Severity.CRITICAL,
        "drivers/scsi/sd.c:sd_eh_action", "sd 0:2:0:0: [sda] tag#94 Medium access timeout failure. Offlining disk!", state="lasting",
    ),
    _scsi(
        "timing_out", r"(?:tag#\d{1,6} )?timing out command, waited \d{1,6}s", "disk_command_timeout", Severity.MAJOR,
        "drivers/scsi/scsi_lib.c:scsi_complete", "sd 0:2:0:0: [sda] tag#94 timing out command, waited 180s",
    ),
    _scsi(
        "abort", r"attempting task abort! ?scmd\(", "disk_command_timeout", Severity.WARNING,
        "drivers/scsi/mpt3sas/mpt3sas_scsih.c:scsih_abort",
        "sd 0:0:1:0: attempting task abort!scmd(0x00000000b2a0fdf4), outstanding for 30708 ms & timeout 30000 ms",
        "sd 0:0:1:0: [sdc] attempting task abort! scmd(ffff880204baee80)",
        never=("sd 0:0:1:0: task abort: SUCCESS scmd(0x00000000b2a0fdf4)",),
    ),
    _scsi(
        "device_reset", r"attempting (?:device|target|host) reset! ?scmd\(", "disk_reset", Severity.MAJOR,
        "drivers/scsi/mpt3sas/mpt3sas_scsih.c:scsih_dev_reset", "sd 0:0:1:0: attempting device reset! scmd(0x00000000b2a0fdf4)",
    ),
    _scsi(
        "megasas_reset", r"megasas: RESET cmd=[0-9a-f]{1,2} retries=", "disk_command_timeout", Severity.WARNING,
        "drivers/scsi/megaraid/megaraid_sas_base.c:megasas_generic_reset", "sd 2:2:3:0: [sdd] megasas: RESET cmd=28 retries=0",
    ),
    # Up to 3.x these name the adapter instead of the disk.
    KernelRule(
        "scsi.abort.adapter", r"(?P<adapter>mpt[23]sas\d{1,3}|mptscsih: ioc\d{1,3}): attempting (?:task abort|device reset|target reset)! \(?sc",
        "disk_command_timeout", Severity.WARNING,
        (
            "mpt2sas3: attempting task abort! scmd(ffff8814605d2100)", "mptscsih: ioc1: attempting task abort! (sc=ffff88061db32a00)",
        ),
        r"\g<adapter>", source="drivers/scsi/mpt2sas, drivers/message/fusion/mptscsih.c",
        never=("mptscsih: ioc1: task abort: SUCCESS (rv=2002) (sc=ffff88061db32a00)",),
    ),
    _scsi(
        "removable", r"Attached SCSI removable disk", "", Severity.INFO, "drivers/scsi/sd.c:sd_probe",
        "sd 6:0:0:0: [sdb] Attached SCSI removable disk", state="info",
    ),
    _controller(
        "megaraid.fault", r"(?:FW in FAULT state|Found FW in FAULT state)", "drivers/scsi/megaraid",
        "megaraid_sas 0000:31:00.0: FW in FAULT state Fault code:0x10000 subcode:0x0 func:megasas_wait_for_outstanding_fusion",
    ),
    _controller(
        "megaraid.killed", r"Reset failed, killing adapter scsi\d{1,5}\.", "drivers/scsi/megaraid/megaraid_sas_fusion.c",
        "megaraid_sas 0000:31:00.0: Reset failed, killing adapter scsi0.",
    ),
    _controller(
        "pqi.offline", r"controller offline(?:: reason code 0x[0-9a-f]{1,8}|$)", "drivers/scsi/smartpqi/smartpqi_init.c",
        "smartpqi 0000:5b:00.0: controller offline: reason code 0x6100 (controller firmware not running)",
        "smartpqi 0000:5b:00.0: controller offline",
    ),
    _controller(
        "mpt", r"mpt(?P<generation>[23])sas_cm(?P<number>\d{1,3}): (?:fault_state\(0x[0-9a-f]{4}\)!|_base_fault_reset_work: Running mpt3sas_dead_ioc thread success)",
        "drivers/scsi/mpt3sas/mpt3sas_base.c", "mpt3sas_cm0: fault_state(0x5854)!",
        "mpt3sas_cm0: _base_fault_reset_work: Running mpt3sas_dead_ioc thread success !!!!", prefix="",
        component=r"mpt\g<generation>sas_cm\g<number>",
    ),
    _ata(
        "give_up", r"reset failed, giving up", "disk_lost", Severity.CRITICAL, "libata-eh.c:ata_eh_reset",
        "ata1: reset failed, giving up", state="lasting",
    ),
    KernelRule(
        "ata.disabled", r"ata(?P<number>\d{1,3}\.\d\d): (?:disable device|disabled)$", "disk_lost", Severity.CRITICAL,
        ("ata1.00: disable device", "ata10.00: disabled"), r"ata\g<number>", state="lasting",
        source="drivers/ata/libata-eh.c:ata_dev_disable",
    ),
    _ata(
        "identify", r"failed to IDENTIFY \(", "disk_reset", Severity.MAJOR, "libata-core.c:ata_dev_read_id",
        "ata1.00: failed to IDENTIFY (I/O error, err_mask=0x4)",
    ),
    _ata(
        "revalidate", r"revalidation failed \(errno=", "disk_reset", Severity.MAJOR, "libata-core.c:ata_dev_revalidate",
        "ata1.00: revalidation failed (errno=-5)",
    ),
    _ata(
        "exception", r"exception Emask 0x[0-9a-f]{1,5} SAct 0x", "disk_command_timeout", Severity.WARNING, "libata-eh.c:ata_eh_link_report",
        "ata1.00: exception Emask 0x0 SAct 0x20000 SErr 0x0 action 0x6 frozen",
    ),
    _ata(
        "command", r"failed command: [A-Z]", "disk_command_timeout", Severity.WARNING, "libata-eh.c:ata_eh_link_report",
        "ata1.00: failed command: READ FPDMA QUEUED",
    ),
    _ata(
        "hard_reset", r"hard resetting link", "disk_command_timeout", Severity.WARNING, "libata-eh.c:ata_eh_reset",
        "ata1: hard resetting link",
    ),
    _ata(
        "timeout", r"qc timeout (?:after \d{1,7} msecs )?\(cmd 0x", "disk_command_timeout", Severity.WARNING,
        "libata-core.c:ata_exec_internal", "ata1.00: qc timeout after 5000 msecs (cmd 0xec)", "ata1.00: qc timeout (cmd 0xec)",
    ),
    _ata(
        "slower", r"limiting SATA link speed to [\w.]{1,12}", "disk_command_timeout", Severity.WARNING, "libata-eh.c:sata_down_spd_limit",
        "ata1: limiting SATA link speed to 3.0 Gbps", state="lasting",
    ),
    _ata(
        "no_ncq", r"NCQ disabled due to excessive errors", "disk_command_timeout", Severity.WARNING, "libata-eh.c:ata_eh_speed_down",
        "ata1.00: NCQ disabled due to excessive errors", state="lasting",
    ),
))  # fmt: skip
