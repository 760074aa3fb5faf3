"""Whatever a machine's files hold, a check ends in an outcome, and damage never passes for health."""

import json
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nodetriage.agent.machine.host import Host
from nodetriage.agent.settings.config import defaults
from nodetriage.agent.settings.expected import with_profile
from nodetriage.agent.workers.run import run
from nodetriage.checks.model import Outcome
from nodetriage.checks.registry import ALL

SETTINGS = with_profile(defaults(ALL), Host("/"), "dgx-h100").checks
PORT = "sys/class/infiniband/mlx5_0/ports/1"
FILES = (
    f"{PORT}/state",
    f"{PORT}/phys_state",
    f"{PORT}/rate",
    f"{PORT}/link_layer",
    f"{PORT}/counters/link_downed",
    f"{PORT}/counters/symbol_error",
    "sys/class/infiniband/mlx5_0/fw_ver",
    "sys/class/infiniband/mlx5_0/board_id",
    "sys/bus/pci/devices/0000:1b:00.0/uevent",
    "sys/bus/pci/devices/0000:1b:00.0/max_link_width",
    "sys/bus/pci/devices/0000:1b:00.0/max_link_speed",
    "sys/bus/pci/devices/0000:1b:00.0/current_link_width",
    "sys/bus/pci/devices/0000:1b:00.0/current_link_speed",
    "sys/bus/pci/devices/0000:1b:00.0/aer_dev_fatal",
    "sys/bus/pci/devices/0000:1b:00.0/aer_dev_correctable",
    "sys/class/net/eno1/device/vendor",
    "sys/class/net/eno1/type",
    "sys/class/net/eno1/flags",
    "sys/class/net/eno1/operstate",
    "sys/class/net/eno1/carrier_down_count",
    "sys/class/nvme/nvme0/state",
    "sys/block/md0/md/degraded",
    "sys/devices/system/edac/mc/mc0/ce_count",
    "sys/devices/system/edac/mc/mc0/dimm0/dimm_ce_count",
    "sys/devices/system/edac/mc/mc0/dimm0/dimm_ue_count",
    "run/systemd/system/x",
    "commands/systemctl.txt",
    "commands/smartctl.txt",
    "proc/meminfo",
    "proc/1/mountinfo",
    "etc/fstab",
    "dev/kmsg",
)
contents = st.one_of(
    st.binary(max_size=300),
    st.sampled_from(
        [b"", b"4: ACTIVE\n", b"400 Gb/sec (4X NDR)\n", b"Unknown\n", b"-1\n", b"0\n", b"9" * 5000, b"\xff\xfe"]
    ),
    st.just(b"PCI_ID=10DE:2330\nPCI_CLASS=30200\n"),
    st.just(b"22 1 9:0 / / rw - ext4 /dev/md0 rw\n"),
    st.just(b"4,1,2,-;NVRM: Xid (PCI:0000:01:00): 79, \xff\n"),
    st.sampled_from([b"1\n", b"0x1003\n", b"up\n", b"16\n", b"32.0 GT/s PCIe\n", b"RxErr 5\nTOTAL_ERR_COR 5\n"]),
    st.sampled_from(
        [b"a.service loaded failed failed A\n", b'{"smart_status": {"passed": false}}', b"MemTotal: 1 kB\n"]
    ),
)
errors = st.sampled_from(["ENOENT", "EACCES", "EINVAL", "EIO", "EAGAIN", "ESTALE", "EISDIR"])


@settings(suppress_health_check=[HealthCheck.too_slow], max_examples=60, deadline=None)
@given(st.dictionaries(st.sampled_from(FILES), contents), st.dictionaries(st.sampled_from(FILES), errors))
def test_any_tree_gives_every_check_an_outcome_twice(files: dict[str, bytes], broken: dict[str, str]) -> None:
    with TemporaryDirectory() as folder:
        root = Path(folder)
        for name, data in files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_bytes(data)
        (root / "errors.toml").write_text(
            "".join(f"{json.dumps('/' + p)} = {json.dumps(e)}\n" for p, e in broken.items())
        )
        host = Host(root)
        for check in ALL:
            memory = None
            for _ in range(2):
                result = run(check, host.for_check(check), SETTINGS[check.name].check.policy, memory)
                memory = result.memory
                assert {f.fault for f in result.findings} <= set(check.faults)
                assert result.why or result.outcome in (Outcome.OK, Outcome.FINDINGS)


@pytest.mark.parametrize("error", ["EACCES", "EINVAL", "EIO", "EAGAIN"])
@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("gpu_xid", "/dev/kmsg"),
        ("gpu_lost", "/sys/bus/pci/devices/0000:1b:00.0/uevent"),
        ("gpu_lost", "/sys/bus/pci/devices"),
        ("ib_link", "/sys/class/infiniband"),
        ("ib_link", "/sys/class/infiniband/mlx5_0/ports"),
        ("fs_mounts", "/proc/1/mountinfo"),
        ("fs_mounts", "/etc/fstab"),
        ("fs_full", "/proc/1/mountinfo"),
        ("pcie_link", "/sys/bus/pci/devices"),
        ("pcie_aer", "/sys/bus/pci/devices/0000:1b:00.0/uevent"),
        ("ib_errors", "/sys/class/infiniband/mlx5_0/ports"),
        ("ib_firmware", "/sys/class/infiniband"),
        ("eth_link", "/sys/class/net"),
        ("mem_edac", "/sys/devices/system/edac/mc"),
        ("mem_size", "/proc/meminfo"),
        ("disk_health", "/sys/class/nvme"),
        ("services", "/run/systemd/system"),
        ("disk_errors", "/dev/kmsg"),
        ("kernel_hang", "/dev/kmsg"),
        ("cpu_mce", "/dev/kmsg"),
    ],
)
def test_what_cannot_be_read_is_broken_and_named(hosts: Path, tmp_path: Path, name: str, path: str, error: str) -> None:
    root = shutil.copytree(hosts / "dgx-h100", tmp_path / "host", symlinks=True)
    (root / "errors.toml").write_text(f'"{path}" = "{error}"\n')
    if (name, error) in (("fs_mounts", "EACCES"), ("fs_full", "EACCES")):
        path = path.replace("/1/", "/self/")  # what is tried next
    (check,) = (c for c in ALL if c.name == name)

    result = run(check, Host(root).for_check(check), SETTINGS[name].check.policy, None)

    assert result.outcome is Outcome.BROKEN
    assert path in result.why
