"""The agent's control socket: one JSON line asks, one line answers. Only root and the agent's own user may ask.

The answer is JSON. Slurm hooks get `EXIT TEXT` instead (packaging/slurm/nodetriage-hook.c). `ask` is the client for
all other requests.
"""

import asyncio
import contextlib
import json
import os
import socket
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

REQUEST_LIMIT_BYTES = 64 << 10
CLIENT_LIMIT_S = 60.0  # for one request: a client that sends nothing does not stay
_PEER = struct.Struct("3i")  # pid, uid, gid: unix(7), SO_PEERCRED

Answer = Callable[[dict[str, Any]], Awaitable[dict[str, Any] | str]]


def ask(path: Path | str, request: dict[str, Any], timeout_s: float) -> dict[str, Any]:
    """One request to the agent. Raises OSError (no agent, not allowed), TimeoutError, ValueError (no JSON answer)."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(timeout_s)
        connection.connect(str(path))
        connection.sendall(json.dumps(request).encode() + b"\n")
        with connection.makefile("rb") as answers:
            answer = json.loads(answers.readline() or b"null")
    if not isinstance(answer, dict):
        raise ValueError("expected a JSON object; the agent closed the connection without one")
    return answer


class ControlSocket:
    """Serves until closed. The socket has mode 0600; the peer's uid is checked too."""

    def __init__(self, path: Path, answer: Answer) -> None:
        self._path = path
        self._answer = answer
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Raises OSError. The caller has the instance lock, so no living agent uses a socket that is left."""
        self._path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            self._path.unlink()
        here = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        mask = os.umask(0o177)
        try:
            here.bind(str(self._path))
        finally:
            os.umask(mask)
        self._server = await asyncio.start_unix_server(self._serve, sock=here, limit=REQUEST_LIMIT_BYTES)

    async def close(self) -> None:
        if self._server:
            self._server.close()
            with contextlib.suppress(FileNotFoundError):
                self._path.unlink()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(CLIENT_LIMIT_S):
                answer = await self._one(reader, writer)
                if answer is not None:
                    text = answer if isinstance(answer, str) else json.dumps(answer)
                    writer.write(text.encode() + b"\n")
                    await writer.drain()
        except (OSError, TimeoutError):
            return  # the client went away or was too slow
        finally:
            writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> dict[str, Any] | str | None:
        uid = peer_uid(writer.get_extra_info("socket"))
        try:
            line = await reader.readline()
        except ValueError:
            return {"error": f"expected one line of at most {REQUEST_LIMIT_BYTES} bytes"}
        if not line:
            return None
        if uid not in (0, os.geteuid()):  # after reading: a client that still writes would lose the answer
            return {"error": f"uid {uid} may not ask; only root and the agent's own user (uid {os.geteuid()}) may"}
        try:
            request = json.loads(line)
        except ValueError as error:
            return {"error": f"expected JSON: {error}"}
        if not isinstance(request, dict):
            return {"error": 'expected an object such as {"ask": "status"}'}
        return await self._answer(request)


def peer_uid(connection: socket.socket) -> int:
    """The client's uid as the kernel knows it (SO_PEERCRED)."""
    _pid, uid, _gid = _PEER.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
    return int(uid)
