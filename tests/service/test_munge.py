"""libmunge against a real munged."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from munged import Munged

from nodetriage.service.munge import BadCredential, Munge, MungeError


@pytest.fixture
def munged() -> Iterator[Munged]:
    running = Munged(origin="127.0.0.9")
    yield running
    running.close()


def test_a_credential_tells_who_made_it_where_and_when(munged: Munged) -> None:
    munge = Munge(munged.socket)
    found = munge.decode(munge.encode(b"n1\nsome bytes", ttl_s=60))
    assert (found.payload, found.uid, str(found.origin), found.ttl_s) == (b"n1\nsome bytes", 0, "127.0.0.9", 60)
    assert 0 <= found.age_s <= 30


def test_the_uid_is_the_makers_whatever_the_payload_says(munged: Munged) -> None:
    assert Munge(munged.socket).decode(munged.credential("uid=0", uid=65534)).uid == 65534


def test_a_credential_is_good_once(munged: Munged) -> None:
    munge = Munge(munged.socket)
    credential = munge.encode(b"x", ttl_s=60)
    munge.decode(credential)
    with pytest.raises(BadCredential, match="replayed"):
        munge.decode(credential)


def test_munged_forgets_at_its_restart_what_it_has_seen(munged: Munged) -> None:
    munge = Munge(munged.socket)
    credential = munge.encode(b"x", ttl_s=60)
    munge.decode(credential)
    munged.stop()
    munged.start()
    assert munge.decode(credential).payload == b"x"  # why the controller remembers nonces itself


def test_an_old_one_another_clusters_and_another_users_are_not_vouched_for(munged: Munged) -> None:
    munge, old = Munge(munged.socket), munged.credential("x", "--ttl=1")
    made = time.monotonic()
    stranger = Munged()
    try:
        with pytest.raises(BadCredential, match="invalid credential"):
            munge.decode(stranger.credential("x"))
    finally:
        stranger.close()
    with pytest.raises(BadCredential, match="unauthorized"):
        munge.decode(munged.credential("x", "--restrict-uid=4242"))
    while time.monotonic() < made + 2.1:  # munge counts whole seconds
        time.sleep(0.05)
    with pytest.raises(BadCredential, match="expired"):
        munge.decode(old)


@pytest.mark.parametrize("noise", ["", "MUNGE:", "MUNGE:AAAA:", "x" * 5000, "MUNGE:\0:", "MUNGE:ü:"])
def test_noise_is_a_bad_credential(munged: Munged, noise: str) -> None:
    with pytest.raises(BadCredential):
        Munge(munged.socket).decode(noise)


def test_a_munged_that_is_away_is_no_bad_credential(tmp_path: Path) -> None:
    munge = Munge(str(tmp_path / "nobody"))
    with pytest.raises(MungeError, match="munged does not answer") as error:
        munge.encode(b"x", ttl_s=60)
    assert not isinstance(error.value, BadCredential)
