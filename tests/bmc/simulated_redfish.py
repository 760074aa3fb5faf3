"""A Redfish service over TLS on loopback that answers from a recorded tree (redfish/PATH.json), with sessions."""

import contextlib
import datetime
import hashlib
import ipaddress
import json
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

USER, PASSWORD = "monitor", "s3cret"


class SimulatedRedfish:
    """`requests` has what was asked, `sessions` the tokens that count. What a test sets changes the next answers."""

    def __init__(self, tree: Path, folder: Path) -> None:
        self.tree = tree
        self.requests: list[str] = []
        self.sessions: set[str] = set()
        self.connections = 0
        self.answers: dict[str, tuple[int, bytes, dict[str, str]]] = {}  # by path, instead of the tree's
        self.certificate = folder / "bmc.pem"
        self.fingerprint = _certify(folder)
        self._server = _Server(("127.0.0.1", 0), _handler(self))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / "bmc.pem", folder / "bmc.key")
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        self.address = f"127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(30)


class _Server(ThreadingHTTPServer):
    daemon_threads = False  # so that closing it waits until each connection is closed

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that does not trust the certificate hangs up; that is what the tests want."""


@contextlib.contextmanager
def serving(tree: Path, folder: Path) -> Iterator[SimulatedRedfish]:
    service = SimulatedRedfish(tree, folder)
    try:
        yield service
    finally:
        service.stop()


def _handler(service: SimulatedRedfish) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 30

        def setup(self) -> None:
            super().setup()
            service.connections += 1

        def log_message(self, format: str, *args: object) -> None:
            pass

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            service.requests.append(f"POST {self.path}")
            if self.path in service.answers:
                self._answer(*service.answers[self.path])
            elif json.loads(body) != {"UserName": USER, "Password": PASSWORD}:
                self._answer(401, b"{}", {})
            else:
                token = f"token-{len(service.requests)}"
                service.sessions.add(token)
                location = "/redfish/v1/SessionService/Sessions/1"
                self._answer(201, b"{}", {"X-Auth-Token": token, "Location": location})

        def do_DELETE(self) -> None:
            service.requests.append(f"DELETE {self.path}")
            service.sessions.discard(self.headers.get("X-Auth-Token", ""))
            self._answer(204, b"", {})

        def do_GET(self) -> None:
            service.requests.append(f"GET {self.path}")
            below = self.path.partition("?")[0].removeprefix("/redfish/v1").strip("/")
            file = service.tree / "redfish" / f"{below}.json"
            if self.headers.get("X-Auth-Token") not in service.sessions and "Authorization" not in self.headers:
                self._answer(401, b"{}", {})
            elif self.path in service.answers:
                self._answer(*service.answers[self.path])
            elif file.is_file():
                self._answer(200, file.read_bytes(), {})
            else:
                self._answer(404, b"{}", {})

        def _answer(self, status: int, body: bytes, headers: dict[str, str]) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            with contextlib.suppress(OSError):
                self.wfile.write(body)

    return Handler


def _certify(folder: Path) -> str:
    """Writes bmc.pem and bmc.key, signed by itself; returns the SHA-256 of the certificate in hex."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "bmc")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    (folder / "bmc.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    pem, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    (folder / "bmc.key").write_bytes(key.private_bytes(pem, pkcs8, serialization.NoEncryption()))
    return hashlib.sha256(certificate.public_bytes(serialization.Encoding.DER)).hexdigest()
