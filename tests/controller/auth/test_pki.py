"""The certificate authority in a folder: what it makes, and what it never does by accident."""

import datetime
import json
import os
import stat
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519
from hypothesis import given
from hypothesis import strategies as st

from nodetriage.checks.model.settings import ConfigError
from nodetriage.controller.auth import certificate
from nodetriage.controller.auth.certificate import (
    BadCertificate,
    Role,
    holder,
    load_certificate,
    load_pair,
)
from nodetriage.controller.auth.pki import Pki, look, read_pair
from nodetriage.controller.cli import main

NOW = datetime.datetime.now(datetime.UTC).replace(microsecond=0)
DAY = datetime.timedelta(days=1)


@pytest.fixture
def pki(tmp_path: Path) -> Pki:
    made = Pki(tmp_path / "pki")
    made.init(days=3650, now=NOW, force=False)
    return made


def issue(pki: Pki, role: Role, name: str, *addresses: str, days: float = 90, force: bool = False) -> x509.Certificate:
    return load_certificate(pki.issue(role, name, addresses, days, NOW, force).read_bytes())


@pytest.mark.parametrize("role", [Role.NODE, Role.OPERATOR, Role.READER, Role.CONTROLLER])
def test_a_certificate_says_what_it_is_for(pki: Pki, role: Role) -> None:
    made = issue(pki, role, "rack1.n7")
    found = holder(made)
    assert (found.role, found.name, found.ends) == (role, "rack1.n7", NOW + 90 * DAY)
    made.verify_directly_issued_by(load_certificate((pki.folder / "ca.crt").read_bytes()))


def test_a_controllers_certificate_has_its_addresses(pki: Pki) -> None:
    assert holder(issue(pki, Role.CONTROLLER, "ctl", "ctl.example.org", "10.0.0.1", "2001:db8::1")).names == (
        "ctl.example.org",
        "10.0.0.1",
        "2001:db8::1",
    )


def test_a_node_called_like_an_operator_is_a_node(pki: Pki) -> None:
    assert holder(issue(pki, Role.NODE, "operator")).role is Role.NODE


def test_keys_are_their_owners_alone_and_certificates_everyones(pki: Pki) -> None:
    issue(pki, Role.NODE, "n1")
    modes = {f.name: stat.S_IMODE(f.stat().st_mode) for f in (pki.folder, *pki.folder.rglob("*.*"))}
    assert modes == {"pki": 0o700, "ca.crt": 0o644, "ca.key": 0o600, "n1.crt": 0o644, "n1.key": 0o600}


def test_nothing_is_replaced_without_force(pki: Pki) -> None:
    before = issue(pki, Role.NODE, "n1")
    with pytest.raises(ConfigError, match=r"n1\.crt: exists already; --force"):
        issue(pki, Role.NODE, "n1")
    (pki.folder / "node/n1.crt").unlink()
    with pytest.raises(ConfigError, match=r"n1\.key: exists already"):
        issue(pki, Role.NODE, "n1")
    with pytest.raises(ConfigError, match=r"ca\.crt: exists already"):
        pki.init(days=1, now=NOW, force=False)
    assert issue(pki, Role.NODE, "n1", force=True).serial_number != before.serial_number


def test_renewing_keeps_the_holder_and_the_lifetime_and_changes_the_key(pki: Pki) -> None:
    old = issue(pki, Role.CONTROLLER, "ctl.x", "ctl.example.org", "10.0.0.1", days=20)
    found = look(pki.folder / "controller/ctl.x.crt")
    new = load_certificate(pki.renew(found, NOW + 15 * DAY).read_bytes())
    assert (holder(new).role, holder(new).names) == (holder(old).role, holder(old).names)
    assert holder(new).ends == NOW + 35 * DAY
    assert new.public_key() != old.public_key()
    read_pair(found.file, found.file.with_name("ctl.x.key"))
    assert sorted(f.name for f in found.file.parent.iterdir()) == ["ctl.x.crt", "ctl.x.key"]


def test_no_certificate_outlives_its_authority(tmp_path: Path) -> None:
    pki = Pki(tmp_path / "short")
    pki.init(days=10, now=NOW, force=False)
    assert holder(issue(pki, Role.NODE, "n1", days=90)).ends == NOW + 10 * DAY
    with pytest.raises(ConfigError, match="authority's certificate has ended"):
        pki.issue(Role.NODE, "n2", (), 90, NOW + 11 * DAY, force=False)


