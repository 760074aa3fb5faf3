"""What the kernel's log says of disks, RAID sets and file systems: whose fault it is, and what it is worth."""

from pathlib import Path

import pytest

from nodetriage.agent.machine.host import Host
from nodetriage.checks.model import Check, Confidence, Finding, KernelRecord, Severity
from nodetriage.checks.rules.kernel_log import TEXT_LIMIT, Log
from nodetriage.checks.storage import disk_errors, fs_errors

TREE = Path(__file__).parents[2] / "hosts/cpu-only"  # which does not say what block devices there are
DISK, FS = disk_errors.CHECK, fs_errors.CHECK


def looked(check: Check, folder: Path, *lines: str) -> Log:
    records = tuple(KernelRecord(i, -1, 3, line) for i, line in enumerate(lines))
    return check.read(Host(folder).for_check(check, records))


def findings(check: Check, *lines: str, folder: Path = TREE, before: Log | None = None) -> list[Finding]:
    return list(check.judge(looked(check, folder, *lines), before, check.policy))


def found(check: Check, *lines: str, folder: Path = TREE) -> list[tuple[str, str, str]]:
    return [(f.component, f.fault, f.severity.name) for f in findings(check, *lines, folder=folder)]


def machine(folder: Path, *disks: str, **nvme: str) -> Path:
    """A machine with these block devices, and NVMe controllers at these PCI addresses."""
    for disk in disks:
        (folder / "sys/class/block" / disk).mkdir(parents=True)
    for name, address in nvme.items():
        device = folder / "sys/devices/pci0000:00" / address
        device.mkdir(parents=True)
        (folder / "sys/class/nvme" / name).mkdir(parents=True)
        (folder / "sys/class/nvme" / name / "device").symlink_to(device)
    return folder


@pytest.mark.parametrize(
    ("line", "component", "fault", "severity"),
    [
        ("blk_update_request: I/O error, dev sda1, sector 4096 op 0x0:(READ)", "sda", "disk_io_error", "MAJOR"),
        ("critical medium error, dev sdb, sector 123 op 0x0:(READ)", "sdb", "disk_io_error", "MAJOR"),
        ("print_req_error: critical medium error, dev sdb, sector 123", "sdb", "disk_io_error", "MAJOR"),
        ("Buffer I/O error on dev dm-3, logical block 2, lost async page write", "dm-3", "disk_io_error", "MAJOR"),
        ("device offline error, dev sda, sector 81920 op 0x1:(WRITE) flags 0x8800", "sda", "disk_lost", "CRITICAL"),
        ("nvme nvme9: controller is down; will reset: CSTS=0x3, PCI_STATUS=0x10", "nvme9", "disk_reset", "MAJOR"),
        ("nvme nvme9: controller is down; will reset: CSTS=0xffffffff, PCI_STATUS=0xffff", "nvme9", "disk_lost", "CRITICAL"),
        ("nvme nvme9: I/O 8 QID 12 timeout, reset controller", "nvme9", "disk_reset", "MAJOR"),
        ("nvme nvme9: I/O 8 QID 12 timeout, aborting", "nvme9", "disk_command_timeout", "WARNING"),
        ("nvme nvme9: Removing after probe failure status: -19", "nvme9", "disk_lost", "CRITICAL"),
        ("nvme9n1: Read(0x2) @ LBA 2056, 8 blocks, Unrecovered Read Error (sct 0x2 / sc 0x81) DNR", "nvme9", "disk_io_error", "MAJOR"),
        ("sd 0:2:0:0: [sda] tag#94 Sense Key : Medium Error [current] ", "sda", "disk_io_error", "MAJOR"),
        ("sd 0:2:0:0: rejecting I/O to offline device", "0:2:0:0", "disk_lost", "CRITICAL"),
        ("ata7.00: failed command: READ FPDMA QUEUED", "ata7", "disk_command_timeout", "WARNING"),
        ("ata7.00: disable device", "ata7", "disk_lost", "CRITICAL"),
        ("megaraid_sas 0000:31:00.0: Reset failed, killing adapter scsi0.", "0000:31:00.0", "storage_controller_failed", "CRITICAL"),
        ("mpt3sas_cm0: fault_state(0x5854)!", "mpt3sas_cm0", "storage_controller_failed", "CRITICAL"),
    ],
)  # fmt: skip
def test_a_failing_disk_has_its_fault_on_the_disk_itself(line: str, component: str, fault: str, severity: str) -> None:
    assert found(DISK, line) == [(component, fault, severity)]


