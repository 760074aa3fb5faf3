"""The machine as a check sees it: live files, and trees that were recorded."""

import errno
import json
import os
import shutil
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from nodetriage.agent.machine.files import read_whole
from nodetriage.agent.machine.host import PCI_DEVICES as PCI
from nodetriage.agent.machine.host import Host
from nodetriage.checks.model import Check, FsSpace, Gpu, KernelRecord, NvmlFailure, PciDevice, Program, Unavailable
from nodetriage.checks.model.settings import ConfigError


def tree(root: Path, **files: str | bytes) -> Host:
    """A recorded machine; `sys__class` stands for sys/class."""
    for name, content in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return Host(root)


CHECK: Check[int, int] = Check(
    name="x",
    read=lambda host: 0,
    judge=lambda now, before, policy: (),
    policy=0,
    faults=(),
    kernel_pattern=r"NVRM: Xid \(PCI:0000",
)


def test_a_file_is_read_whole_without_trailing_white_space(tmp_path: Path) -> None:
    host = tree(tmp_path, sys__a="4: ACTIVE \n", big="x" * 200_000, odd=b"caf\xe9\n")

    assert host.text("/sys/a") == "4: ACTIVE"
    assert len(host.text("/big")) == 200_000
    assert host.text("/odd") == "caf�"


def test_files_of_this_machine_whose_size_lies_are_read_whole() -> None:
    host = Host("/")

    assert host.text("/proc/self/mountinfo").count("\n") > 0
    assert host.text("/proc/sys/kernel/random/boot_id").count("-") == 4


def test_errors_reach_the_check_as_the_kernel_gives_them(tmp_path: Path) -> None:
    host = tree(tmp_path, sys__a="1", errors__toml="")
    (tmp_path / "errors.toml").write_text('"/sys/broken" = "EIO"\n"/sys/a" = "EINVAL"\n')
    host = Host(tmp_path)

    for path, number in (("/sys/none", errno.ENOENT), ("/sys", errno.EISDIR), ("/sys/a/b", errno.ENOTDIR)):
        with pytest.raises(OSError, match=path) as caught:
            host.text(path)
        assert caught.value.errno == (errno.EINVAL if path == "/sys/a" else number)
    with pytest.raises(OSError, match="/sys/broken") as caught:
        host.text("/sys/broken")
    assert caught.value.errno == errno.EIO
    with pytest.raises(OSError, match="/sys/a"):
        host.exists("/sys/a")


def test_a_fifo_in_the_place_of_a_file_does_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")

    assert Host(tmp_path).text("/pipe") == ""


def test_a_glob_is_sorted_goes_through_links_and_is_empty_without_its_folder(tmp_path: Path) -> None:
    host = tree(tmp_path, sys__devices__b__ports__1__state="x", sys__devices__a__ports__2__state="x")
    (tmp_path / "sys/class/infiniband").mkdir(parents=True)
    for name in "ab":
        (tmp_path / "sys/class/infiniband" / name).symlink_to(f"../../devices/{name}")

    assert host.glob("/sys/class/infiniband/*/ports/*") == [
        PurePosixPath("/sys/class/infiniband/a/ports/2"),
        PurePosixPath("/sys/class/infiniband/b/ports/1"),
    ]
    assert host.glob("/sys/class/net/*") == []
    assert host.glob("/sys/class/*/b/ports") == [PurePosixPath("/sys/class/infiniband/b/ports")]


def test_a_folder_that_cannot_be_listed_is_an_error_and_not_an_empty_one(tmp_path: Path) -> None:
    (tmp_path / "sys").mkdir()
    (tmp_path / "errors.toml").write_text('"/sys" = "EIO"\n')

    with pytest.raises(OSError, match="/sys"):
        Host(tmp_path).glob("/sys/*")


@pytest.mark.parametrize("target", ["/etc/passwd", "../../../../../../../../etc/passwd", "/proc/self/root/etc/passwd"])
def test_no_link_leads_out_of_a_recorded_tree(tmp_path: Path, target: str) -> None:
    host = tree(tmp_path / "root", etc__passwd="recorded")
    (tmp_path / "root/evil").symlink_to(target)
    (tmp_path / "root/up").symlink_to("..")

    if target.startswith("/proc"):
        with pytest.raises(FileNotFoundError):
            host.text("/evil")
    else:
        assert host.text("/evil") == "recorded"
    assert host.text("/up/up/etc/passwd") == "recorded"
    assert host.text("/../../etc/passwd") == "recorded"


