"""The controller as a real process: starts once a folder, tells systemd, reloads, stops, and survives kill -9."""

import asyncio
import os
import re
import signal
import socket
import sqlite3
import stat
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
from fleet_client import BOOT, acked, agent, event

from nodetriage.v1 import health_pb2 as pb

CTL = str(Path(sys.executable).parent / "nodetriagectl")


class Controller:
    """A controller in a folder with a short path (a Unix socket's may have 107 bytes)."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.log = folder, folder / "log"
        self.target = f"unix:{folder}/c.sock"
        self.settings = folder / "controller.toml"
        self.settings.write_text(
            f'[controller]\nlisten = "{self.target}"\nstate_dir = "{folder}/state"\n[scheduler]\nkind = "none"\n'
        )
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, **environ: str) -> "subprocess.Popen[bytes]":
        started = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [CTL, "controller", "--config", str(self.settings)], stderr=log, env={**os.environ, **environ}
            )
        self.wait_for_log("reconciler started", started)
        return self.process

    def wait_for_log(self, words: str, start: int = 0) -> None:
        deadline = time.monotonic() + 60
        while words not in self.log.read_text()[start:]:
            assert self.process is not None
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.02)

    def stored(self) -> list[tuple[str, int]]:
        connection = sqlite3.connect(self.folder / "state/history.sqlite")
        try:
            return connection.execute("SELECT node, seq FROM events ORDER BY id").fetchall()
        finally:
            connection.close()


@pytest.fixture
def controller() -> Iterator[Controller]:
    with tempfile.TemporaryDirectory(prefix="ctl-") as name:
        controller = Controller(Path(name))
        try:
            yield controller
        finally:
            if controller.process and controller.process.poll() is None:
                controller.process.kill()
                controller.process.wait(60)


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(main(), 100))


def batch(*seqs: int) -> pb.AgentMessage:
    return pb.AgentMessage(events=pb.EventBatch(events=[event(seq) for seq in seqs]))


@pytest.mark.parametrize(("die_at", "on_disk"), [("server.before_commit", []), ("server.before_ack", [("n1", 1)])])
def test_killed_between_record_and_ack_the_agent_sends_again_and_nothing_is_stored_twice(
    controller: Controller, die_at: str, on_disk: list[tuple[str, int]]
) -> None:
    async def until_killed() -> None:
        async with agent(controller.target) as stream:
            await stream.hello("n1", agent_version="0.1.0")
            await stream.send(batch(1))
            assert (await stream.status())[0].name == "UNAVAILABLE"

    async def again() -> None:
        async with agent(controller.target) as stream:
            welcome = await stream.hello("n1", agent_version="0.1.0")
            assert [("n1", r.last_seq) for r in welcome.stored] == on_disk
            await stream.send(batch(1, 2))
            assert acked(await stream.next()) == [(BOOT, 1, 2)]

    killed = controller.start(NODETRIAGE_DIE_AT=die_at)
    run(until_killed)
    assert killed.wait(60) == -signal.SIGKILL
    assert controller.stored() == on_disk
    controller.start()
    run(again)
    assert sorted(controller.stored()) == [("n1", 1), ("n1", 2)]


def test_a_second_controller_on_the_same_folder_refuses_to_start(controller: Controller) -> None:
    first = controller.start()
    second = subprocess.run(
        [CTL, "controller", "--config", controller.settings], capture_output=True, text=True, timeout=60
    )
    assert second.returncode == 78
    assert f"in use by another controller (pid {first.pid})" in second.stderr
    assert len(second.stderr.splitlines()) == 1
    assert first.poll() is None


def test_it_tells_systemd_that_it_is_ready_alive_and_stopping(controller: Controller) -> None:
    path = controller.folder / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as inbox:
        inbox.bind(str(path))
        inbox.settimeout(60)
        process = controller.start(NOTIFY_SOCKET=str(path))
        assert inbox.recv(1000).startswith(b"READY=1\nSTATUS=listening on unix:")
        assert inbox.recv(1000).startswith(b"WATCHDOG=1")
        process.terminate()
        assert process.wait(60) == 0
        heard = b""
        while b"STOPPING=1" not in heard:
            heard = inbox.recv(1000)


def test_prometheus_is_told_of_what_was_stored(controller: Controller) -> None:
    with controller.settings.open("a") as settings:
        settings.write('[metrics]\nlisten = "127.0.0.1:0"\n')
    process = controller.start()
    (port,) = re.findall(r'"port": (\d+), "event": "metrics are served"', controller.log.read_text())

    async def main() -> str:
        async with agent(controller.target) as stream:
            await stream.hello("n1", agent_version="0.1.0")
            await stream.send(batch(1, 2))
            assert acked(await stream.next()) == [(BOOT, 1, 2)]
            return await asyncio.to_thread(scrape)

    def scrape() -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
            return str(answer.read().decode())

    told = asyncio.run(main())
    assert "\nnodetriage_agents_connected 1.0\n" in told
    assert "\nnodetriage_events_stored_total 2.0\n" in told
    assert "\nnodetriage_ack_seconds_count 1.0\n" in told
    assert "\nprocess_resident_memory_bytes " in told
    process.terminate()
    assert process.wait(60) == 0


async def test_a_node_that_falls_silent_is_named_and_so_is_its_return(controller: Controller) -> None:
    text = controller.settings.read_text()
    quick = "heartbeat_every_s = 0.1\nmissed_heartbeats = 2\nstate_dir"
    controller.settings.write_text(text.replace("state_dir", quick))
    controller.start()

    async with agent(controller.target) as stream:
        await stream.hello("n1", agent_version="0.1.0")
        await asyncio.to_thread(controller.wait_for_log, '"nodes silent"')
        assert '"nodes": ["n1"]' in controller.log.read_text()
        beat = pb.AgentMessage(heartbeat=pb.Heartbeat(boot_id=BOOT))
        back = asyncio.ensure_future(asyncio.to_thread(controller.wait_for_log, '"nodes heard again"'))
        while not back.done():
            await stream.send(beat)
            await asyncio.wait([back], timeout=0.05)
        await back


def test_a_bad_file_on_sighup_keeps_the_old_settings_and_says_so(controller: Controller) -> None:
    process = controller.start()
    good = controller.settings.read_text()
    controller.settings.write_text("[controller]\nlistn = 1\n")
    process.send_signal(signal.SIGHUP)
    controller.wait_for_log("reload refused, settings unchanged")
    assert "controller.listn: unknown key" in controller.log.read_text()
    controller.settings.write_text(good.replace("state_dir", "missed_heartbeats = 9\nstate_dir"))
    process.send_signal(signal.SIGHUP)
    controller.wait_for_log('"needs_restart": ["controller"]')
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 0


def test_a_bad_file_at_the_start_is_one_line_and_78(controller: Controller) -> None:
    controller.settings.write_text(f'[controller]\nlisten = "0.0.0.0:7443"\nstate_dir = "{controller.folder}/s"\n')
    done = subprocess.run(
        [CTL, "controller", "--config", controller.settings], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 78
    assert "0.0.0.0:7443: plaintext proves nobody's identity" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_operators_reach_it_through_a_socket_that_is_its_owners_alone(controller: Controller) -> None:
    process = controller.start()
    path = controller.folder / "state/operator.sock"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600

    def ctl(*argv: str) -> "subprocess.CompletedProcess[str]":
        argv = (CTL, *argv, "--config", str(controller.settings))
        return subprocess.run(argv, capture_output=True, text=True, timeout=60)

    refused = ctl("maintenance", "n1", "on", "--reason", "new fan")
    assert (refused.returncode, "never heard of this node" in refused.stderr) == (1, True)
    assert (ctl("breaker", "status").returncode, ctl("queue").stdout) == (0, "no drain is queued\n")
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0
    assert not path.exists()
    assert ctl("undrain", "n1").returncode == 3
