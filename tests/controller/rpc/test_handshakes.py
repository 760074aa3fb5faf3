"""What gRPC's core says on stderr, sorted: refused handshakes become refusals, everything else stays as it is."""

import os
import sys
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from slurm_wait import wait_until

from nodetriage.controller.rpc.handshakes import Overheard, overhear, parse

ARGUMENTS = (
    "args={endpoint=0x7fb4, args={grpc.experimental.event_engine=0x37b5, grpc.internal.endpoint_local_address="
    "ipv4:10.0.0.1:7443, grpc.internal.endpoint_peer_address=ipv4:10.0.0.7:41908, grpc.internal.security_connector="
    "0x37b5, grpc.internal.server_credentials=0x37c8, grpc.server_handshake_timeout_ms=2000}, exit_early=0}\n"
)
HEAD = "I1130 05:26:36.453885    2828 "
REFUSED = (
    f"{HEAD}handshaker.cc:155] CallNextHandshakerLocked: error=UNKNOWN: Ssl handshake failed (TSI_PROTOCOL_FAILURE): "
    "SSL_ERROR_SSL: error:1000007d:SSL routines:OPENSSL_internal:CERTIFICATE_VERIFY_FAILED: "
    "certificate has expired: OK\n"
    "=== Source Location Trace: ===\nsrc/core/util/status_helper.cc:68\n"
    f" shutdown=false index=2, {ARGUMENTS}"
)
LATE = (
    f"{HEAD}handshaker.cc:155] CallNextHandshakerLocked: error=UNAVAILABLE: Handshake read failed (Endpoint closing)\n"
    f" shutdown=true index=2, {ARGUMENTS}"
)
GOOD = f"{HEAD}handshaker.cc:155] CallNextHandshakerLocked: error=OK shutdown=false index=0, {ARGUMENTS}"
NOISE = f"{HEAD}channel_trace.h:396] handshake manager 0x7fb4: Failed with error: X\n=== Source Location Trace: ===\n\n"
OTHER = "E1130 05:26:36.453885    2828 chttp2_server.cc:10] something else of core's\n"
TRACEBACK = 'Traceback (most recent call last):\n  File "x.py", line 1, in <module>\n\nValueError: no\n'


def heard(text: str) -> tuple[str, list[tuple[str, str]]]:
    """(what is passed on, what is told)"""
    out: list[str] = []
    told: list[tuple[str, str]] = []
    overheard = Overheard(out.append, lambda *about: told.append(about))
    for line in text.splitlines(keepends=True):
        overheard.line(line)
    return "".join(out), told


def test_a_refused_handshake_is_told_with_peer_and_reason() -> None:
    assert heard(REFUSED + NOISE) == (
        "",
        [("ipv4:10.0.0.7:41908", "CERTIFICATE_VERIFY_FAILED: certificate has expired")],
    )
    assert heard(LATE) == ("", [("ipv4:10.0.0.7:41908", "the handshake was not completed in time")])


def test_what_went_well_is_not_told() -> None:
    assert heard(GOOD + NOISE + GOOD) == ("", [])


def test_a_client_of_the_same_process_is_none_of_our_business() -> None:
    assert parse(REFUSED.replace("server_credentials", "channel_credentials")) is None


def test_everything_else_on_stderr_is_passed_on_whole() -> None:
    assert heard(GOOD + OTHER + REFUSED + TRACEBACK + NOISE + TRACEBACK)[0] == OTHER + TRACEBACK + TRACEBACK


@given(
    st.lists(st.sampled_from([GOOD, REFUSED, LATE, NOISE, OTHER, TRACEBACK]) | st.text(max_size=80).map("{}\n".format))
)
def test_no_text_stops_it(pieces: list[str]) -> None:
    out, told = heard("".join(pieces))
    assert len(told) == sum(piece in (REFUSED, LATE) for piece in pieces)
    assert out.count(OTHER) == pieces.count(OTHER)


def test_stderr_is_heard_and_goes_back_where_it_went(capfd: pytest.CaptureFixture[str]) -> None:
    told: list[tuple[str, str]] = []
    with overhear(lambda *about: told.append(about)):
        os.write(2, (REFUSED + OTHER).encode())
        sys.__stderr__.write("ours\n") if sys.__stderr__ else None
        wait_until(lambda: told, 60, "the refusal is told")
    os.write(2, b"after\n")
    said = capfd.readouterr().err
    assert [peer for peer, _ in told] == ["ipv4:10.0.0.7:41908"]
    assert OTHER in said
    assert said.endswith("after\n")
    assert "handshaker.cc" not in said


def test_core_is_never_held_up_by_whoever_listens(capfd: pytest.CaptureFixture[str]) -> None:
    goes_on = threading.Event()

    def stuck(*_: str) -> None:
        goes_on.wait(30)

    with overhear(stuck):
        began_s = time.monotonic()
        for _ in range(2000):
            try:
                os.write(2, REFUSED.encode())
            except BlockingIOError:
                break
        else:
            pytest.fail("the pipe took everything: this test shows nothing")
        assert time.monotonic() - began_s < 25  # and not until the listener goes on
        goes_on.set()
    capfd.readouterr()
