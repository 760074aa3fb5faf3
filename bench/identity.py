"""What a connection costs by each way of identity: `bench/identity.py [CONNECTIONS]`. Root and munged for munge.

Connection, proof, hello and welcome, eight at a time, agent and controller in one process: the CPU time is of both
ends. After a controller's restart every node makes one. The last line is one JSON object, in milliseconds a connection.
"""

import asyncio
import json
import logging
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests" / part) for part in ("controller/parts", "service", "slurm", "e2e/parts")]

import structlog  # noqa: E402 the path above comes first
from fleet_client import hello, serving  # noqa: E402
from munged import Munged  # noqa: E402
from secure import Site  # noqa: E402

from nodetriage.agent.delivery.connection import Identity, anonymous, connect  # noqa: E402
from nodetriage.agent.delivery.identity import MungeIdentity, TlsIdentity  # noqa: E402
from nodetriage.agent.settings.config import IdentitySettings  # noqa: E402
from nodetriage.controller.auth.addresses import NodeAddresses  # noqa: E402
from nodetriage.controller.auth.certificate import Role  # noqa: E402
from nodetriage.controller.auth.identity import Authenticator, ThisMachine  # noqa: E402
from nodetriage.controller.auth.identity_settings import IdentitySettings as Controllers  # noqa: E402
from nodetriage.controller.auth.munge import MungeAuthenticator  # noqa: E402
from nodetriage.controller.auth.tls import TlsAuthenticator  # noqa: E402

AT_ONCE = 8
NODE = "localhost"


async def measure(proof: Authenticator, identify: Callable[[str], Awaitable[Identity]], count: int) -> dict[str, float]:
    turns = asyncio.Semaphore(AT_ONCE)

    async def once(target: str) -> None:
        async with turns, connect(target, await identify(target)) as line:
            await line.write(hello(NODE))
            assert await line.read()

    with tempfile.TemporaryDirectory() as folder:
        async with serving(Path(folder), "127.0.0.1:0", (proof,)) as (_, _, target):
            cpu_s, wall_s = time.process_time(), time.monotonic()
            await asyncio.gather(*(once(target) for _ in range(count)))
            cpu_s, wall_s = time.process_time() - cpu_s, time.monotonic() - wall_s
    return {"wall_ms": round(wall_s / count * 1000, 2), "cpu_ms": round(cpu_s / count * 1000, 2)}


async def main(count: int) -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    found = {"none": await measure(ThisMachine(), anonymous, count)}
    with tempfile.TemporaryDirectory() as folder:
        site = Site(Path(folder) / "pki")
        certificate, key = site.pair(Role.NODE, NODE)
        own = IdentitySettings("tls", site.folder / "ca.crt", certificate, key)
        found["tls"] = await measure(TlsAuthenticator(site.settings()), TlsIdentity(own), count)
    munged = Munged()
    try:
        proof = MungeAuthenticator(Controllers("munge", munge_socket=munged.socket), NodeAddresses())
        identify = MungeIdentity(IdentitySettings("munge", munge_socket=munged.socket), NODE)
        found["munge"] = await measure(proof, identify, count)
    finally:
        munged.close()
    print(json.dumps({"connections": count, **found}))


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 400))
