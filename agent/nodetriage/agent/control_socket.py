"""The agent's local socket: one JSON line asks, one line answers. For root and the agent's own user alone.

The answer is JSON, but for the Slurm hooks, which get `EXIT TEXT` (packaging/slurm/nodetriage-hook.c). `ask` is the
client for all else.
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
CLIENT_LIMIT_S = 60.0  # for one request, so that a client that sends nothing is not kept for ever
_PEER = struct.Struct("3i")  # pid, uid, gid: unix(7), SO_PEERCRED

Answer = Callable[[dict[str, Any]], Awaitable[dict[str, Any] | str]]


def ask(path: Path | str, request: dict[str, Any], timeout_s: float) -> dict[str, Any]:
    """One request to the agent. Raises OSError (no agent, not allowed), TimeoutError, ValueError (no JSON answer)."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
        line.settimeout(timeout_s)
        line.connect(str(path))
        line.sendall(json.dumps(request).encode() + b"\n")
        with line.makefile("rb") as answers:
            answer = json.loads(answers.readline() or b"null")
    if not isinstance(answer, dict):
        raise ValueError("the agent closed the connection without an answer")
    return answer


class ControlSocket:
    """Serves until closed. The socket is made with mode 0600; the peer's uid is checked as well."""

    def __init__(self, path: Path, answer: Answer) -> None:
        self._path = path
        self._answer = answer
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Raises OSError. The caller holds the state directory's lock, so an old socket is nobody's."""
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
            return  # the client's own doing
        finally:
            writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> dict[str, Any] | str | None:
        uid = peer_uid(writer.get_extra_info("socket"))
        try:
            line = await reader.readline()
        except ValueError:
            return {"error": f"a request is one line of at most {REQUEST_LIMIT_BYTES} bytes"}
        if not line:
            return None
        if uid not in (0, os.geteuid()):  # said only now: an answer to a client that still writes would be lost
            return {"error": f"uid {uid} may not ask; root and the agent's own user may"}
        try:
            request = json.loads(line)
        except ValueError as error:
            return {"error": f"not JSON: {error}"}
        if not isinstance(request, dict):
            return {"error": 'expected an object such as {"ask": "status"}'}
        return await self._answer(request)


def peer_uid(connection: socket.socket) -> int:
    """SO_PEERCRED: as the kernel knows the client."""
    _pid, uid, _gid = _PEER.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
    return int(uid)
