"""sd_notify(3): reports a service's state to systemd, as datagrams on a Unix socket."""

import contextlib
import os
import socket
import time
from collections.abc import Mapping


class Notify:
    """Does nothing where systemd set no socket. Never raises and never blocks."""

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        self._address = environ.get("NOTIFY_SOCKET", "")
        for_us = environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        watchdog_us = environ.get("WATCHDOG_USEC", "0")
        self.watchdog_s = int(watchdog_us) / 1e6 if for_us and watchdog_us.isdecimal() else 0.0

    def ready(self, status: str) -> None:
        self._send(f"READY=1\nSTATUS={status}\nMAINPID={os.getpid()}")

    def status(self, text: str) -> None:
        self._send(f"STATUS={text}")

    def alive(self, status: str = "") -> None:
        self._send("WATCHDOG=1" + (f"\nSTATUS={status}" if status else ""))

    def reloading(self) -> None:
        now_us = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        self._send(f"RELOADING=1\nMONOTONIC_USEC={now_us}")

    def stopping(self) -> None:
        self._send("STOPPING=1")

    def _send(self, message: str) -> None:
        if not self._address:
            return
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
            out.setblocking(False)
            out.sendto(message.encode(), address)
