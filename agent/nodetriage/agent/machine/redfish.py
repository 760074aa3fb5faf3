"""The only user of the BMC's Redfish service (DMTF DSP0266): GET requests in one session, bounded in time and size.

It is the standard library's client: DMTF's own package follows redirects, does not bound what it reads and knows no
pinned certificate. This module is loaded only where the site set an address.
"""

import base64
import contextlib
import hashlib
import hmac
import http.client
import json
import os
import re
import ssl
import stat
import time
from collections.abc import Callable
from pathlib import Path

from nodetriage.agent.redfish_settings import RedfishSettings
from nodetriage.checks.model import Unavailable

ANSWER_LIMIT_BYTES = 4 << 20  # the largest report of an HGX board is 1 MB
_CREDENTIALS_LIMIT_BYTES = 4096
_BACK_OFF_MAX_S = 600.0
_KEPT_MAX = 64
_PATH = re.compile(r"/redfish/v1(?:/[A-Za-z0-9._~%:$&'()*+,;=@-]*)*(?:\?[A-Za-z0-9._~%:$&'()*+,;=@/-]*)?")
_TOKEN = re.compile(r"[\x21-\x7e]{1,1024}")
_SESSIONS = "/redfish/v1/SessionService/Sessions"


class Client:
    """One connection and one session, kept between requests; a BMC has few and takes a second to open one."""

    def __init__(self, settings: RedfishSettings, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings
        self._clock = clock
        self._connection: _Connection | None = None
        self._token = ""
        self._basic = ""  # for a service without sessions
        self._session = ""
        self._not_before = 0.0
        self._kept: dict[str, tuple[float, str]] = {}

    def get(self, path: str, keep_s: float = 0.0) -> str:
        """The body; with `keep_s` one that is not older.

        Raises FileNotFoundError where the service has no such resource, TimeoutError where it is late or busy,
        PermissionError for credentials that it refuses or that others may read, ConnectionError (also for a certificate
        that is not the BMC's), ValueError for an answer that is too large.
        """
        if not _PATH.fullmatch(path):
            raise ValueError(f"redfish: expected a path below /redfish/v1, got {path[:200]!r}")
        at, text = self._kept.get(path, (0.0, ""))
        if text and self._clock() - at < keep_s:
            return text
        text = self._asked(path)
        if keep_s and (path in self._kept or len(self._kept) < _KEPT_MAX):
            self._kept[path] = self._clock(), text
        return text

    def close(self) -> None:
        """Ends the session, so that the BMC has it for others."""
        with contextlib.suppress(OSError, ValueError):
            if self._session and self._connection:
                self._request("DELETE", self._session)
        self._drop()

    def _asked(self, path: str) -> str:
        if self._clock() < self._not_before:
            raise TimeoutError(f"redfish {path}: the BMC is busy, asked to wait")
        if not self._token and not self._basic:
            self._log_in()
        status, text = self._request("GET", path)
        if status == 401 and self._token:  # the session ended: a BMC restarted, or timed it out
            self._log_in()
            status, text = self._request("GET", path)
        if status == 200:
            return text
        if status in (404, 410):
            raise FileNotFoundError(2, "redfish: no such resource", path)
        if status in (401, 403):
            raise PermissionError(13, f"redfish: the BMC refuses the user of {self._settings.credentials}", path)
        raise ConnectionError(f"redfish {path}: status {status}")

    def _log_in(self) -> None:
        user, password = credentials(self._settings.credentials)
        self._token = self._basic = ""
        body = json.dumps({"UserName": user, "Password": password}).encode()
        status, _ = self._request("POST", _SESSIONS, body)
        if status in (400, 401, 403):
            raise PermissionError(13, f"redfish: the BMC refuses the user of {self._settings.credentials}", _SESSIONS)
        if not self._token:
            if status not in (200, 201, 204, 404, 405, 501):  # a service without sessions may accept anything
                raise ConnectionError(f"redfish {_SESSIONS}: status {status} and no session")
            self._basic = base64.b64encode(f"{user}:{password}".encode()).decode()

    def _request(self, method: str, path: str, body: bytes = b"") -> tuple[int, str]:
        """A connection that the BMC has closed meanwhile is opened once more."""
        deadline = self._clock() + self._settings.timeout_s
        for attempt in (1, 2):
            old = self._connection is not None
            try:
                return self._exchange(method, path, body, deadline)
            except TimeoutError:
                self._drop()
                raise TimeoutError(f"redfish {path}: no answer after {self._settings.timeout_s:g} s") from None
            except (OSError, http.client.HTTPException) as error:
                self._drop()
                if attempt == 2 or not old or isinstance(error, ssl.SSLError):
                    raise ConnectionError(f"redfish {path}: {type(error).__name__}: {str(error)[:200]}") from error
        raise AssertionError

    def _exchange(self, method: str, path: str, body: bytes, deadline: float) -> tuple[int, str]:
        if self._connection is None:
            self._connection = _Connection(self._settings)
        headers = {"Accept": "application/json", "OData-Version": "4.0"}
        if body:
            headers["Content-Type"] = "application/json"
        elif self._token:
            headers["X-Auth-Token"] = self._token
        elif self._basic:
            headers["Authorization"] = f"Basic {self._basic}"
        self._connection.request(method, path, body=body or None, headers=headers)
        response = self._connection.getresponse()
        text = self._body(response, path, deadline)
        if response.status == 503:
            wait = response.getheader("Retry-After", "60")
            self._not_before = self._clock() + min(float(wait) if wait.isdecimal() else 60.0, _BACK_OFF_MAX_S)
            raise TimeoutError
        token = response.getheader("X-Auth-Token", "")
        if method == "POST" and response.status in (200, 201) and _TOKEN.fullmatch(token):
            self._token, location = token, response.getheader("Location", "")
            self._session = location if _PATH.fullmatch(location) else ""
        return response.status, text

    def _body(self, response: http.client.HTTPResponse, path: str, deadline: float) -> str:
        parts, size = [], 0
        while part := response.read1(65536):
            parts.append(part)
            size += len(part)
            if size > ANSWER_LIMIT_BYTES:
                self._drop()
                raise ValueError(f"redfish {path}: expected at most {ANSWER_LIMIT_BYTES} bytes, got more")
            if self._clock() > deadline:
                raise TimeoutError
        response.close()  # read1 leaves it open at the end, and the connection could not serve the next request
        return b"".join(parts).decode("utf-8", "replace")

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None


class _Connection(http.client.HTTPSConnection):
    """TLS to the BMC: nothing is sent before its certificate is the one that the site expects."""

    def __init__(self, settings: RedfishSettings) -> None:
        self._pinned = settings.fingerprint.replace(":", "").lower()
        try:
            context = ssl.create_default_context(cafile=settings.ca_file or None)
        except (OSError, ssl.SSLError) as error:
            raise ValueError(f"redfish: ca_file {settings.ca_file}: {error}") from error
        if self._pinned:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE  # the fingerprint says more than a signature
        super().__init__(settings.address, timeout=settings.timeout_s, context=context)

    def connect(self) -> None:
        super().connect()
        if not self._pinned:
            return
        seen = hashlib.sha256(self.sock.getpeercert(binary_form=True) or b"").hexdigest()
        if not hmac.compare_digest(seen, self._pinned):
            self.close()
            raise ssl.SSLError(f"the BMC's certificate has the fingerprint {seen}, expected {self._pinned}")


def credentials(path: Path) -> tuple[str, str]:
    """User and password. Raises Unavailable where there is no file, PermissionError where others may read it."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        raise Unavailable(f"redfish: no credentials in {path}") from None
    with os.fdopen(descriptor, "rb") as file:
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode) or about.st_mode & 0o077 or about.st_uid not in (0, os.geteuid()):
            raise PermissionError(13, "redfish: expected a file of root or the agent with mode 0600", str(path))
        lines = file.read(_CREDENTIALS_LIMIT_BYTES).decode("utf-8", "replace").splitlines()
    if len(lines) < 2 or not lines[0] or not lines[1]:
        raise ValueError(f"{path}: expected two lines, the user and the password")
    return lines[0], lines[1]
