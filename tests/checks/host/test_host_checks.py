"""Memory size, clock, services, versions, full file systems."""

from pathlib import Path

import pytest

from nodetriage.agent.machine.host import Host
from nodetriage.checks.host import clock_sync, mem_size, node_drift, services
from nodetriage.checks.model import ClockState, FsSpace, Severity, Unavailable
from nodetriage.checks.storage import fs_full

GIB = 1 << 20  # in KiB
SYNCED = ClockState(True, 20_000, 50)
UNITS = """\
slurmd.service    loaded    failed     failed       Slurm node daemon
munge.service     loaded    activating auto-restart MUNGE
sssd.service      not-found inactive   dead         sssd.service
chronyd.service   loaded    active     running      NTP client/server
"""


def put(root: Path, path: str, text: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


@pytest.mark.parametrize(("found_gib", "missing"), [(2015.2, False), (1991, False), (1951, True), (1024, True)])
def test_one_dimm_of_thirty_two_is_missed_and_what_the_kernel_keeps_is_not(found_gib: float, missing: bool) -> None:
    findings = list(mem_size.judge(int(found_gib * GIB), None, mem_size.Policy(expected_gib=2048)))

    assert [(f.fault, f.severity) for f in findings] == [("mem_missing", Severity.MAJOR)] * missing


def test_memory_is_not_judged_where_nobody_says_how_much_there_should_be() -> None:
    with pytest.raises(Unavailable, match="expected_gib"):
        list(mem_size.judge(1, None, mem_size.Policy()))


@pytest.mark.parametrize("text", ["", "MemTotal: lots", "MemTotal: -5 kB", "\xff", "MemTotal: " + "9" * 99 + " kB"])
def test_a_memory_table_without_a_total_is_broken(tmp_path: Path, text: str) -> None:
    put(tmp_path, "proc/meminfo", text)

    with pytest.raises(ValueError, match="/proc/meminfo"):
        mem_size.read(Host(tmp_path))


def grace(root: Path, cpu_kib: tuple[int, ...], gpu_kib: tuple[int, ...]) -> Path:
    """A tree whose kernel counts the GPUs' memory: the CPUs' nodes first, then a node for each GPU."""
    put(root, "proc/meminfo", f"MemTotal:       {sum(cpu_kib) + sum(gpu_kib)} kB\nMemFree: 1 kB\n")
    nodes = (*cpu_kib, *gpu_kib)
    for node, kib in enumerate(nodes):
        put(root, f"sys/devices/system/node/node{node}/meminfo", f"Node {node} MemTotal:       {kib} kB\n")
    put(root, "sys/devices/system/node/has_cpu", f"0-{len(cpu_kib) - 1}\n")
    put(root, "sys/devices/system/node/has_memory", f"0-{len(nodes) - 1}\n")
    return root


@pytest.mark.parametrize(("cpu_gib", "missing"), [((478, 476), False), ((478, 238), True), ((478, 0), True)])
def test_memory_of_gpus_stands_for_none_of_the_hosts(tmp_path: Path, cpu_gib: tuple[int, int], missing: bool) -> None:
    root = grace(tmp_path, tuple(gib * GIB for gib in cpu_gib), (185 * GIB,) * 4)

    findings = list(mem_size.judge(mem_size.read(Host(root)), None, mem_size.Policy(expected_gib=960)))

    assert [f.fault for f in findings] == ["mem_missing"] * missing


def test_memory_on_cxl_is_the_hosts_though_its_node_has_no_cpu(tmp_path: Path) -> None:
    root = grace(tmp_path, (1008 * GIB,), (1024 * GIB,))
    (root / "sys/bus/cxl/devices/region0").mkdir(parents=True)

    assert mem_size.read(Host(root)) == 2032 * GIB


def test_a_kernel_without_numa_nodes_counts_the_memory_of_coherent_gpus_too(tmp_path: Path) -> None:
    put(tmp_path, "proc/meminfo", "MemTotal:       1283457024 kB")
    for bus in range(4):
        put(tmp_path, f"sys/bus/pci/devices/000{bus}:01:00.0/uevent", "PCI_CLASS=30200\nPCI_ID=10DE:2941\n")
    (finding,) = mem_size.judge(mem_size.read(Host(tmp_path)), None, mem_size.Policy(expected_gib=960))

    assert finding.evidence == {"found_gib": 484.0, "expected_gib": 960}


@pytest.mark.parametrize(
    ("cpu", "known"), [("CPU implementer\t: 0x41\n", False), ("vendor_id\t: GenuineIntel\n", True)]
)
def test_a_gpu_that_may_share_an_unknown_part_of_memory_leaves_it_unmeasured(
    tmp_path: Path, cpu: str, known: bool
) -> None:
    put(tmp_path, "proc/meminfo", f"MemTotal:       {960 * GIB} kB")
    put(tmp_path, "proc/cpuinfo", cpu)
    put(tmp_path, "sys/bus/pci/devices/0000:01:00.0/uevent", "PCI_CLASS=30200\nPCI_ID=10DE:3FFF\n")

    if known:
        assert mem_size.read(Host(tmp_path)) == 960 * GIB
    else:
        with pytest.raises(Unavailable, match="10de:3fff"):
            mem_size.read(Host(tmp_path))


@pytest.mark.parametrize("text", ["all", "0-", "0-1-2", "99999"])
def test_a_list_of_nodes_that_is_none_is_broken(tmp_path: Path, text: str) -> None:
    put(grace(tmp_path, (GIB,), (GIB,)), "sys/devices/system/node/has_cpu", text)

    with pytest.raises(ValueError, match="list of nodes"):
        mem_size.read(Host(tmp_path))


@pytest.mark.parametrize(
    ("at_s", "clock", "faulty"),
    [
        (9000, SYNCED, False),
        (9000, ClockState(False, 16_000_000, 16_000_000), True),
        (9000, ClockState(True, 2_500_000, 50), True),
        (60, ClockState(False, 16_000_000, 16_000_000), False),  # just booted
    ],
)
def test_a_clock_that_nobody_keeps_is_found_after_its_grace(at_s: float, clock: ClockState, faulty: bool) -> None:
    findings = list(clock_sync.judge(clock_sync.Reading(at_s, clock), None, clock_sync.Policy()))

    assert [f.fault for f in findings] == ["clock_unsynchronised"] * faulty


def test_the_real_kernel_tells_of_its_clock() -> None:
    reading = clock_sync.read(Host())

    assert reading.clock.max_error_us >= 0
    assert reading.at_s > 0


@pytest.fixture
def systemd(tmp_path: Path) -> Path:
    (tmp_path / "run/systemd/system").mkdir(parents=True)
    return tmp_path


def test_units_that_failed_or_restart_are_found_and_others_are_not(systemd: Path) -> None:
    put(systemd, "commands/systemctl.txt", UNITS)

    findings = list(services.judge(services.read(Host(systemd)), None, services.Policy()))

    assert [(f.component, f.fault, f.severity) for f in findings] == [
        ("slurmd.service", "service_failed", Severity.MAJOR),
        ("munge.service", "service_failed", Severity.MAJOR),
    ]


POWERD = "nvidia-powerd.service loaded failed failed nvidia-powerd service\n"
FABRIC = "nvidia-fabricmanager.service loaded failed failed NVIDIA fabric manager service\n"
IMEX = "nvidia-imex.service loaded failed failed NVIDIA IMEX service\n"
PERSISTENCED = "nvidia-persistenced.service loaded failed failed NVIDIA Persistence Daemon\n"


def gpu(root: Path, device: str, kind: str = "30200") -> None:
    put(root, f"sys/bus/pci/devices/0000:{device}:00.0/uevent", f"PCI_CLASS={kind}\nPCI_ID=10DE:{device}\n")


def failed_units(root: Path, listed: str) -> list[str]:
    put(root, "commands/systemctl.txt", listed)
    return [f.component for f in services.judge(services.read(Host(root)), None, services.Policy())]


def test_a_unit_whose_hardware_is_absent_may_fail(systemd: Path) -> None:
    gpu(systemd, "26B9")  # L40S: PCIe, no NVSwitch
    put(systemd, "sys/class/dmi/id/chassis_type", "23\n")

    assert failed_units(systemd, POWERD + FABRIC + IMEX + PERSISTENCED) == ["nvidia-persistenced.service"]


@pytest.mark.parametrize(("device", "kind"), [("22A3", "68000"), ("2901", "30200"), ("3182", "30200")])
def test_the_fabric_manager_must_not_fail_where_there_are_nvswitches(systemd: Path, device: str, kind: str) -> None:
    gpu(systemd, device, kind)

    assert failed_units(systemd, POWERD + FABRIC) == ["nvidia-fabricmanager.service"]


def test_powerd_counts_on_a_notebook_and_imex_where_a_domain_is_configured(systemd: Path) -> None:
    put(systemd, "sys/class/dmi/id/chassis_type", "10\n")
    put(systemd, "etc/nvidia-imex/nodes_config.cfg", "10.0.0.1\n")

    assert failed_units(systemd, POWERD + IMEX + FABRIC) == ["nvidia-powerd.service", "nvidia-imex.service"]


def test_an_expected_unit_counts_whatever_hardware_there_is(systemd: Path) -> None:
    put(systemd, "commands/systemctl.txt", FABRIC)
    policy = services.Policy(expected={"nvidia-fabricmanager.service": Severity.MAJOR})

    assert [f.fault for f in services.judge(services.read(Host(systemd)), None, policy)] == ["service_down"]


def test_an_expected_unit_must_be_active_and_a_mark_before_its_name_is_no_part_of_it(systemd: Path) -> None:
    put(
        systemd,
        "commands/systemctl.txt",
        "\u25cf slurmd.service loaded failed failed Slurm\nx.service loaded active running x\n",
    )
    policy = services.Policy(
        expected={"slurmd.service": Severity.CRITICAL, "ldap.service": Severity.MAJOR, "x.service": Severity.MAJOR}
    )

    findings = list(services.judge(services.read(Host(systemd)), None, policy))

    assert [(f.component, f.fault, f.severity) for f in findings] == [
        ("slurmd.service", "service_down", Severity.CRITICAL),
        ("ldap.service", "service_down", Severity.MAJOR),
    ]


@pytest.mark.parametrize("text", ["", "Failed to connect to bus: No such file\n", "\ufffd\n", "a.service loaded\n"])
def test_an_answer_that_is_no_list_of_units_is_broken(systemd: Path, text: str) -> None:
    put(systemd, "commands/systemctl.txt", text)

    with pytest.raises(ValueError, match="systemctl"):
        services.read(Host(systemd))


def test_a_systemctl_that_fails_is_broken_and_a_machine_without_systemd_is_skipped(systemd: Path, hosts: Path) -> None:
    put(systemd, "commands/systemctl.txt", UNITS)
    put(systemd, "commands/systemctl.status", "1")

    with pytest.raises(ValueError, match="status 1"):
        services.read(Host(systemd))
    with pytest.raises(Unavailable, match="systemd"):
        services.read(Host(hosts / "cpu-only"))


def test_versions_are_compared_with_what_the_site_wants(hosts: Path) -> None:
    now = node_drift.read(Host(hosts / "dgx-h100"))
    policy = node_drift.Policy(bios=("1.3.*",), kernel=("6.8.0-10*",), gpu_driver=("570.*",))

    assert [(f.component, f.severity) for f in node_drift.judge(now, None, policy)] == [
        ("gpu_driver", Severity.WARNING)
    ]


def test_a_version_that_is_wanted_and_cannot_be_read_is_drift(tmp_path: Path) -> None:
    findings = list(node_drift.judge(node_drift.read(Host(tmp_path)), None, node_drift.Policy(ofed=("24.*",))))

    assert [(f.component, f.evidence["found"]) for f in findings] == [("ofed", "")]


def test_versions_are_not_judged_where_none_is_wanted(tmp_path: Path) -> None:
    with pytest.raises(Unavailable):
        list(node_drift.judge({}, None, node_drift.Policy()))


def space(total: int, free: int, inodes: int = 100, free_inodes: int = 50) -> FsSpace:
    return FsSpace(total, free, inodes, free_inodes, read_only=False)


def test_a_full_system_disk_is_low_and_a_full_scratch_is_the_users_own() -> None:
    now = tuple(fs_full.Usage(point, "/dev/x", space(100, 5)) for point in ("/", "/raid", "/boot/efi"))

    assert [(f.component, f.fault, f.severity) for f in fs_full.judge(now, None, fs_full.Policy())] == [
        ("/", "fs_full", Severity.MAJOR),
        ("/raid", "fs_full", Severity.WARNING),
    ]


def test_no_inodes_is_as_bad_as_no_space_and_none_to_count_is_no_fault() -> None:
    now = (fs_full.Usage("/a", "x", space(100, 90, 100, 5)), fs_full.Usage("/b", "x", space(100, 90, 0, 0)))

    assert [(f.component, f.fault) for f in fs_full.judge(now, None, fs_full.Policy())] == [("/a", "fs_no_inodes")]


def test_each_local_file_system_is_asked_once_and_a_server_s_never(tmp_path: Path, hosts: Path) -> None:
    put(
        tmp_path,
        "proc/1/mountinfo",
        "22 1 9:0 / / rw - ext4 /dev/md0 rw\n"
        "23 22 9:0 /srv /a/bind rw - ext4 /dev/md0 rw\n"
        "24 22 0:71 / /home rw - nfs4 nfs01:/home rw\n"
        "25 22 0:72 / /fuse rw - fuse.sshfs x rw\n"
        "26 22 7:0 / /snap/x ro - squashfs /dev/loop0 ro\n",
    )
    put(tmp_path, "statvfs.toml", (hosts / "dgx-h100/statvfs.toml").read_text())
    asked: list[str] = []

    usage = fs_full.read(Host(tmp_path, announce=asked.append))

    assert [u.point for u in usage] == ["/"]
    assert [a for a in asked if a.startswith("statvfs")] == ["statvfs /"]


def test_without_any_answer_it_is_skipped_and_not_ok(tmp_path: Path) -> None:
    put(tmp_path, "proc/1/mountinfo", "22 1 9:0 / / rw - ext4 /dev/md0 rw\n")

    with pytest.raises(Unavailable):
        fs_full.read(Host(tmp_path))
