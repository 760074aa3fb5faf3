"""Key files that others could read are not used."""

import os
from pathlib import Path

import pytest

from nodetriage.service.private import NotPrivate, read_private


@pytest.fixture
def key(tmp_path: Path) -> Path:
    path = tmp_path / "node.key"
    path.touch(0o600)
    path.write_bytes(b"secret")
    return path


@pytest.mark.parametrize("mode", [0o600, 0o400])
def test_a_file_of_its_reader_alone_is_read(key: Path, mode: int) -> None:
    key.chmod(mode)
    assert read_private(key) == b"secret"


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o644, 0o601])
def test_any_access_for_others_is_refused_with_what_to_do(key: Path, mode: int) -> None:
    key.chmod(mode)
    with pytest.raises(NotPrivate, match=f"mode {mode:04o}.: chmod 0600 {key}"):
        read_private(key)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give a file away")
def test_a_file_of_someone_else_is_refused(key: Path) -> None:
    os.chown(key, 65534, 65534)
    with pytest.raises(NotPrivate, match="expected owner uid 0, got 65534: chown 0 "):
        read_private(key)


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo", 0o600)
    writer = os.open(tmp_path / "fifo", os.O_RDWR)
    try:
        with pytest.raises(NotPrivate, match="regular file"):
            read_private(tmp_path / "fifo")
    finally:
        os.close(writer)
