"""One question to one address: a TCP connection, or a HEAD request (RFC 9110, 9.3.2).

The certificate of an https address is not checked: nothing is sent but the request, and one that has expired is no
fault of this node.
"""

import contextlib
import re
import socket
import time
from dataclasses import dataclass

_STATUS = re.compile(rb"HTTP/\d(?:\.\d)? (\d{3})")
_ANSWER_BYTES = 64


@dataclass(frozen=True, slots=True)
class Address:
    """`scheme` is tcp, http or https."""

    scheme: str
    host: str
    port: int
    path: str = "/"


_FORM = re.compile(
    r"(tcp|https?)://(\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9._-]{1,253})(?::(\d{1,5}))?(/[\x21-\x7e]{0,512})?"
)


def parsed(text: str) -> Address:
    """Raises ValueError."""
    found = _FORM.fullmatch(text)
    port = int(found[3] or {"http": 80, "https": 443}.get(found[1], 0)) if found else 0
    if found is None or not 0 < port < 65536 or (found[1] == "tcp" and found[4]):
        raise ValueError(f"expected tcp://HOST:PORT, http://HOST/PATH or https://HOST/PATH, got {text[:80]!r}")
    return Address(found[1], found[2].strip("[]"), port, found[4] or "/")


def trouble(address: Address, limit_s: float) -> str:
    """Why the address does not answer within so long; "" where it does. A name that hangs may take longer."""
    end_s = time.monotonic() + limit_s
    try:
        with socket.create_connection((address.host, address.port), timeout=limit_s) as line:
            return "" if address.scheme == "tcp" else _head(line, address, end_s)
    except TimeoutError:
        return f"no answer within {limit_s:g} s"
    except (OSError, UnicodeError) as error:
        return (getattr(error, "strerror", None) or str(error) or type(error).__name__)[:120]


def _head(line: socket.socket, address: Address, end_s: float) -> str:
    with contextlib.ExitStack() as stack:
        if address.scheme == "https":
            import ssl  # it takes a megabyte, and most sites name no such address

            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            line.settimeout(_left_s(end_s))
            line = stack.enter_context(context.wrap_socket(line, server_hostname=address.host))
        line.settimeout(_left_s(end_s))
        host = f"[{address.host}]" if ":" in address.host else address.host
        line.sendall(f"HEAD {address.path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        answer = b""
        while len(answer) < _ANSWER_BYTES and b"\n" not in answer:
            line.settimeout(_left_s(end_s))
            if not (some := line.recv(_ANSWER_BYTES - len(answer))):
                break
            answer += some
    found = _STATUS.match(answer)
    if found is None:
        return "its answer is not HTTP"
    return f"HTTP {int(found[1])}" if found[1] >= b"500" else ""


def _left_s(end_s: float) -> float:
    """Raises TimeoutError."""
    left_s = end_s - time.monotonic()
    if left_s <= 0:
        raise TimeoutError
    return left_s
