"""Recording a machine: the record gives the same findings as the machine, and none of its names."""

import contextlib
import io
import json
import os
import time
from pathlib import Path, PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodetriage.agent.cli.capture import CaptureHost, Doing, capture
from nodetriage.agent.cli.main import main
from nodetriage.agent.machine.host import Host
from nodetriage.agent.machine.redact import Redactor
from nodetriage.checks.model import Check, Unavailable

HOSTS = Path(__file__).parents[2] / "hosts"
KEY = b"of this machine alone"


@pytest.mark.parametrize("machine", sorted(path.name for path in HOSTS.iterdir() if path.is_dir()))
def test_the_record_of_a_machine_is_judged_as_the_machine_is(
    machine: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """But for what shows only against the machine's earlier record."""
    main(["check", "--root", str(HOSTS / machine), "--before", str(HOSTS / machine), "--json"])
    judged = capsys.readouterr().out
    assert main(["capture", str(tmp_path / "record"), "--root", str(HOSTS / machine)]) == 0
    capsys.readouterr()

    main(["check", "--root", str(tmp_path / "record"), "--before", str(tmp_path / "record"), "--json"])

    scrubber = Redactor(b"")
    expected, again = json.loads(scrubber.text(judged, "/mountinfo")), json.loads(capsys.readouterr().out)
    for checked, checked_again in zip(expected["checks"], again["checks"], strict=True):
        if checked["outcome"] in ("ok", "findings"):
            assert checked_again == checked


ANY_XID = r"NVRM: Xid \(PCI:0000"


def test_this_very_machine_can_be_recorded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["capture", str(tmp_path / "record"), "fs_mounts"]) == 0

    assert "Look through them" in capsys.readouterr().out
    assert (tmp_path / "record/proc/1/mountinfo").read_text().count("\n") > 1


def test_a_folder_that_is_there_is_not_written_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["capture", str(tmp_path)]) == 78

    assert "File exists" in capsys.readouterr().err


def captured(machine: Path, into: Path, read) -> Host:  # type: ignore[no-untyped-def]
    """The record of one check that reads as `read` does."""
    into.mkdir()
    check: Check[None, None] = Check(
        name="x", read=read, judge=lambda now, before, policy: (), policy=None, faults=(), kernel_pattern=ANY_XID
    )
    capture([check], CaptureHost(machine, into))
    return Host(into)


def test_a_link_is_kept_also_when_what_lies_behind_it_was_read_first(tmp_path: Path) -> None:
    machine = tmp_path / "machine"
    (machine / "sys/devices/pci/0000:1a:00.0").mkdir(parents=True)
    (machine / "sys/devices/pci/0000:1a:00.0/vendor").write_text("0x10de\n")
    (machine / "sys/class/net/ib0").mkdir(parents=True)
    (machine / "sys/class/net/ib0/device").symlink_to("../../../devices/pci/0000:1a:00.0")

    def read(host: Host) -> None:
        host.text("/sys/class/net/ib0/device/vendor")
        host.link("/sys/class/net/ib0/device")
        host.text("/sys/class/net/ib0/device/vendor")

    again = captured(machine, tmp_path / "record", read)

    assert again.link("/sys/class/net/ib0/device") == PurePosixPath("/sys/devices/pci/0000:1a:00.0")
    assert again.text("/sys/class/net/ib0/device/vendor") == "0x10de"


def test_nothing_is_written_outside_the_record(tmp_path: Path) -> None:
    machine = tmp_path / "machine"
    machine.mkdir()
    (machine / "evil").symlink_to(str(tmp_path / "outside"))
    (machine / str(tmp_path / "outside").lstrip("/")).mkdir(parents=True)
    (machine / str(tmp_path / "outside").lstrip("/") / "file").write_text("x")

    def read(host: Host) -> None:
        host.link("/evil")
        host.text("/evil/file")
        host.text("/../../evil/file")

    again = captured(machine, tmp_path / "record", read)

    assert again.text("/evil/file") == "x"
    assert not (tmp_path / "outside").exists()


def test_errors_absences_and_programs_are_kept_as_they_were(tmp_path: Path) -> None:
    machine = tmp_path / "machine"
    (machine / "commands").mkdir(parents=True)
    (machine / "commands/nvme_list.txt").write_text("nvme0\n")
    (machine / "commands/nvme_list.status").write_text("1\n")
    (machine / "errors.toml").write_text('"/sys/a" = "EIO"\n"/commands/slow.txt" = "ETIMEDOUT"\n')
    (machine / "statvfs.toml").write_text(
        '["/data"]\ntotal_bytes = 9\nfree_bytes = 1\ntotal_inodes = 5\nfree_inodes = 2\nread_only = true\n'
    )

    def read(host: Host) -> None:
        for ask in (
            lambda: host.text("/sys/a"),
            lambda: host.text("/sys/none"),
            lambda: host.run(("slow",), 1),
            lambda: host.run(("nvme", "list"), 1),
            lambda: host.run(("absent",), 1),
            lambda: host.statvfs("/data"),
            host.gpus,
        ):
            try:
                ask()
            except (OSError, Unavailable):
                continue

    again = captured(machine, tmp_path / "record", read)

    with pytest.raises(OSError, match=r"Input/output error: '/sys/a'"):
        again.text("/sys/a")
    with pytest.raises(FileNotFoundError):
        again.text("/sys/none")
    with pytest.raises(TimeoutError):
        again.run(("slow",), 1)
    assert again.run(("nvme", "list"), 1) == Host(machine).run(("nvme", "list"), 1)
    assert again.statvfs("/data") == Host(machine).statvfs("/data")
    with pytest.raises(Unavailable, match="no nvml"):
        again.gpus()


