"""The client of slurmrestd: sets the state of a node, over a Unix socket or HTTP, with or without a token.

Which versions of its API it offers, and whether they can change a node at all, it says itself (/openapi/v3); slurmrestd
of 22.05 cannot. https://slurm.schedmd.com/rest_api.html
"""

import asyncio
import http.client
import ipaddress
import json
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

ANSWER_LIMIT_BYTES = 16 << 20  # the longest is /openapi/v3, about 3 MB
_NODE_PATH = re.compile(r"/slurm/v0\.0\.(\d+)/node/\{node_name\}/?")
# Slurm's refusals, which scontrol prints too. After any other error scontrol may succeed.
_NO = re.compile(r"Invalid node name|Invalid node state")


class RestUnusable(Exception):
    """slurmrestd did not do it: no answer, no way to change nodes, or no permission. Another way may work."""


class RestRefused(Exception):
    """Slurm understood the request and refused it."""


@dataclass(frozen=True, slots=True)
class RestSettings:
    """`address` is unix:/PATH, http://HOST:PORT (loopback alone) or https://HOST:PORT."""

    address: str
    user: str = "root"
    token_file: Path | None = None
    timeout_s: float = 10.0

    def __post_init__(self) -> None:
        if self.address.startswith("unix:/"):
            return
        parts = urlsplit(self.address)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.path.strip("/"):
            raise ValueError(f"rest: expected unix:/PATH, http://HOST:PORT or https://HOST:PORT, got {self.address!r}")
        if parts.scheme == "http" and not _is_loopback(parts.hostname):
            raise ValueError(
                f"rest: a token must not cross the network in the clear: expected https://, got {self.address!r}"
            )


class _Wanted:
    """Whether the caller of a thread still waits for it: the event loop alone writes, the thread alone reads."""

    still = True


class Slurmrestd:
    """One request a connection, as slurmrestd does with `Connection: close`; each on a thread, within `timeout_s`."""

    def __init__(self, settings: RestSettings) -> None:
        self._settings = settings
        self._version = ""

    async def set_node_state(self, node: str, state: str, reason: str) -> None:
        """`state` as Slurm writes it (DRAIN, UNDRAIN). Raises RestUnusable, RestRefused.

        Whoever cancels this has another way: nothing is sent after that.
        """
        wanted = _Wanted()
        try:
            await asyncio.to_thread(self._set_node_state, node, state, reason, wanted)
        finally:
            wanted.still = False

    def _set_node_state(self, node: str, state: str, reason: str, wanted: _Wanted) -> None:
        """A slurmrestd that hangs keeps what it was sent and does it later, so it first has to answer a question."""
        if self._version:
            self._ask_version("GET", "ping")
        else:
            self._version = newest_with_nodes(self._ask("GET", "/openapi/v3"))
        if not wanted.still:
            raise RestUnusable(f"{self._settings.address}: it answered too late")
        body: dict[str, Any] = {"state": [state], **({"reason": reason} if reason else {})}
        self._ask_version("POST", f"node/{quote(node, safe='')}", body)

    def _ask_version(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> None:
        try:
            self._ask(method, f"/slurm/{self._version}/{path}", body)
        except RestUnusable:
            self._version = ""  # the next try asks again: slurmrestd may have been replaced
            raise

    def _ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        try:
            connection = _connection(self._settings)
            try:
                connection.request(method, path, json.dumps(body) if body else None, self._headers())
                response = connection.getresponse()
                text = response.read(ANSWER_LIMIT_BYTES)
            finally:
                connection.close()
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise RestUnusable(f"{self._settings.address}: {error or type(error).__name__}") from error
        return self._answer(f"{method} {path}", response.status, text)

    def _answer(self, what: str, status: int, text: bytes) -> Any:
        try:
            answer = json.loads(text)
        except ValueError:
            raise RestUnusable(f"{self._settings.address}: {what}: status {status}, {text[:80]!r}") from None
        errors = answer.get("errors") if isinstance(answer, dict) else f"no object: {text[:80]!r}"
        if status == http.HTTPStatus.OK and not errors:
            return answer
        said = f"{self._settings.address}: {what}: status {status}: {_words(errors)}"
        raise RestRefused(said) if _NO.search(said) else RestUnusable(said)

    def _headers(self) -> dict[str, str]:
        headers = {"Accept": "application/json", "Content-Type": "application/json", "Connection": "close"}
        if self._settings.token_file is not None:
            # Read for each call: tokens are short-lived, and who renews them writes the file.
            token = self._settings.token_file.read_text().strip().removeprefix("SLURM_JWT=")
            headers |= {"X-SLURM-USER-NAME": self._settings.user, "X-SLURM-USER-TOKEN": token}
        return headers


def newest_with_nodes(description: Any) -> str:
    """The newest API version in which a node can be changed, as "v0.0.41". Raises RestUnusable where there is none."""
    paths = description.get("paths") if isinstance(description, dict) else None
    offered = {
        int(match[1]): methods
        for path, methods in (paths.items() if isinstance(paths, dict) else ())
        if (match := _NODE_PATH.fullmatch(path)) and isinstance(methods, dict)
    }
    able = [number for number, methods in offered.items() if "post" in methods]
    if not able:
        known = ", ".join(f"v0.0.{n}" for n in sorted(offered)) or "none"
        raise RestUnusable(f"this slurmrestd cannot change nodes (from Slurm 23.02 on it can); it offers: {known}")
    return f"v0.0.{max(able)}"


def _connection(settings: RestSettings) -> http.client.HTTPConnection:
    if settings.address.startswith("unix:"):
        return _UnixConnection(settings.address.removeprefix("unix:"), settings.timeout_s)
    parts = urlsplit(settings.address)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    return kind(parts.hostname or "", parts.port, timeout=settings.timeout_s)


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _words(errors: Any) -> str:
    """`[{"error": ..., "description": ...}]`, whose keys differ between versions."""
    if not isinstance(errors, list):
        return repr(errors)[:300]
    texts = (
        {k: e[k] for k in ("description", "error") if e.get(k)} if isinstance(e, dict) else {"": e} for e in errors
    )
    return "; ".join(": ".join(map(str, one.values())) for one in texts)[:300]