@pytest.mark.parametrize("name", ["", "..", "a/b", "../n1", ".n1", "n 1", "n1\n", "ü"])
def test_a_name_that_is_no_file_name_is_refused(pki: Pki, name: str) -> None:
    with pytest.raises(ConfigError, match="expected letters, digits"):
        issue(pki, Role.NODE, name)


def test_without_an_authority_the_error_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"ca\.crt: expected an authority here: `nodetriagectl pki init`"):
        issue(Pki(tmp_path), Role.NODE, "n1")


def test_an_authority_whose_key_others_can_read_signs_nothing(pki: Pki) -> None:
    (pki.folder / "ca.key").chmod(0o640)
    with pytest.raises(ConfigError, match="chmod 0600"):
        issue(pki, Role.NODE, "n1")


def test_a_pair_that_does_not_match_or_cannot_be_used_is_refused() -> None:
    one, other = (certificate.self_signed("ctl", NOW) for _ in range(2))
    with pytest.raises(BadCertificate, match="does not match the certificate"):
        load_pair(one.certificate_pem, other.key_pem)
    with pytest.raises(BadCertificate, match="certificate in PEM"):
        load_pair(b"", one.key_pem)
    plain = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    with pytest.raises(BadCertificate, match="EC or RSA"):
        load_pair(one.certificate_pem, ed25519.Ed25519PrivateKey.generate().private_bytes(*plain))


@given(st.binary(max_size=300), st.sampled_from([b"", b"-----BEGIN PRIVATE KEY-----\n"]))
def test_noise_in_place_of_a_key_is_refused_and_not_quoted(noise: bytes, head: bytes) -> None:
    pem = certificate.self_signed("ctl", NOW).certificate_pem
    with pytest.raises(BadCertificate) as error:
        load_pair(pem, head + noise)
    assert str(error.value) == "expected a private key in PEM without a passphrase"


def run(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    status = main.main(argv)
    said = capsys.readouterr()
    return status, said.out, said.err


def test_the_command_makes_a_set_of_nodes_shows_and_renews_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = tmp_path / "controller.toml"
    settings.write_text(f'[pki]\ndirectory = "{tmp_path}/pki"\nnode_days = 20\n')
    pki = ("pki", "--config", str(settings))
    assert run(capsys, *pki, "init")[0] == 0
    status, said, _ = run(capsys, *pki, "issue", "node", "n[1-3]", "login1")
    assert (status, said.split()) == (0, [f"{tmp_path}/pki/node/{n}.crt" for n in ("login1", "n1", "n2", "n3")])
    status, said, _ = run(capsys, *pki, "show", "--json")
    assert (status, {c["name"]: c["ends_in_days"] for c in json.loads(said)}["n2"]) == (0, 20)
    assert run(capsys, *pki, "show", "--within", "30")[0] == 1
    assert "n3" in run(capsys, *pki, "show")[1]
    assert run(capsys, *pki, "renew", "--within", "10")[1] == ""
    assert run(capsys, *pki, "renew", "n[1-2]")[1].split() == [f"{tmp_path}/pki/node/{n}.crt" for n in ("n1", "n2")]
    assert len(run(capsys, *pki, "renew", "--within", "25")[1].split()) == 4
    status, _, error = run(capsys, *pki, "issue", "node", "n1")
    assert (status, error.count("\n")) == (78, 1)
    assert "exists already" in error


def test_the_command_refuses_what_makes_no_sense(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pki = ("pki", "--dir", str(tmp_path))
    assert run(capsys, *pki, "init")[0] == 0
    assert "node set" in run(capsys, *pki, "issue", "node", "n[1-")[2]
    assert (
        "expected the role controller and one name"
        in run(capsys, *pki, "issue", "node", "n1", "--address", "10.0.0.1")[2]
    )
    with pytest.raises(SystemExit) as stop:
        run(capsys, *pki, "issue", "king", "n1")
    assert stop.value.code == 78


def test_a_folder_without_certificates_is_unknown_and_never_well(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for folder in (tmp_path, tmp_path / "nonexistent"):
        status, out, error = run(capsys, "pki", "--dir", str(folder), "show")
        assert (status, out) == (3, "")
        assert f"{folder}: no certificates: expected ca.crt here" in error


def test_the_command_tells_of_a_certificate_that_has_ended(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old = certificate.authority("old", 1, NOW - 2 * DAY)
    (tmp_path / "ca.crt").write_bytes(old.certificate_pem)
    assert run(capsys, "pki", "show", os.fspath(tmp_path / "ca.crt"))[0] == 2