def test_what_goes_on_for_long_is_named_and_only_while_it_goes_on() -> None:
    deadline = time.monotonic() + 60
    with contextlib.redirect_stderr(io.StringIO()) as stderr, Doing(patience_s=0.05) as doing:
        doing.say("statvfs /data")
        while "still at: statvfs /data\n" not in stderr.getvalue():
            assert time.monotonic() < deadline
            time.sleep(0.001)  # leaves the interpreter to the thread that writes
    assert stderr.getvalue().count("\n") == 1


def test_names_are_gone_and_what_belonged_together_still_does() -> None:
    scrubber = Redactor(KEY, ["gpu042.site.org", "gpu042"])
    text = (
        "gpu042 kernel: NVRM: GPU at PCI:0000:9b:00: GPU-509665ad-b600-ac93-3616-d754b23d636d\n"
        "NVRM: GPU Board Serial Number: 1650124014249\n"
        '{"uuid": "GPU-509665ad-b600-ac93-3616-d754b23d636d", "serial": "1650124014249"}\n'
        "b8:3f:d2:01:02:03 946d:ae03:00f8:1234 fe80:0000:0000:0000:946d:ae03:00f8:1234 192.168.7.21:/export\n"
    )

    scrubbed = scrubber.text(text)

    for name in ("gpu042", "509665ad", "d754b23d636d", "1650124014249", "b8:3f:d2", "946d", "192.168.7.21"):
        assert name not in scrubbed
    assert "PCI:0000:9b:00: GPU-" in scrubbed
    first, second = (component[:36] for component in scrubbed.split("GPU-")[1:])
    assert first == second
    assert scrubber.text(text) == scrubbed
    assert Redactor(b"another machine").text(text) != scrubbed


@pytest.mark.parametrize(
    "text",
    [
        "0000:1b:00.0 0x00000002a40c7e80 96.00.89.00.01 580.95.05 28.39.1002",
        "0000:0000:0000:0000 00:00:00:00:00:00 127.0.0.1:/x",
        "4: ACTIVE 400 Gb/sec (4X NDR)",
        "NVRM: Xid (PCI:0002:00:00): 79, pid=1582259, name=nvc:[driver], GPU has fallen off the bus.",
    ],
)
def test_what_is_no_name_stays(text: str) -> None:
    assert Redactor(KEY, ["node1"]).text(text) == text


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("Smart Array P408i-a SR Gen10 in Slot 0 (Embedded)  (sn: PEYHC0DRHBV3XX)", "PEYHC0DRHBV3XX"),
        ('"SAS Address" : " 500605b00594e5e0",', "500605b00594e5e0"),
        ('"Vendor Serial Number": "MT2245FT01234"', "MT2245FT01234"),
    ],
)
def test_the_tools_of_disks_and_cables_give_no_serial_number_away(text: str, secret: str) -> None:
    scrubbed = Redactor(KEY).text(text)

    assert secret not in scrubbed
    assert len(scrubbed) == len(text)


def test_a_file_with_a_serial_number_holds_nothing_else() -> None:
    scrubbed = Redactor(KEY).text("J1000XYZ-7", "/sys/class/dmi/id/product_serial")

    assert scrubbed != "J1000XYZ-7"
    assert len(scrubbed) == 10
    assert scrubbed[8] == "-"


def test_file_servers_in_the_mount_table_are_renamed() -> None:
    line = "36 22 0:45 / /data rw - nfs4 filer01.corp:/export rw,addr=10.1.2.3"

    scrubbed = Redactor(KEY).text(line, "/proc/1/mountinfo")

    assert "filer01" not in scrubbed
    assert "10.1.2.3" not in scrubbed
    assert ":/export rw,addr=10." in scrubbed


@given(st.text(max_size=300), st.sampled_from(["", "/proc/1/mountinfo", "/sys/serial"]))
def test_any_text_can_be_scrubbed_and_comes_out_the_same_each_time(text: str, path: str) -> None:
    scrubber = Redactor(KEY, [os.uname().nodename])

    assert scrubber.text(text, path) == scrubber.text(text, path)