@pytest.mark.parametrize(
    ("line", "component", "fault", "severity"),
    [
        ("EXT4-fs error (device md1): ext4_find_entry:1683: inode #131073: comm python3: reading", "md1", "fs_error", "MAJOR"),
        ("Aborting journal on device dm-0-8.", "dm-0", "fs_forced_read_only", "CRITICAL"),
        ("EXT4-fs (sda2): Remounting filesystem read-only", "sda", "fs_forced_read_only", "CRITICAL"),
        ("XFS (dm-0): Corruption of in-memory data detected.  Shutting down filesystem", "dm-0", "fs_forced_read_only", "CRITICAL"),
        ("XFS (sda1): Filesystem has been shut down due to log error (0x2).", "sda", "fs_forced_read_only", "CRITICAL"),
        ('XFS (sda1): metadata I/O error in "xfs_buf" at daddr 0x2 len 1 error 5', "sda", "fs_error", "MAJOR"),
        ("BTRFS error (device sdb1): bdev /dev/sdb1 errs: wr 1, rd 0", "sdb", "fs_error", "MAJOR"),
        ("BTRFS error (device sdb1): fixed up error at logical 131072 on dev /dev/sdb1", "sdb", "fs_needs_check", "WARNING"),
        ("BTRFS info (device sdb1: state E): forced readonly", "sdb", "fs_forced_read_only", "CRITICAL"),
    ],
)  # fmt: skip
def test_a_failing_file_system_has_its_fault_on_its_disk(line: str, component: str, fault: str, severity: str) -> None:
    assert found(FS, line) == [(component, fault, severity)]


@pytest.mark.parametrize(
    "line",
    [
        "critical target error, dev nvme1n1, sector 0 op 0x9:(WRITE_ZEROES) flags 0x0 phys_seg 0 prio class 2",
        "blk_update_request: critical target error, dev sda, sector 2048 op 0x3:(DISCARD) flags 0x800 phys_seg 1",
        "blk_update_request: critical nexus error, dev sdc, sector 0 op 0x1:(WRITE) flags 0x800 phys_seg 1 prio class 0",
        "reservation conflict error, dev sdc, sector 0 op 0x1:(WRITE) flags 0x800 phys_seg 1 prio class 2",
        "operation not supported error, dev sda, sector 0 op 0x9:(WRITE_ZEROES) flags 0x0",
        "nvme1n1: Dataset Management(0x9) @ LBA 0, 0 blocks, Invalid Field in Command (sct 0x0 / sc 0x2) DNR",
        "sd 0:2:0:0: [sda] tag#94 Sense Key : Illegal Request [current] ",
        "sd 0:2:0:0: Power-on or device reset occurred",
        "md: data-check of RAID array md0",
        "md/raid1:md0: active with 2 out of 2 mirrors",
        "device-mapper: thin: 253:4: switching pool to write mode",
        "ata3: SATA link down (SStatus 0 SControl 300)",
        "XFS (nvme1n1): User initiated shutdown received. Shutting down filesystem",
        "XFS (sdc1): Filesystem has duplicate UUID 6f0b0d2e-1a2b-4c3d-8e4f-5a6b7c8d9e0f - can't mount",
        "EXT4-fs (sda2): re-mounted 6f0b0d2e-1a2b-4c3d-8e4f-5a6b7c8d9e0f ro. Quota mode: none.",
        "BTRFS info (device nvme1n1): bdev /dev/nvme2n1 errs: wr 0, rd 3, flush 0, corrupt 0, gen 0",
    ],
)
def test_a_disk_that_refuses_a_command_and_one_that_others_use_are_well(line: str) -> None:
    assert found(DISK, line) == found(FS, line) == []


@pytest.mark.parametrize("name", ["loop7", "fd0", "sr0", "nbd3"])
def test_devices_that_are_files_or_media_of_users_are_left_out(name: str) -> None:
    assert found(DISK, f"I/O error, dev {name}, sector 0 op 0x0:(READ) flags 0x0") == []
    assert found(FS, f"EXT4-fs error (device {name}): ext4_lookup:1855: inode #131074: comm python3: x") == []


VIRTUAL = (
    "sd 6:0:0:0: [sdb] Attached SCSI removable disk",
    "blk_update_request: I/O error, dev sdb, sector 0 op 0x0:(READ) flags 0x0 phys_seg 1 prio class 0",
    "Buffer I/O error on dev sdb, logical block 0, async page read",
)


def test_the_bmc_s_virtual_disk_is_not_the_node_s(tmp_path: Path) -> None:
    (machine(tmp_path, "sda", "sdb") / "sys/block/sdb").mkdir(parents=True)
    (tmp_path / "sys/block/sdb/removable").write_text("1\n")

    assert found(DISK, *VIRTUAL) == []
    assert found(DISK, *VIRTUAL[1:], folder=tmp_path) == []
    assert found(DISK, *(line.replace("sdb", "sda") for line in VIRTUAL[1:]), folder=tmp_path) != []


def test_a_stick_on_the_usb_bus_is_not_the_node_s(tmp_path: Path) -> None:
    stick = tmp_path / "sys/devices/pci0000:00/0000:00:14.0/usb1/1-7/host6/block/sdb"
    stick.mkdir(parents=True)
    (machine(tmp_path, "sdb") / "sys/block").mkdir()
    (tmp_path / "sys/block/sdb").symlink_to(stick)

    assert found(DISK, VIRTUAL[1], folder=tmp_path) == []


# RAID