def test_links_in_a_circle_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")

    with pytest.raises(OSError, match="/a") as caught:
        Host(tmp_path).text("/a")
    assert caught.value.errno == errno.ELOOP


def test_a_link_is_told_absolute_and_normal(tmp_path: Path) -> None:
    (tmp_path / "sys/class/net").mkdir(parents=True)
    (tmp_path / "sys/class/net/ib0").symlink_to("../../devices/pci0000:00/net/ib0")

    assert Host(tmp_path).link("/sys/class/net/ib0") == PurePosixPath("/sys/devices/pci0000:00/net/ib0")


def test_pci_devices_come_from_uevent_or_from_single_files(tmp_path: Path) -> None:
    host = tree(
        tmp_path,
        **{
            "sys__bus__pci__devices__0000:1B:00.0__uevent": "DRIVER=nvidia\nPCI_CLASS=30200\nPCI_ID=10DE:2330\n",
            "sys__bus__pci__devices__0000:1c:00.0__uevent": "PCI_CLASS=30200\nPCI_ID=10DE:2330\n",
            "sys__bus__pci__devices__0000:05:00.0__vendor": "0x15b3\n",
            "sys__bus__pci__devices__0000:05:00.0__device": "0x1021\n",
            "sys__bus__pci__devices__0000:05:00.0__class": "0x020700\n",
        },
    )
    (tmp_path / "sys/bus/pci/devices/0000:05:00.0/driver").symlink_to("../../drivers/mlx5_core")

    assert host.pci_devices() == (
        PciDevice("0000:05:00.0", 0x15B3, 0x1021, 0x020700, f"{PCI}/0000:05:00.0"),
        PciDevice("0000:1b:00.0", 0x10DE, 0x2330, 0x030200, f"{PCI}/0000:1B:00.0"),
        PciDevice("0000:1c:00.0", 0x10DE, 0x2330, 0x030200, f"{PCI}/0000:1c:00.0"),
    )
    assert [host.pci_driver(device) for device in host.pci_devices()] == ["mlx5_core", "nvidia", None]


@pytest.mark.parametrize(
    ("files", "known"),
    [
        ({"class": "0x030200\n"}, False),
        ({"class": "0x030200\n", "uevent": "DRIVER=nvidia\n"}, False),
        ({"class": "0x030200\n", "vendor": "", "device": "0x2330\n"}, False),
        ({"uevent": "PCI_CLASS=30200\nPCI_ID=10DE\n"}, False),
        ({"class": "0x030200\n", "uevent": "PCI_ID=10DE:2330\n"}, True),
        ({"vendor": "0x10de\n", "device": "0x2330\n", "uevent": "PCI_CLASS=30200\n"}, True),
    ],
)
def test_a_pci_device_that_does_not_say_what_it_is_hides_no_other_and_the_run_says_so(
    tmp_path: Path, files: dict[str, str], known: bool
) -> None:
    whole = PciDevice("0000:1b:00.0", 0x10DE, 0x2330, 0x030200, f"{PCI}/0000:1b:00.0")
    other = PciDevice("0000:1c:00.0", 0x10DE, 0x2330, 0x030200, f"{PCI}/0000:1c:00.0")
    host = tree(
        tmp_path,
        **{"sys__bus__pci__devices__0000:1b:00.0__uevent": "PCI_CLASS=30200\nPCI_ID=10DE:2330\n"},
        **{f"sys__bus__pci__devices__0000:1c:00.0__{name}": text for name, text in files.items()},
    )

    assert host.pci_devices() == ((whole, other) if known else (whole,))
    assert host.excluded == (() if known else ("0000:1c:00.0",))


