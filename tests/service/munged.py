"""A real munged under a folder of its own: its key, its socket, and credentials that others' uids make."""

import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import pytest


class Munged:
    """Running from the start; `close` ends it. `key` of another Munged makes it one of the same cluster."""

    def __init__(self, key: Path | None = None, origin: str = "127.0.0.1") -> None:
        if os.geteuid() != 0 or shutil.which("munged") is None:
            pytest.skip("munged needs root and Debian's package munge")
        folder = Path(tempfile.mkdtemp(prefix="nodetriage-munge-"))
        folder.chmod(0o755)  # other users make credentials too
        self.folder, self.key, self.socket = folder, key or folder / "key", str(folder / "socket")
        if key is None:
            self.key.touch(0o600)
            self.key.write_bytes(os.urandom(128))
        self._origin = origin
        self._process: subprocess.Popen[bytes]
        self.start()

    def start(self) -> None:
        parts = {"key": self.key, "socket": self.socket} | {p: self.folder / p for p in ("pid", "log", "seed")}
        argv = ["setpriv", "--pdeathsig", "KILL", "munged", "--foreground", "--force", f"--origin={self._origin}"]
        argv += [f"--{n}{'-file' if n != 'socket' else ''}={path}" for n, path in parts.items()]
        self._process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 60
        while not Path(self.socket).exists():
            assert self._process.poll() is None, (self.folder / "log").read_text()
            assert time.monotonic() < deadline, "munged made no socket"
            time.sleep(0.01)

    def stop(self) -> None:
        if self._process.poll() is None:
            self._process.terminate()
            self._process.wait(60)

    def close(self) -> None:
        self.thaw()
        self.stop()
        shutil.rmtree(self.folder)

    def freeze(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def credential(self, payload: str, *options: str, uid: int = 0) -> str:
        """As another user makes it, with the program munge."""
        argv = ["setpriv", f"--reuid={uid}", "--clear-groups"] if uid else []
        argv += ["munge", f"--socket={self.socket}", f"--string={payload}", *options]
        return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()
