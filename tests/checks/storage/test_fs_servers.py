"""What the clients of network file systems say of their servers."""

from pathlib import Path

import pytest

from nodetriage.agent.machine.host import Host
from nodetriage.checks.model import Finding, KernelRecord
from nodetriage.checks.storage.fs_servers import CHECK, Said, clears, judge, next_state, read

MOUNTS = (
    "31 1 0:40 / /home rw - nfs4 fileserver01:/home rw",
    "32 1 0:41 / /scratch rw - lustre 10.0.0.21@o2ib:/scratch rw",
    "33 1 0:42 / /data rw - ceph 10.0.0.40:6789:/ rw",
    "34 1 0:43 / /beegfs rw - beegfs beegfs_nodev rw",
)
LUSTRE = "scratch-OST0003-osc-ffff9d0c4a5d6000"
WAITS = "in progress operations using this service will wait for recovery to complete"


def said(tmp_path: Path, *lines: str, mounts: tuple[str, ...] = MOUNTS) -> Said:
    (tmp_path / "proc/1").mkdir(parents=True, exist_ok=True)
    (tmp_path / "proc/1/mountinfo").write_text("\n".join(("30 1 8:2 / / rw - ext4 /dev/sda2 rw", *mounts)) + "\n")
    records = tuple(KernelRecord(i, i * 1_000_000, 3, line) for i, line in enumerate(lines))
    return read(Host(tmp_path).for_check(CHECK, records))


def found(now: Said, before: Said | None = None) -> list[Finding]:
    return list(judge(now, before, CHECK.policy))


@pytest.mark.parametrize(
    ("line", "component", "fault", "severity", "source", "fstype"),
    [
        (
            "nfs: server fileserver01 not responding, still trying",
            "nfs fileserver01", "fs_server_lost", "WARNING", "fileserver01", "nfs",
        ),
        (
            f"Lustre: {LUSTRE}: Connection to scratch-OST0003 (at 10.0.0.23@o2ib) was lost; {WAITS}",
            "lustre scratch-OST0003", "fs_server_lost", "WARNING", "10.0.0.23@o2ib", "lustre",
        ),
        (
            f"LustreError: 167-0: {LUSTRE}: This client was evicted by scratch-OST0003; {WAITS}",
            "lustre scratch-OST0003", "fs_client_evicted", "MAJOR", "scratch-OST0003", "lustre",
        ),
        (
            f"LustreError: 132-0: {LUSTRE}: BAD WRITE CHECKSUM: changed in transit before arrival at OST: from 10.0.0.23@o2ib",
            "lustre scratch-OST0003", "fs_data_damaged", "MAJOR", "scratch-OST0003", "lustre",
        ),
        (
            "LustreError: 2211:0:(osc_cache.c:1141:osc_extent_make_ready()) LBUG",
            "lustre client", "fs_client_stuck", "MAJOR", "client", "lustre",
        ),
        ("ceph: mds0 session blocklisted", "ceph mds0", "fs_client_evicted", "MAJOR", "mds0", "ceph"),
        (
            "libceph: mon1 (1)10.0.0.41:6789 session lost, hunting for new mon",
            "ceph monitors", "fs_server_lost", "WARNING", "10.0.0.41:6789", "ceph",
        ),
        (
            "beegfs: python3(4711): Messaging (RPC): Unable to connect to: beegfs-storage storage03 [ID: 3]",
            "beegfs beegfs-storage storage03 [ID: 3]", "fs_server_lost", "WARNING", "beegfs-storage storage03 [ID: 3]", "beegfs",
        ),
    ],
)  # fmt: skip
def test_what_a_client_says_is_a_fault_with_its_server_s_name(
    tmp_path: Path, line: str, component: str, fault: str, severity: str, source: str, fstype: str
) -> None:
    (finding,) = found(said(tmp_path, line))

    assert (finding.component, finding.fault, finding.severity.name) == (component, fault, severity)
    assert (finding.evidence["source"], finding.evidence["fstype"]) == (source, fstype)


BACK = {
    "nfs": ("nfs: server fileserver01 not responding, still trying", "nfs: server fileserver01 OK"),
    "lustre": (
        f"LustreError: {LUSTRE}: This client was evicted by scratch-OST0003; {WAITS}",
        f"Lustre: {LUSTRE}: Connection restored to 10.0.0.23@o2ib (at 10.0.0.23@o2ib)",
    ),
    "ceph": (
        "libceph: mon1 (1)10.0.0.41:6789 session lost, hunting for new mon",
        "libceph: mon0 (1)10.0.0.40:6789 session established",
    ),
    "beegfs": (
        "beegfs: python3(4711): Messaging (RPC): Unable to connect to: beegfs-storage storage03 [ID: 3]",
        "beegfs: python3(4711): NodeConn (acquire stream): Connected: beegfs-storage storage03 [ID: 3]@10.0.0.33:8003",
    ),
}


@pytest.mark.parametrize("kind", BACK)
def test_a_server_that_is_back_ends_the_fault_and_one_that_is_lost_again_does_not(tmp_path: Path, kind: str) -> None:
    lost, back = BACK[kind]
    (finding,) = found(said(tmp_path, lost))

    assert found(said(tmp_path, lost, back)) == []
    assert (finding.component, finding.fault) in set(clears(said(tmp_path, back), None))
    assert [f.fault for f in found(said(tmp_path, lost, back, lost))] == [finding.fault]
    assert list(clears(said(tmp_path, lost), None)) == []


def test_a_server_that_is_back_ends_nothing_of_another(tmp_path: Path) -> None:
    lines = ("nfs: server fileserver01 not responding, still trying", "nfs: server fileserver02 OK")

    assert [f.component for f in found(said(tmp_path, *lines))] == ["nfs fileserver01"]


@pytest.mark.parametrize(
    "line",
    [
        "nfs: server elsewhere not responding, still trying",
        f"LustreError: {LUSTRE}: This client was evicted by scratch-OST0003; {WAITS}",
    ],
)
def test_a_server_of_no_mount_is_a_warning_that_says_so(tmp_path: Path, line: str) -> None:
    (finding,) = found(said(tmp_path, line, mounts=MOUNTS[:1]))

    assert (finding.fault, finding.severity.name) == ("kernel_line_unknown_device", "WARNING")


def test_a_server_that_was_mounted_in_this_boot_is_known(tmp_path: Path) -> None:
    before = next_state(None, said(tmp_path))

    (finding,) = found(said(tmp_path, BACK["nfs"][0], mounts=()), before)

    assert finding.fault == "fs_server_lost"


@pytest.mark.parametrize(
    "line",
    [
        "NFS: v4 server fileserver01 does not accept raw uid/gids. Reenabling the idmapper.",
        f"LustreError: 132-0: {LUSTRE}: BAD WRITE CHECKSUM: changed on the client after we checksummed it - likely false positive",
        "Lustre: Mounted scratch-client",
        "ceph: mds0 reconnect start",
        "libceph: osd12 (1)10.0.0.52:6801 socket closed (con state OPEN)",
    ],
)  # fmt: skip
def test_what_clients_say_all_day_is_no_fault(tmp_path: Path, line: str) -> None:
    assert found(said(tmp_path, line)) == []