def test_a_pci_device_is_asked_until_it_tells_twice_the_same_and_again_when_its_entry_was_made_anew(
    tmp_path: Path,
) -> None:
    asked: list[str] = []
    for address in ("0000:1b:00.0", "0000:1c:00.0"):
        _add_device(tmp_path, address, "10DE:2330")
    host = Host(tmp_path, announce=asked.append)
    first = host.pci_devices()
    assert host.for_check(CHECK).pci_devices() == first
    asked.clear()
    assert host.for_check(CHECK).pci_devices() == first
    assert asked == [f"list {PCI}"]

    shutil.rmtree(tmp_path / "sys/devices/0000:1b:00.0")
    (tmp_path / f".{PCI}/0000:1b:00.0").unlink()
    assert [d.address for d in host.pci_devices()] == ["0000:1c:00.0"]
    _add_device(tmp_path, "0000:1b:00.0", "10DE:2331")
    assert [(d.address, d.device) for d in host.pci_devices()] == [("0000:1b:00.0", 0x2331), ("0000:1c:00.0", 0x2330)]
    assert host.pci_devices()[0].folder == "/sys/devices/0000:1b:00.0"


def test_what_a_new_device_tells_before_it_is_complete_is_not_kept(tmp_path: Path) -> None:
    (tmp_path / "sys/class/infiniband/mlx5_0/ports").mkdir(parents=True)
    host = Host(tmp_path)
    assert host.entries("/sys/class/infiniband", _ports) == {"mlx5_0": ()}
    (tmp_path / "sys/class/infiniband/mlx5_0/ports/1").mkdir()
    for _ in range(3):
        assert host.entries("/sys/class/infiniband", _ports) == {"mlx5_0": ("1",)}


def _ports(host: Any, hca: PurePosixPath) -> tuple[str, ...]:
    return tuple(path.name for path in host.glob(f"{hca}/ports/*"))


def test_files_of_sysfs_are_read_whole_whatever_their_size() -> None:
    one_line, many_pages = Path("/sys/kernel/fscaps"), Path("/sys/kernel/btf/vmlinux")

    assert read_whole(str(one_line)) == one_line.read_bytes() != b""
    if many_pages.exists():  # a kernel that describes its types
        assert read_whole(str(many_pages)) == many_pages.read_bytes()


def _add_device(root: Path, address: str, pci_id: str) -> None:
    folder = root / f"sys/devices/{address}"
    folder.mkdir(parents=True)
    (folder / "uevent").write_text(f"PCI_CLASS=30200\nPCI_ID={pci_id}\n")
    (root / f".{PCI}").mkdir(parents=True, exist_ok=True)
    (root / f".{PCI}/{address}").symlink_to(f"../../../devices/{address}")


def test_gpus_come_from_nvml_json_and_an_odd_key_is_an_error(tmp_path: Path) -> None:
    gpus = [{"index": 0, "pci": "0000:1a:00.0", "failure": "gpu_is_lost", "facts": {"recovery_action": 0}}]
    host = tree(tmp_path, **{"nvml.json": json.dumps({"gpus": gpus})})

    assert host.gpus() == (Gpu(0, "0000:1a:00.0", failure=NvmlFailure.LOST, facts={"recovery_action": 0}),)

    with pytest.raises(ValueError, match=r"nvml.json: gpus\[0\].colour: unknown key"):
        tree(tmp_path, **{"nvml.json": json.dumps([{**gpus[0], "colour": "red"}])}).gpus()


@pytest.mark.parametrize("recorded", [None, '{"unavailable": "no driver"}'])
def test_a_machine_without_nvml_is_unavailable_and_never_one_without_gpus(tmp_path: Path, recorded: str | None) -> None:
    if recorded:
        (tmp_path / "nvml.json").write_text(recorded)

    with pytest.raises(Unavailable, match=r"no driver|no nvml\.json"):
        Host(tmp_path).gpus()


def test_the_log_holds_what_the_kernel_wrote_and_the_check_asked_for(tmp_path: Path) -> None:
    log = "4,1,5,-;NVRM: Xid (PCI:0000:1a:00): 79\n6,2,6,-;eth0: link up\n11,3,7,-;NVRM: Xid (PCI:0000:1a:00): 48\n"
    host = tree(tmp_path, dev__kmsg=log)

    assert [r.seq for r in host.kernel_log()] == [1, 2]
    assert [r.seq for r in host.for_check(CHECK).kernel_log()] == [1]


def test_records_that_the_agent_hands_in_are_all_there_is(tmp_path: Path) -> None:
    host = tree(tmp_path, dev__kmsg="4,1,5,-;NVRM: Xid (PCI:0000:1a:00): 79\n")
    record = KernelRecord(9, 9, 4, "NVRM: Xid (PCI:0000:1b:00): 48")

    assert host.for_check(CHECK, (record,)).kernel_log() == (record,)
    assert host.for_check(CHECK, ()).kernel_log() == ()