MEMBER_LOST = (
    "nvme nvme9: I/O 26 QID 0 timeout, reset controller",
    "nvme nvme9: Device not ready; aborting reset, CSTS=0x1",
    "md/raid:md1: Disk failure on nvme9n1p4, disabling device.",
    "md/raid:md1: Operation continuing on 11 devices.",
    "md/raid1:md0: Disk failure on nvme9n1p2, disabling device.\nmd/raid1:md0: Operation continuing on 11 devices.",
)


def test_a_disk_that_its_raid_sets_go_on_without_is_one_part_and_ends_no_job(tmp_path: Path) -> None:
    expected = {("disk_reset", "MAJOR"), ("disk_lost", "MAJOR"), ("raid_member_lost", "MAJOR")}
    with_sysfs = machine(tmp_path, "nvme9n1", nvme9="0000:61:00.0")

    for folder, component in ((TREE, "nvme9"), (with_sysfs, "0000:61:00.0")):
        judged = found(DISK, *MEMBER_LOST, folder=folder)
        assert {component for component, _, _ in judged} == {component}
        assert {(fault, severity) for _, fault, severity in judged} == expected


def test_a_lost_disk_is_spared_before_md_says_so_where_its_sets_can_go_on(tmp_path: Path) -> None:
    folder = machine(tmp_path, "nvme9n1", "nvme9n1p2", nvme9="0000:61:00.0")
    (folder / "sys/class/block/nvme9n1p2/holders/md0").mkdir(parents=True)
    level = folder / "sys/block/md0/md/level"
    level.parent.mkdir(parents=True)

    for name, severity in (("raid1", "MAJOR"), ("raid0", "CRITICAL")):
        level.write_text(f"{name}\n")
        assert found(DISK, MEMBER_LOST[1], folder=folder) == [("0000:61:00.0", "disk_lost", severity)]


def test_a_lost_disk_of_no_raid_set_is_critical() -> None:
    assert found(DISK, MEMBER_LOST[1]) == [("nvme9", "disk_lost", "CRITICAL")]


def test_a_raid_0_that_loses_a_member_is_lost() -> None:
    lines = (
        "nvme nvme0: Disabling device after reset failure: -19",
        "md/raid0md0: Disk failure on nvme0n1p1 detected, failing array.",
    )

    assert found(DISK, *lines) == [("nvme0", "disk_lost", "CRITICAL"), ("md0", "raid_stopped", "CRITICAL")]
    assert findings(DISK, *lines)[1].evidence["member"] == "nvme0n1p1"


# Names


def test_an_nvme_disk_is_named_by_its_pci_address_and_its_lines_are_one_fault(hosts: Path) -> None:
    lines = (
        "I/O error, dev nvme1n1, sector 8 op 0x1:(WRITE)",
        "Buffer I/O error on dev nvme1n1p2, logical block 9, lost async",
    )

    (finding,) = findings(DISK, *lines, folder=hosts / "dgx-h100")

    assert (finding.component, finding.fault, finding.evidence["lines"]) == ("0000:02:00.0", "disk_io_error", 2)


def test_a_disk_that_is_gone_keeps_the_name_that_it_had_in_this_boot(tmp_path: Path) -> None:
    with_it = looked(DISK, machine(tmp_path / "with", "nvme1n1", nvme1="0000:61:00.0"))
    gone = machine(tmp_path / "without", "sda")
    line = "nvme nvme1: Disabling device after reset failure: -19"

    (known,) = findings(DISK, line, folder=gone, before=disk_errors.CHECK.next_state(None, with_it))
    (unknown,) = findings(DISK, line, folder=gone)

    assert (known.component, known.fault, known.severity) == ("0000:61:00.0", "disk_lost", Severity.CRITICAL)
    assert (unknown.component, unknown.fault) == ("nvme1", "kernel_line_unknown_device")
    assert (unknown.severity, unknown.confidence) == (Severity.WARNING, Confidence.LINE)


def test_a_scsi_address_and_an_ata_port_are_the_disk_behind_them(tmp_path: Path) -> None:
    disk = tmp_path / "sys/devices/pci0000:00/0000:00:17.0/ata7/host6/target6:0:0/6:0:0:0/block/sda"
    disk.mkdir(parents=True)
    (machine(tmp_path, "sda") / "sys/block").mkdir()
    (tmp_path / "sys/block/sda").symlink_to(disk)
    (tmp_path / "sys/class/scsi_device/6:0:0:0/device/block/sda").mkdir(parents=True)

    lines = ("sd 6:0:0:0: Device offlined - not ready after error recovery", "ata7.00: disabled")
    assert found(DISK, *lines, folder=tmp_path) == [("sda", "disk_lost", "CRITICAL")]


def test_a_storm_of_lines_is_one_finding_with_the_first_of_them() -> None:
    lines = (f"I/O error, dev sda, sector {i} op 0x0:(READ)" + "x" * 900 for i in range(5000))

    (finding,) = findings(DISK, *lines)

    assert finding.evidence["lines"] == 5000
    assert str(finding.evidence["text"]).startswith("I/O error, dev sda, sector 0 ")
    assert len(str(finding.evidence["text"])) == TEXT_LIMIT
