"""A controller as a process behind mutual TLS with tight limits, and what its log says of those it sent away."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from programs import NODETRIAGECTL, Program
from secure import Site
from slurm_cluster import wait_until

PATIENCE_S = 5.0  # less would cut off a good agent too, on a machine that stands still for a moment
LIMITS = {
    "max_connections": 60,
    "max_message_bytes": 65536,
    "handshake_within_s": PATIENCE_S,
    "hello_within_s": PATIENCE_S,
    "idle_connection_s": PATIENCE_S,
}


class Guarded:
    """`target` is where it listens."""

    def __init__(self, program: Program, site: Site) -> None:
        self.program, self.site = program, site
        wait_until(lambda: self.said("listening") or program.status is not None, 60, "the controller listens")
        assert program.status is None, program.said()
        self.target = f"127.0.0.1:{self.said('listening')[0]['port']}"

    def said(self, event: str) -> list[dict[str, Any]]:
        lines = [line for line in self.program.said().splitlines(keepends=True) if line.startswith("{")]
        found = [json.loads(line) for line in lines if line.endswith("\n")]
        return [line for line in found if line["event"] == event]

    def sent_away(self, reason: str, peer: str = "") -> list[dict[str, Any]]:
        """
        Those sent away for a reason that has these words ("CODE: reason"), all or at one address. Waits until there is
        one, for the log may be written after the peer has its answer. Raises TimeoutError.
        """

        def known() -> list[dict[str, Any]]:
            return [
                record
                for record in self.said("peer sent away")
                if reason in f"{record['code']}: {record['reason']}" and record["peer"] == (peer or record["peer"])
            ]

        wait_until(known, 60, f"{peer or 'a peer'} is sent away for {reason!r}")
        return known()

    def broke_off(self, count: int) -> list[dict[str, Any]]:
        """The streams that ended without an answer of ours; waits until there are `count`. Raises TimeoutError."""
        event = "stream broken off"
        wait_until(lambda: len(self.said(event)) >= count, 60, f"{count} streams broken off")
        return self.said(event)


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
        assert program.stop(60) == 0, program.said()
    finally:
        if program.status is None:
            program.kill()
        print(program.said()[-5000:])  # seen if the test failed
