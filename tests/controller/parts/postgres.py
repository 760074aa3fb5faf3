"""A real PostgreSQL, started in a temporary folder."""

import contextlib
import os
import pwd
import shutil
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest


def _postgres_bin() -> Path:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
    if not found:
        pytest.skip("PostgreSQL's server is needed: Debian package postgresql")
    return found[-1].parent


def _unprivileged() -> pwd.struct_passwd:
    """PostgreSQL refuses to run as root."""
    return pwd.getpwuid(os.getuid()) if os.getuid() else pwd.getpwnam("nobody")


@contextlib.contextmanager
def running_server() -> Iterator[str]:
    """A running server; gives the folder of its socket. No TCP."""
    account, programs = _unprivileged(), _postgres_bin()
    folder = Path(tempfile.mkdtemp(prefix="nodetriage-pg-"))
    if os.getuid() == 0:
        os.chown(folder, account.pw_uid, account.pw_gid)
    who = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []} if os.getuid() == 0 else {}
    subprocess.run(
        [programs / "initdb", "--no-sync", "-A", "trust", "-U", "nodetriage", "-D", folder / "data"],
        check=True,
        capture_output=True,
        cwd=folder,
        **who,
    )
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(
            [programs / "postgres", "-D", folder / "data", "-k", folder, "-c", "listen_addresses=", "-F"],
            stdout=log,
            stderr=log,
            cwd=folder,
            **who,
        )
    try:
        _wait_until_it_answers(folder, server)
        yield str(folder)
    finally:
        server.terminate()  # SIGTERM is PostgreSQL's smart shutdown; SIGINT would cut its clients
        try:
            server.wait(60)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait(10)
        shutil.rmtree(folder)


def _wait_until_it_answers(folder: Path, server: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            psycopg.connect(host=str(folder), user="nodetriage", dbname="postgres").close()
        except psycopg.OperationalError:
            assert server.poll() is None, (folder / "log").read_text()
            assert time.monotonic() < deadline, (folder / "log").read_text()
            time.sleep(0.05)
        else:
            return


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    with running_server() as folder:
        yield folder


@contextlib.contextmanager
def new_database(postgres_server: str) -> Iterator[str]:
    """The URL of an empty database on the running server; it is dropped at the end."""
    name = f"t{uuid.uuid4().hex}"
    with psycopg.connect(host=postgres_server, user="nodetriage", dbname="postgres", autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name}".encode())
        yield f"postgresql://nodetriage@/{name}?host={postgres_server}"
        admin.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


@pytest.fixture
def postgres_url(postgres_server: str) -> Iterator[str]:
    """An empty database of its own on the running server."""
    with new_database(postgres_server) as url:
        yield url
