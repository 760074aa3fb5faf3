"""Error counters of InfiniBand and RoCE ports."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodetriage.agent.machine.host import Host
from nodetriage.checks.fabric.ib_errors import CHECK, Limit, Policy, judge, next_state, read
from nodetriage.checks.model import Finding, Severity, Unavailable
from nodetriage.checks.readers.ib_counters import FULL, Counters

QUIET = Counters("mlx5_0/1", 1000.0, "0000:18:00.0", dict.fromkeys(FULL, 0))
HOUR = 3600.0
PORT = "sys/class/infiniband/mlx5_0/ports/1"


def later(after_s: float = HOUR, **values: int) -> Counters:
    return replace(QUIET, at_s=QUIET.at_s + after_s, values={**QUIET.values, **values})


def found(now: Counters, *earlier: Counters, policy: Policy = CHECK.policy) -> list[Finding]:
    memory = None
    for port in earlier:
        memory = next_state(memory, (port,))
    return list(judge((now,), memory, policy))


def severities(findings: list[Finding]) -> dict[str, Severity]:
    return {f.fault: f.severity for f in findings}


@pytest.fixture
def port(tmp_path: Path) -> Path:
    folder = tmp_path / PORT
    (folder / "counters").mkdir(parents=True)
    for name in FULL:
        (folder / "counters" / name).write_text("0\n")
    (folder / "link_layer").write_text("InfiniBand\n")
    return folder


@pytest.mark.parametrize(
    ("rises", "severity"),
    [
        ({"symbol_error": 120}, Severity.MAJOR),
        ({"local_link_integrity_errors": 1}, Severity.MAJOR),
        ({"excessive_buffer_overrun_errors": 1}, Severity.MAJOR),
        ({"link_error_recovery": 3}, Severity.WARNING),
        ({"port_rcv_errors": 36_000}, Severity.WARNING),
        ({"link_error_recovery": 9, "symbol_error": 500}, Severity.MAJOR),
    ],
)
def test_a_counter_that_rises_to_its_limit_is_found(rises: dict[str, int], severity: Severity) -> None:
    (finding,) = found(later(**rises), QUIET)

    assert (finding.component, finding.fault, finding.severity) == ("mlx5_0/1", "ib_errors", severity)
    assert {name: finding.evidence[name] for name in rises} == rises
    assert finding.evidence["pci"] == "0000:18:00.0"


@pytest.mark.parametrize(
    "rises",
    [{"symbol_error": 119}, {"link_error_recovery": 2}, {"port_rcv_errors": 35_999}, {"port_xmit_discards": 9000}],
)
def test_below_its_limit_a_counter_is_no_fault(rises: dict[str, int]) -> None:
    assert found(later(**rises), QUIET) == []


def test_a_few_errors_in_a_short_time_are_chance_and_no_rate() -> None:
    assert found(later(10, symbol_error=19), QUIET) == []


def test_what_was_counted_before_the_first_look_is_history() -> None:
    assert found(later(symbol_error=5000, excessive_buffer_overrun_errors=9)) == []


def test_a_counter_that_fell_was_reset_and_nothing_is_concluded() -> None:
    assert found(later(symbol_error=300), later(0, symbol_error=5000)) == []


def test_a_counter_that_was_full_at_the_first_look_is_not_news() -> None:
    full = later(0, excessive_buffer_overrun_errors=15, symbol_error=65535)

    assert found(full) == []
    assert found(replace(full, at_s=9000.0), full, full) == []
    assert severities(found(full, policy=Policy(full_since_boot=True))) == {"ib_counter_saturated": Severity.WARNING}


def test_a_counter_that_fills_while_we_watch_is_blind_and_stays_reported() -> None:
    full = later(symbol_error=65535)

    assert "ib_counter_saturated" in severities(found(full, QUIET))
    assert severities(found(replace(full, at_s=9000.0), QUIET, full)) == {"ib_counter_saturated": Severity.WARNING}


def test_a_wider_counter_of_a_newer_kernel_is_not_full() -> None:
    assert severities(found(later(symbol_error=70_000), later(0, symbol_error=69_999))) == {}


def test_limits_are_settings_and_others_can_be_added() -> None:
    policy = Policy(limits={"port_xmit_discards": Limit(1, 1, Severity.CRITICAL)})

    assert severities(found(later(port_xmit_discards=1), QUIET, policy=policy)) == {"ib_errors": Severity.CRITICAL}


def test_a_counter_that_refuses_is_asked_once_and_the_others_are_judged(tmp_path: Path, port: Path) -> None:
    path = tmp_path / "errors.toml"
    path.write_text(f'"/{PORT}/counters/symbol_error" = "EINVAL"\n')
    asked: list[str] = []
    host = Host(tmp_path, announce=asked.append)

    first, second = read(host), read(host.for_check(CHECK))

    assert "symbol_error" not in first[0].values
    assert first[0].values.keys() == second[0].values.keys()
    assert asked.count(f"read /{PORT}/counters/symbol_error") == 1
    assert asked.count(f"read /{PORT}/counters/port_rcv_errors") == 2


def test_what_programs_cause_is_not_read_at_all(tmp_path: Path, port: Path) -> None:
    (port / "hw_counters").mkdir()
    for name in ("counters/port_xmit_wait", "counters/VL15_dropped", "counters/port_rcv_switch_relay_errors"):
        (port / name).write_text("4000000000\n")
    for name in ("req_remote_access_errors", "req_cqe_flush_error", "out_of_buffer"):
        (port / "hw_counters" / name).write_text("4000000000\n")

    assert read(Host(tmp_path))[0].values == dict.fromkeys(FULL, 0)


def test_ports_without_any_counter_are_skipped(tmp_path: Path, port: Path) -> None:
    for path in (port / "counters").iterdir():
        path.unlink()

    with pytest.raises(Unavailable):
        read(Host(tmp_path))


def test_on_ethernet_the_netdev_counts(tmp_path: Path, port: Path, hosts: Path) -> None:
    bond = next(p for p in read(Host(hosts / "dgx-h100")) if p.name == "mlx5_bond_0/1")

    assert bond.values == {"rx_crc_errors": 0, "rx_length_errors": 0}


@pytest.mark.parametrize("text", ["", "Unknown", "-1", "N/A (no PMA)", "9" * 300, "1.5", "\ufffd"])
def test_a_counter_that_makes_no_sense_is_found(tmp_path: Path, port: Path, text: str) -> None:
    (port / "counters/port_rcv_errors").write_text(text + "\n")

    (finding,) = judge(read(Host(tmp_path)), None, Policy())

    assert finding.fault == "ib_port_unreadable"
    assert "port_rcv_errors" in str(finding.evidence["error"])


Put = Callable[..., Path]
values = st.dictionaries(st.sampled_from(sorted(FULL)), st.integers(0, 70_000))


@given(st.lists(st.tuples(st.floats(0, 1e6), values), max_size=6))
def test_any_history_gives_findings_and_never_a_negative_rise(history: list[tuple[float, dict[str, int]]]) -> None:
    memory = None
    for after_s, told in history:
        now = (replace(QUIET, at_s=after_s, values=told),)
        for finding in judge(now, memory, Policy()):
            assert all(finding.evidence.get(name, 1) > 0 for name in FULL)
        memory = next_state(memory, now)


@pytest.mark.parametrize(
    ("rises", "severity"),
    [
        ({"local_ack_timeout_err": 60}, Severity.WARNING),
        ({"rx_icrc_encapsulated": 1}, Severity.WARNING),
        ({"out_of_sequence": 36_000, "packet_seq_err": 40_000}, Severity.WARNING),
        ({"rnr_nak_retry_err": 36_000}, Severity.WARNING),
        ({"roce_adp_retrans": 36_000}, Severity.WARNING),
        ({"rx_roce_discards": 36_000}, Severity.WARNING),
        ({"np_cnp_sent": 36_000_000}, Severity.INFO),
    ],
)
def test_a_transport_that_sends_again_and_again_is_a_fault_of_its_own(
    rises: dict[str, int], severity: Severity
) -> None:
    (finding,) = found(later(**rises), later(0, **dict.fromkeys(rises, 0)))

    assert (finding.component, finding.fault, finding.severity) == ("mlx5_0/1", "ib_transport_errors", severity)
    assert {name: finding.evidence[name] for name in rises} == rises


@pytest.mark.parametrize(
    "rises", [{"local_ack_timeout_err": 9}, {"out_of_sequence": 35_999}, {"rp_cnp_handled": 30_000_000}]
)
def test_what_a_busy_fabric_shows_is_no_fault(rises: dict[str, int]) -> None:
    assert found(later(**rises), later(0, **dict.fromkeys(rises, 0))) == []


def test_the_driver_s_counters_are_read_on_ethernet_and_on_infiniband(tmp_path: Path, port: Path) -> None:
    (port / "hw_counters").mkdir()
    for name, value in (("out_of_sequence", 7), ("req_cqe_flush_error", 900), ("lifespan", 10)):
        (port / "hw_counters" / name).write_text(f"{value}\n")
    for layer in ("InfiniBand", "Ethernet"):
        (port / "link_layer").write_text(layer)

        (counters,) = read(Host(tmp_path))

        assert {n: v for n, v in counters.values.items() if n not in FULL} == {"out_of_sequence": 7}


def test_receive_errors_of_representors_are_not_those_of_the_port(tmp_path: Path, port: Path) -> None:
    (port / "link_layer").write_text("Ethernet")
    (port.parent.parent / "device").symlink_to("/sys/devices/0000:18:00.0")
    for name, errors in (("enp24s0f0np0", 3), ("enp24s0f0npf0vf1", 500)):
        folder = tmp_path / f"sys/devices/0000:18:00.0/net/{name}/statistics"
        folder.mkdir(parents=True)
        (folder / "rx_crc_errors").write_text(f"{errors}\n")

    assert read(Host(tmp_path))[0].values == {"rx_crc_errors": 3}
