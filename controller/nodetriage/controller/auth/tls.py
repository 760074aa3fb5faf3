"""Mutual TLS: a certificate names the peer. The next connection uses new files, without a restart."""

import datetime
from collections.abc import Callable
from pathlib import Path
from typing import cast

import grpc
import structlog

from nodetriage.checks.model.settings import ConfigError
from nodetriage.controller.auth.certificate import BadCertificate, Role, holder, load_certificate
from nodetriage.controller.auth.identity import Context, Identity, unauthenticated
from nodetriage.controller.auth.identity_settings import IdentitySettings
from nodetriage.controller.auth.pki import read_pair

_log = structlog.get_logger(__name__)

ENDS_SOON = datetime.timedelta(days=14)


class TlsAuthenticator:
    """Raises ConfigError where the files cannot be used at the start; later it logs that and keeps the old ones."""

    knows_all = True

    def __init__(self, settings: IdentitySettings) -> None:
        self._settings = settings
        self.ends: datetime.datetime | None = None  # of our own certificate
        self._seen = self._state()
        self._first = self._read()

    def credentials(self) -> grpc.ServerCredentials:
        # types-grpcio does not know that None is allowed.
        changed = cast("Callable[[], grpc.ServerCertificateConfiguration]", self._changed)
        return grpc.dynamic_ssl_server_credentials(self._first, changed, require_client_authentication=True)

    async def identify(self, context: Context) -> Identity:
        """TLS has checked that one of our authorities signed the certificate."""
        pem = next(iter(context.auth_context().get("x509_pem_cert", ())), b"")
        try:
            found = holder(load_certificate(bytes(pem)))
        except BadCertificate as error:
            raise unauthenticated(str(error)) from error
        if found.ends <= datetime.datetime.now(datetime.UTC):  # gRPC does not check a resumed TLS session again
            raise unauthenticated(f"the certificate of {found.name[:80]} has expired")
        if found.role not in (Role.NODE, Role.OPERATOR, Role.READER):
            raise unauthenticated(f"a certificate for the {found.role.value} {found.name[:80]} is not for clients")
        name = self._node(found.names) if found.role is Role.NODE else found.name
        return Identity(name, "certificate", found.role, found.serial, found.ends)

    def _node(self, names: tuple[str, ...]) -> str:
        """The node's name. Raises Refused for several names: no node speaks for another."""
        domain = self._settings.node_domain
        own = [n.removesuffix(f".{domain}") for n in names if not domain or n.endswith(f".{domain}")]
        if len(own) != 1:
            wanted = f"one name under {domain}" if domain else "one DNS name, the node's"
            raise unauthenticated(f"certificate: expected {wanted}, got {', '.join(names)[:200] or 'none'}")
        return own[0]

    def _changed(self) -> grpc.ServerCertificateConfiguration | None:
        """gRPC calls this at each connection, from its own thread. None: no change."""
        state = self._state()
        if state == self._seen:
            return None
        self._seen = state
        try:
            configuration = self._read()
        except ConfigError as error:
            _log.error("new certificate not usable, keeping the old one", why=str(error))
            return None
        _log.info("new certificate in use", file=str(self._settings.certificate))
        return configuration

    def _state(self) -> tuple[object, ...]:
        own = self._settings
        return tuple(_state(path) for path in (own.ca, own.certificate, own.key))

    def _read(self) -> grpc.ServerCertificateConfiguration:
        own = self._settings
        pair = read_pair(own.certificate, own.key)
        left = pair.certificate.not_valid_after_utc - datetime.datetime.now(datetime.UTC)
        if left <= datetime.timedelta():
            raise ConfigError(f"identity.certificate: {own.certificate}: has expired")
        if left < ENDS_SOON:
            _log.warning("certificate ends soon", file=str(own.certificate), in_days=left.days)
        try:
            authorities = own.ca.read_bytes()
            load_certificate(authorities)
            chain = own.certificate.read_bytes()
        except OSError as error:
            raise ConfigError(f"identity: {error.filename}: {error.strerror}") from error
        except BadCertificate as error:
            raise ConfigError(f"identity.ca: {own.ca}: {error}") from error
        self.ends = pair.certificate.not_valid_after_utc
        return grpc.ssl_server_certificate_configuration([(pair.key_pem, chain)], root_certificates=authorities)


def _state(path: Path) -> tuple[int, ...] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size, status.st_mode, status.st_uid
