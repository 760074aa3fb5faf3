"""The Redfish door and the checks behind it, against a service over TLS on loopback."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from simulated_redfish import PASSWORD, USER, SimulatedRedfish, serving

from nodetriage.agent.machine.host import Host
from nodetriage.agent.machine.redfish import ANSWER_LIMIT_BYTES, Client, credentials
from nodetriage.agent.redfish_settings import RedfishSettings
from nodetriage.checks.bmc import bmc_redfish, bmc_sel, bmc_sensors
from nodetriage.checks.model import Unavailable

Connect = Callable[..., Client]
SYSTEMS = "/redfish/v1/Systems"
SESSIONS = "/redfish/v1/SessionService/Sessions"


@pytest.fixture
def service(tmp_path: Path, hosts: Path) -> Iterator[SimulatedRedfish]:
    with serving(hosts / "gb200-nvl72-tray", tmp_path) as simulated:
        yield simulated


@pytest.fixture
def settings(service: SimulatedRedfish, tmp_path: Path) -> RedfishSettings:
    secret = tmp_path / "redfish"
    secret.write_text(f"{USER}\n{PASSWORD}\n")
    secret.chmod(0o600)
    return RedfishSettings(service.address, secret, ca_file=str(service.certificate), timeout_s=5)


@pytest.fixture
def connect(settings: RedfishSettings) -> Iterator[Connect]:
    """A client, closed when the test ends."""
    clients = []

    def made(of: RedfishSettings = settings, clock: Callable[[], float] = time.monotonic) -> Client:
        clients.append(Client(of, clock))
        return clients[-1]

    yield made
    for client in clients:
        client.close()


def test_one_session_and_one_connection_serve_every_request(service: SimulatedRedfish, connect: Connect) -> None:
    client = connect()

    assert len(json.loads(client.get(SYSTEMS))["Members"]) == 3
    client.get("/redfish/v1/Systems/System_0")
    assert service.requests == [f"POST {SESSIONS}", f"GET {SYSTEMS}", "GET /redfish/v1/Systems/System_0"]
    assert service.connections == 1
    client.close()
    assert service.sessions == set()


def test_a_session_that_the_bmc_forgot_is_opened_again_once(service: SimulatedRedfish, connect: Connect) -> None:
    client = connect()
    client.get(SYSTEMS)
    service.sessions.clear()

    assert client.get(SYSTEMS)
    service.answers[SYSTEMS] = (401, b"{}", {})
    with pytest.raises(PermissionError, match="refuses the user"):
        client.get(SYSTEMS)
    assert service.requests.count(f"POST {SESSIONS}") == 3


def test_a_collection_that_is_kept_is_not_asked_for_again_until_it_is_old(
    service: SimulatedRedfish, connect: Connect
) -> None:
    now_s = [0.0]
    client = connect(clock=lambda: now_s[0])
    client.get(SYSTEMS, keep_s=3600)
    client.get(SYSTEMS, keep_s=3600)
    assert service.requests.count(f"GET {SYSTEMS}") == 1
    now_s[0] = 3601
    client.get(SYSTEMS, keep_s=3600)
    assert service.requests.count(f"GET {SYSTEMS}") == 2


def test_the_certificate_is_checked_before_anything_is_sent(
    service: SimulatedRedfish, settings: RedfishSettings, connect: Connect
) -> None:
    pinned = replace(settings, ca_file="", fingerprint=service.fingerprint)
    for wrong in (replace(settings, ca_file=""), replace(pinned, fingerprint="00" * 32)):
        with pytest.raises(ConnectionError, match=r"certificate|CERTIFICATE"):
            connect(wrong).get(SYSTEMS)
    assert service.requests == []
    assert connect(pinned).get(SYSTEMS)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660])
def test_a_password_that_others_may_read_is_not_used(
    service: SimulatedRedfish, settings: RedfishSettings, connect: Connect, mode: int
) -> None:
    settings.credentials.chmod(mode)
    with pytest.raises(PermissionError, match="0600"):
        connect().get(SYSTEMS)
    assert service.requests == []


@pytest.mark.parametrize("text", ["", "monitor\n", "\npassword\n"])
def test_a_file_without_user_or_password_is_refused(settings: RedfishSettings, text: str) -> None:
    settings.credentials.write_text(text)
    with pytest.raises(ValueError, match="two lines"):
        credentials(settings.credentials)


def test_a_wrong_password_is_told_without_the_password(
    service: SimulatedRedfish, settings: RedfishSettings, connect: Connect
) -> None:
    settings.credentials.write_text(f"{USER}\nwrong-one\n")
    with pytest.raises(PermissionError) as refused:
        connect().get(SYSTEMS)
    assert "wrong-one" not in str(refused.value)


def test_a_busy_bmc_is_left_alone_for_as_long_as_it_asks(service: SimulatedRedfish, connect: Connect) -> None:
    now_s = [0.0]
    client = connect(clock=lambda: now_s[0])
    service.answers[SYSTEMS] = (503, b"{}", {"Retry-After": "120"})
    for _ in range(3):
        with pytest.raises(TimeoutError):
            client.get(SYSTEMS)
    assert service.requests.count(f"GET {SYSTEMS}") == 1
    del service.answers[SYSTEMS]
    now_s[0] = 121
    assert client.get(SYSTEMS)


def test_an_answer_without_end_is_refused(service: SimulatedRedfish, connect: Connect) -> None:
    service.answers[SYSTEMS] = (200, b" " * (ANSWER_LIMIT_BYTES + 70_000), {})
    with pytest.raises(ValueError, match="expected at most"):
        connect().get(SYSTEMS)


def test_no_redirect_is_followed_and_no_path_leads_elsewhere(service: SimulatedRedfish, connect: Connect) -> None:
    client = connect()
    service.answers[SYSTEMS] = (302, b"{}", {"Location": "https://127.0.0.1:1/redfish/v1"})
    with pytest.raises(ConnectionError, match="status 302"):
        client.get(SYSTEMS)
    for path in ("/etc/passwd", "https://example.org/redfish/v1", "/redfish/v1/a\r\nX: y", "/redfish/v1/a b"):
        with pytest.raises(ValueError, match="expected a path"):
            client.get(path)


@pytest.mark.parametrize("status", [404, 405, 204])
def test_a_service_without_sessions_gets_the_password_with_each_request(
    service: SimulatedRedfish, connect: Connect, status: int
) -> None:
    service.answers[SESSIONS] = (status, b"", {})

    assert connect().get(SYSTEMS)


def test_what_the_service_does_not_have_and_a_service_that_fails_are_different_errors(
    service: SimulatedRedfish, connect: Connect
) -> None:
    client = connect()
    with pytest.raises(FileNotFoundError):
        client.get("/redfish/v1/Nothing")
    client.close()
    service.answers["/redfish/v1/Systems"] = (500, b"{}", {})
    with pytest.raises(ConnectionError, match="status 500"):
        connect().get(SYSTEMS)


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"address": "bmc/../"}, "address"),
        ({"fingerprint": "abc"}, "fingerprint"),
        ({"fingerprint": "0" * 64, "ca_file": "/x"}, "either"),
        ({"timeout_s": 0.0}, "timeout_s"),
    ],
)
def test_a_wrong_setting_is_named(keys: dict[str, str], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        RedfishSettings(**keys)  # type: ignore[arg-type]


@pytest.fixture
def host(settings: RedfishSettings) -> Iterator[Host]:
    host = Host("/")
    host.call_programs({name: (f"/nowhere/{name}",) for name in ("ipmitool", "ipmi-sel")}, settings)
    yield host
    host.call_programs({})


def test_a_healthy_board_gives_nothing_and_costs_few_requests(service: SimulatedRedfish, host: Host) -> None:
    board = bmc_redfish.read(host)
    first = len(service.requests)
    again = bmc_redfish.read(host)

    assert list(bmc_redfish.judge(again, bmc_redfish.next_state(None, board), bmc_redfish.Policy())) == []
    assert first <= 13
    assert len(service.requests) - first <= 8


def test_leaks_lost_ports_and_rows_are_found_over_tls(service: SimulatedRedfish, host: Host, hosts: Path) -> None:
    before = bmc_redfish.next_state(None, bmc_redfish.read(host))
    for file in (hosts / "gb200-nvl72-tray-leak/redfish").rglob("*.json"):
        path = "/redfish/v1/" + str(file.relative_to(hosts / "gb200-nvl72-tray-leak/redfish").with_suffix(""))
        service.answers[path] = (200, file.read_bytes(), {})

    found = bmc_redfish.judge(bmc_redfish.read(host), before, bmc_redfish.Policy())
    assert {(f.component, f.fault) for f in found} == {
        ("Chassis_0_LeakDetector_0_ColdPlate", "bmc_leak"),
        ("GPU_2_DRAM_0", "bmc_gpu_remap"),
        ("GPU_3_DRAM_0", "bmc_gpu_remap"),
        ("GPU_1/NVLink_2", "bmc_nvlink_down"),
        ("Chassis_0", "bmc_health"),
    }


@pytest.mark.parametrize("body", [b"[]", b"{", b"null", b"[" * 100_000, b'{"Members": 7}', b'{"Members": [1, {}]}'])
@pytest.mark.parametrize("read", [bmc_redfish.read, bmc_sel.read, bmc_sensors.read])
def test_an_answer_that_makes_no_sense_is_no_health(
    service: SimulatedRedfish, host: Host, body: bytes, read: Callable[[Host], object]
) -> None:
    for file in (service.tree / "redfish").rglob("*.json"):
        path = "/redfish/v1/" + str(file.relative_to(service.tree / "redfish").with_suffix(""))
        service.answers[path] = (200, body, {})
    with pytest.raises((ValueError, Unavailable)):
        read(host)


def test_without_an_address_no_http_and_no_tls_is_loaded() -> None:
    program = (
        "import sys; from nodetriage.agent.machine.host import Host; from nodetriage.checks import registry;"
        "from nodetriage.checks.bmc import bmc_redfish\n"
        "try: bmc_redfish.read(Host('/'))\n"
        "except Exception as error: print(type(error).__name__)\n"
        "print([m for m in ('http.client', 'ssl', 'email', 'json.tool') if m in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)

    assert ran.stdout.splitlines() == ["Unavailable", "[]"]
