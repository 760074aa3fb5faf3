"""A small certificate authority in a folder: ca.crt and ca.key, and one folder of pairs for each role."""

import contextlib
import datetime
import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from nodetriage.checks.model.settings import ConfigError
from nodetriage.controller.auth.certificate import (
    BadCertificate,
    Holder,
    Pair,
    Role,
    authority,
    holder,
    issue,
    load_certificate,
    load_pair,
    renew,
)
from nodetriage.service.private import NotPrivate, read_private

_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?")
ISSUED = (Role.CONTROLLER, Role.NODE, Role.OPERATOR, Role.READER)


@dataclass(frozen=True, slots=True)
class Found:
    """A certificate and its file."""

    file: Path
    holder: Holder


class Pki:
    """Each method raises ConfigError with one line that names the file."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def init(self, days: float, now: datetime.datetime, force: bool) -> Path:
        """Makes a new authority. Its name has the time, so that two in one bundle differ."""
        pair = authority(f"nodetriage authority {now:%Y-%m-%d %H:%M}", days, now)
        with _explained(self.folder):
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return self._write(self.folder / "ca", pair, force)

    def issue(
        self, role: Role, name: str, addresses: Sequence[str], days: float, now: datetime.datetime, force: bool
    ) -> Path:
        """Makes a new pair under ROLE/NAME; returns the certificate's file."""
        stem = self._stem(role, name)
        if not force:
            self._must_not_exist(stem)
        try:
            return self._write(stem, issue(self._authority(), role, name, addresses, days, now), force)
        except (BadCertificate, ValueError) as error:  # ValueError: a name that no certificate can carry
            raise ConfigError(f"{role.value} {name}: {error}") from error

    def renew(self, found: Found, now: datetime.datetime) -> Path:
        """Makes a new key and certificate for the same holder, in the same files; returns the certificate's file."""
        try:
            old = load_certificate(found.file.read_bytes())
            return self._write(
                found.file.with_name(found.file.name.removesuffix(".crt")),
                renew(self._authority(), old, now),
                force=True,
            )
        except (BadCertificate, OSError) as error:
            raise ConfigError(f"{found.file}: {error}") from error

    def issued(self) -> list[Found]:
        """All certificates, the authority's first, then by role and name."""
        files = [self.folder / "ca.crt"]
        for role in ISSUED:
            files += sorted((self.folder / role.value).glob("*.crt"))
        return [look(file) for file in files if file.exists()]

    def _authority(self) -> Pair:
        certificate, key = self.folder / "ca.crt", self.folder / "ca.key"
        if not certificate.exists():
            raise ConfigError(f"{certificate}: expected an authority here: `nodetriagectl pki init` makes one")
        return read_pair(certificate, key)

    def _stem(self, role: Role, name: str) -> Path:
        if not _NAME.fullmatch(name):
            raise ConfigError(f"{role.value} {name!r}: expected letters, digits, dots, dashes and underscores")
        return self.folder / role.value / name

    def _must_not_exist(self, stem: Path) -> None:
        for file in (_named(stem, ".crt"), _named(stem, ".key")):
            if file.exists():
                raise ConfigError(f"{file}: exists already; --force replaces it")

    def _write(self, stem: Path, pair: Pair, force: bool) -> Path:
        if not force:
            self._must_not_exist(stem)
        with _explained(stem):
            stem.parent.mkdir(mode=0o700, exist_ok=True)
            # The key first: a reader between the two finds a pair that does not match, and keeps the one it has.
            _replace(_named(stem, ".key"), pair.key_pem, 0o600)
            _replace(_named(stem, ".crt"), pair.certificate_pem, 0o644)
        return _named(stem, ".crt")


def read_pair(certificate: Path, key: Path) -> Pair:
    """Raises ConfigError, also where other users can read the key."""
    try:
        return load_pair(certificate.read_bytes(), read_private(key))
    except OSError as error:
        raise ConfigError(f"{error.filename}: {error.strerror}") from error
    except NotPrivate as error:
        raise ConfigError(str(error)) from error
    except BadCertificate as error:
        raise ConfigError(f"{certificate}, {key}: {error}") from error


def look(file: Path) -> Found:
    """Reads a certificate's file. Raises ConfigError."""
    try:
        return Found(file, holder(load_certificate(file.read_bytes())))
    except OSError as error:
        raise ConfigError(f"{file}: {error.strerror}") from error
    except BadCertificate as error:
        raise ConfigError(f"{file}: {error}") from error


def _named(stem: Path, suffix: str) -> Path:
    return stem.with_name(stem.name + suffix)  # with_suffix would cut at a dot of the name


def _replace(file: Path, content: bytes, mode: int) -> None:
    """Replaces the file whole or not at all, also when the power fails; private until it has its mode."""
    handle, temporary = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")  # mode 0600
    try:
        with os.fdopen(handle, "wb") as out:
            out.write(content)
            os.fchmod(out.fileno(), mode)
            out.flush()
            os.fsync(out.fileno())
        Path(temporary).replace(file)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


@contextlib.contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ConfigError(f"{error.filename or path}: {error.strerror}") from error
