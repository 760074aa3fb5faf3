"""File systems that are not mounted, read-only, stale or failing."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodetriage.agent.machine.host import Host
from nodetriage.checks.model import Finding, Severity
from nodetriage.checks.model.kernel_line import kernel_pattern
from nodetriage.checks.readers.mounts import Fstab, Mount, read_mounts
from nodetriage.checks.storage.fs_mounts import CHECK, Expected, Policy, Table, judge, next_state, read

HOME = Mount("/home", "nfs4", "nfs01:/home", mount_read_only=False, super_read_only=False, emergency=False)
READ_ONLY = replace(HOME, super_read_only=True)
WANTED = Fstab("nfs01:/home", "/home", "nfs4", ("hard", "_netdev"))
ROOT = "22 1 9:0 / / rw,relatime shared:1 - ext4 /dev/md0 rw"


def found(*mounts: Mount, fstab: tuple[Fstab, ...] = (WANTED,), before=None, policy=None) -> list[Finding]:
    return list(judge(Table(mounts, fstab), before, policy or Policy()))


def faults(findings: list[Finding]) -> dict[tuple[str, str], Severity]:
    return {(f.component, f.fault): f.severity for f in findings}


def machine(root: Path, *lines: str, fstab: str = "", errors: str = "") -> Host:
    (root / "proc/1").mkdir(parents=True)
    (root / "etc").mkdir()
    (root / "proc/1/mountinfo").write_text("\n".join(lines) + "\n")
    (root / "etc/fstab").write_text(fstab)
    (root / "errors.toml").write_text(errors)
    return Host(root)


def test_a_mounted_and_writable_file_system_is_well() -> None:
    assert found(HOME) == []


def test_a_mount_of_fstab_that_is_not_there_is_missing() -> None:
    assert faults(found()) == {("/home", "mount_missing"): Severity.CRITICAL}


def test_a_mount_that_the_node_may_boot_without_is_missed_less() -> None:
    nofail = replace(WANTED, options=("nofail",))

    assert faults(found(fstab=(nofail,))) == {("/home", "mount_missing"): Severity.MAJOR}


@pytest.mark.parametrize(
    "entry",
    [
        replace(WANTED, options=("noauto",)),
        Fstab("/dev/sda2", "none", "swap", ("sw",)),
    ],
)
def test_what_fstab_does_not_mount_at_boot_is_not_missed(entry: Fstab) -> None:
    assert found(fstab=(entry,)) == []


def test_a_mount_of_the_settings_is_expected_without_fstab_and_may_be_milder() -> None:
    policy = Policy(expected={"/scratch": Expected(severity=Severity.MAJOR)}, from_fstab=False)

    assert faults(found(policy=policy)) == {("/scratch", "mount_missing"): Severity.MAJOR}


def test_what_comes_when_somebody_asks_for_it_is_not_missed() -> None:
    direct = replace(HOME, fstype="autofs", source="systemd-1")
    below = replace(WANTED, point="/home/ada")

    assert found(direct) == []
    assert found(direct, fstab=(below,)) == []


def test_an_expected_file_system_that_turned_read_only_is_found() -> None:
    assert faults(found(READ_ONLY)) == {("/home", "mount_read_only"): Severity.CRITICAL}


def test_what_is_meant_to_be_read_only_is_well() -> None:
    assert found(READ_ONLY, fstab=(replace(WANTED, options=("ro",)),)) == []
    assert found(READ_ONLY, policy=Policy(expected={"/home": Expected(read_only=True)})) == []


def test_a_file_system_that_the_kernel_stopped_writing_to_is_found_though_its_flags_say_writable() -> None:
    stopped = replace(HOME, emergency=True)

    assert faults(found(stopped, fstab=())) == {("/home", "mount_read_only"): Severity.CRITICAL}


def test_one_that_nobody_expects_is_found_when_it_was_writable_before() -> None:
    memory = next_state(next_state(None, Table((HOME,), ())), Table((READ_ONLY,), ()))

    assert faults(found(READ_ONLY, fstab=(), before=memory)) == {("/home", "mount_read_only"): Severity.MAJOR}
    assert found(READ_ONLY, fstab=(), before=next_state(None, Table((READ_ONLY,), ()))) == []


def test_a_read_only_bind_mount_that_nobody_expects_is_no_fault() -> None:
    bind = replace(HOME, mount_read_only=True)

    assert found(bind, fstab=(), before=next_state(None, Table((HOME,), ()))) == []


@pytest.mark.parametrize(
    ("error", "fault"), [("ESTALE", "mount_stale"), ("EIO", "mount_failing"), ("ENOTCONN", "mount_failing")]
)
def test_a_mount_that_is_there_but_cannot_be_used_is_found(error: str, fault: str) -> None:
    broken = replace(HOME, error=error)

    assert faults(found(broken)) == {("/home", fault): Severity.CRITICAL}
    assert faults(found(broken, fstab=())) == {("/home", fault): Severity.MAJOR}


@pytest.mark.parametrize("error", ["EACCES", "EPERM", "ENOENT"])
def test_a_mount_that_is_not_ours_to_see_is_no_fault(error: str) -> None:
    assert found(replace(HOME, error=error)) == []


def test_mounts_of_users_are_left_alone() -> None:
    assert found(replace(HOME, point="/run/user/1000/doc", error="EIO"), fstab=()) == []


def test_the_whole_way_from_the_mount_table_to_findings(tmp_path: Path) -> None:
    host = machine(
        tmp_path,
        ROOT,
        r"61 22 9:1 / /data\040one rw,relatime shared:33 - ext4 /dev/md1 ro,emergency_ro",
        "118 22 0:71 / /home rw,relatime shared:210 - nfs4 nfs01:/home rw,vers=4.2",
        fstab="# comment\n\n/dev/md0 / ext4 errors=remount-ro 0 1\nnfs01:/home /home/ nfs4 hard 0 0\nx /gone xfs\nhalf",
        errors='"/home" = "ESTALE"\n"/" = "ENOENT"\n',
    )

    assert faults(list(judge(read(host), None, Policy()))) == {
        ("/gone", "mount_missing"): Severity.CRITICAL,
        ("/data one", "mount_read_only"): Severity.CRITICAL,
        ("/home", "mount_stale"): Severity.CRITICAL,
    }


def test_of_several_mounts_on_one_point_the_last_counts(tmp_path: Path) -> None:
    host = machine(
        tmp_path,
        "60 1 9:1 / /data ro,relatime - ext4 /dev/md1 ro",
        "61 60 9:2 / /data rw,relatime - xfs /dev/md2 rw",
    )

    assert [(m.fstype, m.read_only) for m in read_mounts(host)] == [("xfs", False)]


def test_what_lies_on_an_autofs_trigger_is_not_asked(tmp_path: Path) -> None:
    host = machine(
        tmp_path,
        "60 1 0:40 / /net rw,relatime - autofs auto.net rw,fd=6,indirect",
        "61 60 0:41 / /net/nfs01 rw,relatime - nfs4 nfs01:/ rw",
        errors='"/net/nfs01" = "EIO"\n"/net" = "EIO"\n',
    )

    assert [m.error for m in read(host).mounts] == ["", ""]


def test_without_the_right_to_see_process_1_our_own_table_is_read(tmp_path: Path) -> None:
    host = machine(tmp_path, "60 1 9:1 / /one rw - ext4 /dev/md1 rw", errors='"/proc/1/mountinfo" = "EACCES"\n')
    (tmp_path / "proc/self").mkdir()
    (tmp_path / "proc/self/mountinfo").write_text("60 1 9:1 / /two rw - ext4 /dev/md1 rw\n")

    assert [m.point for m in read_mounts(host)] == ["/two"]


@pytest.mark.parametrize(
    "line", ["", "60 1 9:1 / /data rw", "60 1 9:1 / - ext4 x rw", "60 1 9:1 / /d rw - ext4", "\x00"]
)
def test_half_a_mount_table_does_not_pass_for_a_whole_one(tmp_path: Path, line: str) -> None:
    host = machine(tmp_path, ROOT, line, ROOT)

    with pytest.raises(ValueError, match="mountinfo"):
        read(host)


def test_a_real_sample_of_nfs_mounts_is_read(tmp_path: Path) -> None:
    host = machine(
        tmp_path,
        "1196 31 0:59 / /logs rw,relatime shared:810 - nfs node101:/syslog rw,vers=3,hard,proto=tcp",
        "1930 31 0:71 / /public ro,relatime shared:940 - nfs node101:/public ro,vers=3,hard,proto=tcp",
    )

    assert [(m.point, m.read_only) for m in read_mounts(host)] == [("/logs", False), ("/public", True)]


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\r"), max_size=80), max_size=6))
def test_any_mount_table_is_read_or_refused_by_name(lines: list[str]) -> None:
    class Reader:
        def text(self, path: str) -> str:
            return "\n".join(lines)

    try:
        read_mounts(Reader())  # type: ignore[arg-type]
    except ValueError as error:
        assert "mountinfo" in str(error)  # noqa: PT017 either way is right, another error is not


@pytest.mark.parametrize(
    "line",
    [
        "nfs: server filer1 not responding, still trying",
        "Lustre: scratch-OST0004-osc-ffff8b: Connection to scratch-OST0004 (at 10.0.0.7@o2ib) was lost; in progress",
        "libceph: mon0 (1)10.0.0.3:6789 session lost, hunting for new mon",
        "EXT4-fs (nvme0n1p2): Remounting filesystem read-only",
        "XFS (nvme1n1): Corruption of in-memory data (0x8) detected at xfs_defer_finish.  Shutting down filesystem.",
        "XFS (nvme1n1): log I/O error -5: Filesystem has been shut down due to log error (0x2).",
        "BTRFS info (device sdb state EA): forced readonly",
    ],
)
def test_the_kernel_s_word_of_a_failing_server_or_file_system_wakes_it(line: str) -> None:
    assert CHECK.kernel_wakes
    assert kernel_pattern(CHECK.kernel_wakes).match(line)


@pytest.mark.parametrize(
    "line",
    ["nfs: server filer1 OK", "EXT4-fs (sda1): mounted filesystem with ordered data mode", "XFS (sda1): Mounting V5"],
)
def test_the_kernel_s_everyday_word_does_not_wake_it(line: str) -> None:
    assert CHECK.kernel_wakes
    assert not kernel_pattern(CHECK.kernel_wakes).match(line)


def test_every_finding_about_a_mount_carries_source_and_type(tmp_path: Path) -> None:
    broken = (
        replace(HOME, error="ESTALE"),
        replace(HOME, point="/b", error="EIO"),
        replace(HOME, point="/c", emergency=True),
        replace(HOME, point="/d", super_read_only=True),
    )
    policy = Policy(expected={"/d": Expected()})

    said = [*found(*broken, policy=policy), *found()]

    assert {f.fault for f in said} == {"mount_stale", "mount_failing", "mount_read_only", "mount_missing"}
    assert {(f.evidence["source"], f.evidence["fstype"]) for f in said} == {("nfs01:/home", "nfs4")}


SSHFS = "90 22 0:55 / /home/kim/far rw,nosuid shared:9 - fuse.sshfs kim@far:/ rw,user_id={user},group_id=1000"


def test_what_a_user_mounted_with_fuse_is_neither_asked_nor_judged(tmp_path: Path) -> None:
    errors = '"/home/kim/far" = "ENOTCONN"\n'
    host = machine(tmp_path, ROOT, SSHFS.format(user=1000), errors=errors)

    assert list(judge(read(host), None, Policy())) == []


def test_what_root_mounted_with_fuse_is_judged(tmp_path: Path) -> None:
    errors = '"/home/kim/far" = "ENOTCONN"\n'
    host = machine(tmp_path, ROOT, SSHFS.format(user=0), errors=errors)

    assert faults(list(judge(read(host), None, Policy()))) == {("/home/kim/far", "mount_failing"): Severity.MAJOR}
