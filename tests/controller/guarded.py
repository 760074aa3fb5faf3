"""A controller as a process behind mutual TLS with tight limits, and what its log says of those it sent away."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from programs import NODETRIAGECTL, Program
from secure import Site
from slurm_cluster import wait_until

LIMITS = {
    "max_connections": 60,
    "max_message_bytes": 65536,
    "handshake_within_s": 1.0,
    "hello_within_s": 1.0,
    "idle_connection_s": 1.0,
}


class Guarded:
    """`target` is where it listens."""

    def __init__(self, program: Program, site: Site) -> None:
        self.program, self.site = program, site
        wait_until(lambda: self.said("listening") or program.status is not None, 30, "the controller listens")
        assert program.status is None, program.said()
        self.target = f"127.0.0.1:{self.said('listening')[0]['port']}"

    def said(self, event: str) -> list[dict[str, Any]]:
        lines = [line for line in self.program.said().splitlines(keepends=True) if line.startswith("{")]
        found = [json.loads(line) for line in lines if line.endswith("\n")]
        return [line for line in found if line["event"] == event]

    def refusals(self, peer: str = "") -> list[str]:
        """ "CODE: reason" of those sent away, or of one peer."""
        found = [r for r in self.said("peer sent away") if not peer or r["peer"] == peer]
        return [f"{r['code']}: {r['reason']}" for r in found]

    def sent_away(self, peer: str, reason: str) -> None:
        """Waits until the log says so; raises TimeoutError with what it says instead."""
        deadline = time.monotonic() + 10
        while not any(reason in said for said in self.refusals(peer)):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{peer or 'nobody'} was not sent away for {reason!r}: {self.refusals()[-10:]}")
            time.sleep(0.02)


@contextmanager
def guarded(folder: Path) -> Iterator[Guarded]:
    site = Site(folder / "pki")
    settings = folder / "controller.toml"
    limits = "".join(f"{key} = {value}\n" for key, value in LIMITS.items())
    settings.write_text(
        f'[controller]\nlisten = "127.0.0.1:0"\nstate_dir = "{folder}/state"\n[scheduler]\nkind = "none"\n'
        f"[admission]\n{limits}{site.toml}"
    )
    program = Program(folder / "log", NODETRIAGECTL, "controller", "--config", str(settings))
    try:
        yield Guarded(program, site)
        assert program.stop() == 0, program.said()
    finally:
        if program.status is None:
            program.kill()
        print(program.said()[-5000:])  # seen if the test failed