def test_a_program_answers_from_the_tree_by_its_whole_call_first(tmp_path: Path) -> None:
    host = tree(
        tmp_path,
        **{
            "commands__ipmitool.txt": "any",
            "commands__nvme_smart-log_dev_nvme0.txt": "one",
            "commands__nvme_smart-log_dev_nvme0.status": "2\n",
        },
    )
    (tmp_path / "errors.toml").write_text('"/commands/slow.txt" = "ETIMEDOUT"\n')
    host = Host(tmp_path)

    assert host.run(("/usr/bin/ipmitool", "sdr"), 1) == Program(0, "any", "")
    assert host.run(("nvme", "smart-log", "/dev/nvme0"), 1) == Program(2, "one", "")
    with pytest.raises(Unavailable, match="nvme: not installed"):
        host.run(("nvme", "smart-log", "/dev/nvme1"), 1)
    with pytest.raises(TimeoutError):
        host.run(("slow",), 1)


def test_space_and_clock_come_from_their_tables(tmp_path: Path) -> None:
    host = tree(
        tmp_path,
        **{
            "statvfs.toml": '["/data"]\ntotal_bytes = 9\nfree_bytes = 1\n'
            "total_inodes = 5\nfree_inodes = 2\nread_only = true\n",
            "clock.toml": "boottime_s = 12.5\n",
        },
    )

    assert host.statvfs("/data") == FsSpace(9, 1, 5, 2, read_only=True)
    assert host.boottime_s() == 12.5
    with pytest.raises(FileNotFoundError):
        host.statvfs("/gone")


def test_the_clock_of_a_tree_falls_back_to_its_uptime(tmp_path: Path) -> None:
    assert Host(tmp_path).boottime_s() == 0
    assert tree(tmp_path, proc__uptime="350735.47 234388.90\n").boottime_s() == 350735.47


def test_a_wrong_tree_is_a_wrong_configuration(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such folder"):
        Host(tmp_path / "none")
    (tmp_path / "errors.toml").write_text('"/a" = "EWRONG"\n')
    with pytest.raises(ConfigError, match=r"errors\.toml: /a: expected the name of an errno"):
        Host(tmp_path)


def test_what_may_block_is_announced_before_it_is_done(tmp_path: Path) -> None:
    said: list[str] = []
    host = Host("/", announce=said.append)

    host.statvfs("/")
    host.text("/proc/uptime")
    host.run(("true", "--really"), 5)
    host.for_check(CHECK, ()).statvfs("/tmp")

    assert said == ["statvfs /", "read /proc/uptime", "run true --really", "statvfs /tmp"]


def test_space_of_this_machine_is_in_bytes() -> None:
    space = Host("/").statvfs("/proc")
    root = Host("/").statvfs("/")

    assert not space.read_only
    assert root.total_bytes > 1 << 20
    assert root.total_bytes >= root.free_bytes > 0


def test_a_tree_that_is_like_another_differs_from_it_only_in_what_it_holds(tmp_path: Path) -> None:
    tree(tmp_path / "whole", sys__a="1", sys__b="2", sys__c__d="3", **{"clock.toml": "boottime_s = 5.0\n"})
    like = 'tree = "whole"\nwithout = ["/sys/b", "/sys/c"]\n'
    host = tree(tmp_path / "part", sys__a="9", sys__e="4", **{"like.toml": like})

    assert [str(path) for path in host.glob("/sys/*")] == ["/sys/a", "/sys/e"]
    assert (host.text("/sys/a"), host.text("/sys/e"), host.boottime_s()) == ("9", "4", 5.0)
    assert not host.exists("/sys/c/d")
    assert host.glob("/sys/c/*") == []
    with pytest.raises(FileNotFoundError):
        host.text("/sys/b")


@pytest.mark.parametrize("like", ["", 'tree = "../whole"', 'tree = "/etc"', 'tree = "no-such"', 'tree = "part"'])
def test_a_tree_is_like_a_folder_beside_it_or_wrong(tmp_path: Path, like: str) -> None:
    (tmp_path / "whole").mkdir()
    (tmp_path / "part").mkdir()
    (tmp_path / "part/like.toml").write_text(f"{like}\nwithout = []\n")

    with pytest.raises(ConfigError):
        Host(tmp_path / "part")
