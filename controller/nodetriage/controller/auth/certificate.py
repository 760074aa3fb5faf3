"""X.509 as nodetriage uses it: reads who holds a certificate, and makes certificates. RFC 5280. No I/O.

A node's certificate carries the node's name as DNS name. An operator's or reader's carries a URI that no node's has.
A controller's is good for servers only, the others' for clients only, so none can stand in for another.
"""

import datetime
import enum
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_SCHEME = "nodetriage"
_SLACK = datetime.timedelta(minutes=5)  # clocks of nodes differ


class Role(enum.Enum):
    """What a certificate is for."""

    AUTHORITY = "authority"
    CONTROLLER = "controller"
    NODE = "node"
    OPERATOR = "operator"  # may change things
    READER = "reader"  # may watch


class BadCertificate(Exception):
    """This certificate or key cannot be used; the text says what was expected."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey

    @property
    def certificate_pem(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    @property
    def key_pem(self) -> bytes:
        plain = serialization.NoEncryption()
        return self.key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)


@dataclass(frozen=True, slots=True)
class Holder:
    """Whom a certificate names. `names` are its DNS names and addresses; `name` is the one to show."""

    role: Role
    name: str
    names: tuple[str, ...]
    serial: str  # hexadecimal
    ends: datetime.datetime  # UTC


def authority(name: str, days: float, now: datetime.datetime) -> Pair:
    """A new certificate authority that signs leaves only."""
    key = _new_key()
    subject = _subject(name)
    builder = _builder(subject, subject, key, days, now)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_usage(signs=True), critical=True)
    return Pair(builder.sign(key, hashes.SHA256()), key)


def issue(by: Pair, role: Role, name: str, addresses: Sequence[str], days: float, now: datetime.datetime) -> Pair:
    """A new key with a certificate for `role`. It never outlives its authority. `addresses`: of a controller."""
    if role in (Role.OPERATOR, Role.READER):
        names: list[x509.GeneralName] = [x509.UniformResourceIdentifier(f"{_SCHEME}:{role.value}:{name}")]
    else:
        names = [_general_name(a) for a in dict.fromkeys(addresses or (name,))]
    return _signed(by, _subject(name), x509.SubjectAlternativeName(names), role is Role.CONTROLLER, days, now)


def renew(by: Pair, old: x509.Certificate, now: datetime.datetime) -> Pair:
    """The same holder with a new key and the same lifetime again."""
    days = (old.not_valid_after_utc - old.not_valid_before_utc - _SLACK) / datetime.timedelta(days=1)
    names = old.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return _signed(by, old.subject, names, holder(old).role is Role.CONTROLLER, days, now)


def self_signed(name: str, now: datetime.datetime) -> Pair:
    """For a server that munge vouches for. Ends long after its process."""
    key, subject = _new_key(), _subject(name)
    builder = _builder(subject, subject, key, 3650, now)
    builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
    return Pair(builder.sign(key, hashes.SHA256()), key)


def holder(certificate: x509.Certificate) -> Holder:
    """Who holds it and for what. Raises BadCertificate where its extensions cannot be read."""
    try:
        constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value
        role = Role.AUTHORITY if constraints.ca else Role.NODE
    except x509.ExtensionNotFound:
        role = Role.NODE
    except ValueError as error:  # an extension twice, or one that cannot be parsed
        raise BadCertificate(f"certificate: {error}") from error
    subject = [str(a.value) for a in certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    names, uris = _alternative_names(certificate)
    name = names[0] if names else next(iter(subject), "")
    if role is not Role.AUTHORITY and _is_for_servers_only(certificate):
        role = Role.CONTROLLER
    for uri in uris:
        scheme, _, rest = uri.partition(":")
        kind, _, who = rest.partition(":")
        if scheme == _SCHEME and kind in (Role.OPERATOR.value, Role.READER.value) and who:
            role, name = Role(kind), who
    return Holder(role, name, tuple(names), f"{certificate.serial_number:x}", certificate.not_valid_after_utc)


def load_certificate(pem: bytes) -> x509.Certificate:
    """The first of a file. Raises BadCertificate."""
    try:
        return x509.load_pem_x509_certificate(pem)
    except ValueError as error:
        raise BadCertificate(f"expected a certificate in PEM: {error}") from error


def load_pair(certificate_pem: bytes, key_pem: bytes) -> Pair:
    """Raises BadCertificate where the two do not match or gRPC's TLS cannot use them."""
    certificate = load_certificate(certificate_pem)
    try:
        key = serialization.load_pem_private_key(key_pem, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        # The cause is not chained: its text may quote what was read.
        raise BadCertificate("expected a private key in PEM without a passphrase") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey):
        raise BadCertificate("expected an EC or RSA key: gRPC's TLS takes no other")
    if key.public_key() != certificate.public_key():
        raise BadCertificate("the key does not match the certificate: expected the pair that was made together")
    return Pair(certificate, key)


def fingerprint(certificate: x509.Certificate) -> str:
    """SHA-256 of the DER, hexadecimal."""
    return certificate.fingerprint(hashes.SHA256()).hex()


def _new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())  # gRPC's BoringSSL takes no Ed25519


def _subject(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]) if len(name) <= 64 else x509.Name([])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, days: float, now: datetime.datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder(issuer, subject, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - _SLACK)
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _signed(
    by: Pair, subject: x509.Name, names: x509.SubjectAlternativeName, server: bool, days: float, now: datetime.datetime
) -> Pair:
    key = _new_key()
    days = min(days, (by.certificate.not_valid_after_utc - now) / datetime.timedelta(days=1))
    if days <= 0:
        raise BadCertificate("the authority's certificate has ended: `nodetriagectl pki init --force` makes a new one")
    purpose = ExtendedKeyUsageOID.SERVER_AUTH if server else ExtendedKeyUsageOID.CLIENT_AUTH
    signer = x509.AuthorityKeyIdentifier.from_issuer_public_key(by.key.public_key())
    builder = (
        _builder(subject, by.certificate.subject, key, days, now)
        .add_extension(names, critical=not list(subject))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
        .add_extension(signer, critical=False)
    )
    return Pair(builder.sign(by.key, hashes.SHA256()), key)


def _usage(signs: bool) -> x509.KeyUsage:
    others = ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement")
    return x509.KeyUsage(
        digital_signature=not signs,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
        **dict.fromkeys(others, False),
    )


def _general_name(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)


def _alternative_names(certificate: x509.Certificate) -> tuple[list[str], list[str]]:
    """(DNS names and addresses, URIs)"""
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return [], []
    addresses = [str(a) for a in found.get_values_for_type(x509.IPAddress)]
    uris = found.get_values_for_type(x509.UniformResourceIdentifier)
    return [*found.get_values_for_type(x509.DNSName), *addresses], uris


def _is_for_servers_only(certificate: x509.Certificate) -> bool:
    try:
        uses = set(certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)
    except x509.ExtensionNotFound:
        return False
    return ExtendedKeyUsageOID.SERVER_AUTH in uses and ExtendedKeyUsageOID.CLIENT_AUTH not in uses
