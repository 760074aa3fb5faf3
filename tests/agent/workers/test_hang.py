"""What the kernel says of a hang, read from a /proc of the test's own."""

from pathlib import Path

import pytest

from nodetriage.agent.workers import hang
from nodetriage.checks.gpu.gpu_lost import CHECK as GPU_LOST
from nodetriage.checks.model import Confidence, Severity
from nodetriage.checks.storage.fs_mounts import CHECK

TABLE = r"""24 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
90 24 0:41 / /home rw,relatime shared:9 - nfs4 fs0:/old rw,vers=4.2
91 24 0:42 / /home rw,relatime shared:10 - nfs4 fs1:/home rw,vers=4.2
92 24 0:43 / /data\040sets rw - lustre 10.0.0.1@o2ib:/scratch rw
a line that is none
"""


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    for pid in ("1", "77"):
        (tmp_path / pid).mkdir()
    (tmp_path / "1/mountinfo").write_text(TABLE)
    (tmp_path / "77/stat").write_text("77 (worker) D 1 77")
    return tmp_path


@pytest.mark.parametrize(
    ("doing", "component", "source"),
    [
        ("statvfs /home", "/home", "fs1:/home"),
        ("statvfs /proc/1/root/home", "/home", "fs1:/home"),
        ("statvfs /proc/1/root/data sets", "/data sets", "10.0.0.1@o2ib:/scratch"),
        ("statvfs /proc/1/root/", "/", "/dev/sda1"),
    ],
)
def test_a_hung_mount_names_its_source(proc: Path, doing: str, component: str, source: str) -> None:
    found = hang.finding(CHECK, hang.evidence(77, doing, 5.0, proc))
    assert (found.component, found.fault) == (component, "mount_hung")
    assert (found.evidence["source"], found.evidence["state"]) == (source, "D")


def test_a_hung_mount_names_its_type_too(proc: Path) -> None:
    assert hang.evidence(77, "statvfs /home", 5.0, proc)["fstype"] == "nfs4"


@pytest.mark.parametrize(
    ("state", "severity", "confidence"),
    [
        ("D", Severity.CRITICAL, Confidence.WITNESSED),
        ("S", Severity.CRITICAL, Confidence.STATE),
        ("R", Severity.MAJOR, Confidence.STATE),
        ("T", Severity.MAJOR, Confidence.STATE),
    ],
)
def test_the_kernel_is_the_second_witness_of_a_hang(
    proc: Path, state: str, severity: Severity, confidence: Confidence
) -> None:
    (proc / "77/stat").write_text(f"77 (wor) ker) {state} 1 77")

    found = hang.finding(CHECK, hang.evidence(77, "statvfs /home", 5.0, proc))

    assert (found.severity, found.confidence) == (severity, confidence)


@pytest.mark.parametrize("doing", ["read /home/user/file", "ask 0000:3b:00.0", "check fs_mounts", ""])
def test_what_is_no_mount_point_has_no_source(proc: Path, doing: str) -> None:
    assert "source" not in hang.evidence(77, doing, 5.0, proc)


def test_a_machine_without_a_mount_table_is_no_error(tmp_path: Path) -> None:
    assert "source" not in hang.evidence(77, "statvfs /home", 5.0, tmp_path)


NVML = "nvmlDeviceGetRemappedRows 0000:1b:00.0"


def of_gpus(proc: Path, waited_s: float = 10.0, in_a_row: int = 1) -> tuple[str, str, str]:
    found = hang.finding(GPU_LOST, hang.evidence(77, NVML, waited_s, proc), in_a_row)
    return found.component, found.fault, found.severity.name


def test_one_slow_call_about_one_gpu_costs_nothing_and_a_driver_that_answers_nobody_takes_the_node(proc: Path) -> None:
    driver = ("nvidia-driver", "gpu_driver_hung", "MAJOR")

    assert of_gpus(proc) == of_gpus(proc, in_a_row=2) == ("0000:1b:00.0", "check_hung", "WARNING")
    assert of_gpus(proc, in_a_row=3) == of_gpus(proc, waited_s=180.0) == driver


def test_however_often_a_mount_hangs_it_is_that_mount(proc: Path) -> None:
    assert hang.finding(CHECK, hang.evidence(77, "statvfs /home", 500.0, proc), 9).fault == "mount_hung"
