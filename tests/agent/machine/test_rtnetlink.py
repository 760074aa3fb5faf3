"""Links whose carrier comes or goes: real veth pairs in a network namespace, and messages of any form."""

import contextlib
import os
import shutil
import socket
import struct
import subprocess
import sys
import textwrap

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodetriage.agent.machine.rtnetlink import LinkEvents, LinkState, link_states


def message(kind: int, index: int, flags: int, name: bytes) -> bytes:
    attribute = struct.pack("=HH", 4 + len(name) + 1, 3) + name + b"\0"
    body = struct.pack("=BxHiII", 0, 1, index, flags, 0) + attribute + b"\0" * (-len(attribute) % 4)
    return struct.pack("=IHHII", 16 + len(body), kind, 0, 0, 0) + body


def test_each_message_of_a_datagram_is_read() -> None:
    data = message(16, 2, 0x11043, b"eno1") + message(17, 3, 0x11043, b"gone") + message(16, 4, 0x1003, b"ibp24s0")

    assert list(link_states(data)) == [LinkState(2, "eno1", True), LinkState(4, "ibp24s0", False)]


@given(st.binary(max_size=300))
def test_no_message_makes_the_reader_fail(data: bytes) -> None:
    for link in link_states(data):
        assert len(link.name) <= 32


@given(st.integers(0, 60), st.binary(max_size=8))
def test_a_message_that_is_cut_off_or_spoilt_says_nothing_false(cut: int, noise: bytes) -> None:
    whole = message(16, 2, 0x11043, b"eno1")

    assert all(link.index == 2 for link in link_states(whole[:cut] + noise) if cut >= 24)


def test_what_another_process_sends_is_not_believed() -> None:
    events = LinkEvents()
    sender = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
    ours = socket.socket(fileno=os.dup(events.fd))
    try:
        with contextlib.suppress(OSError):  # some kernels refuse it already
            sender.sendto(message(16, 999_999, 0, b"eno1"), ours.getsockname())
        assert 999_999 not in {link.index for link in events.read()}
    finally:
        for one in (sender, ours, events):
            one.close()


IN_A_NAMESPACE = """
import asyncio, subprocess, time
from nodetriage.agent.watchers import LinkWatcher

def ip(*words):
    subprocess.run(("ip", "link", *words), check=True)

async def main():
    told_at, asked, wake = [], [], asyncio.Event()
    def changed():
        told_at.append(time.monotonic())
        wake.set()
    def follows(name):
        asked.append(name)
        return name == "left"
    async def until(true):
        async with asyncio.timeout(60):
            while not true():
                wake.clear()
                await wake.wait()
    ip("add", "left", "type", "veth", "peer", "name", "right")
    watcher = LinkWatcher(changed, follows)
    watcher.start()
    assert not watcher.trouble, watcher.trouble
    ip("set", "left", "up")
    ip("set", "right", "up")
    await until(lambda: asked.count("left") == 2 and len(told_at) >= 2)
    known, lost_at = len(told_at), time.monotonic()
    ip("set", "right", "down")
    await until(lambda: len(told_at) > known)
    print("lost", told_at[-1] - lost_at)
    known, back_at = len(told_at), time.monotonic()
    ip("set", "right", "up")
    await until(lambda: len(told_at) >= known + 2 and told_at[-1] - back_at >= 2)
    print("again", told_at[-1] - back_at)
    changes = asked.count("left")
    ip("set", "left", "mtu", "1400")
    ip("set", "right", "address", "02:00:00:00:00:07")
    ip("set", "right", "down")
    known = len(told_at)
    await until(lambda: len(told_at) > known)
    print("changes", asked.count("left") - changes)
    watcher.stop()

asyncio.run(main())
"""


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("ip"), reason="network namespaces need root and iproute2")
def test_a_lost_carrier_is_told_within_a_second_and_again_when_a_new_training_is_over() -> None:
    ran = subprocess.run(
        ["unshare", "--net", sys.executable, "-c", textwrap.dedent(IN_A_NAMESPACE)],
        capture_output=True,
        text=True,
        timeout=200,
    )

    assert ran.returncode == 0, ran.stderr
    told = dict(line.split() for line in ran.stdout.splitlines())
    assert float(told["lost"]) < 1.0
    assert float(told["again"]) < 30
    assert told["changes"] == "1"  # another change of an interface is no change of its carrier
