"""The BMC checks against a BMC that answers over the network, through the real ipmitool."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from simulated_bmc import SimulatedBmc, missing

from nodetriage.agent.machine.host import Host
from nodetriage.checks.bmc import bmc_power, bmc_sel, bmc_sensors
from nodetriage.checks.model import Check, Severity

BIN = Path(sys.executable).parent


@pytest.fixture
def bmc(tmp_path: Path) -> Iterator[SimulatedBmc]:
    if lacking := missing():
        pytest.skip(lacking)
    simulated = SimulatedBmc(tmp_path / "bmc")
    yield simulated
    simulated.stop()


@pytest.fixture
def host(bmc: SimulatedBmc) -> Host:
    host = Host("/")
    host.call_programs({"ipmitool": bmc.argv})
    return host


def found(check: Check[Any, Any], now: Any, before: Any = None) -> dict[tuple[str, str], Severity]:
    return {(f.component, f.fault): f.severity for f in check.judge(now, before, check.policy)}


def test_a_bmc_with_nothing_wrong_gives_nothing(host: Host) -> None:
    for check in (bmc_power.CHECK, bmc_sensors.CHECK, bmc_sel.CHECK):
        assert found(check, check.read(host)) == {}


def test_a_supply_without_input_is_found_though_its_status_says_ok(bmc: SimulatedBmc, host: Host) -> None:
    bmc.emulate("sensor_set_bit 0x20 0 5 3 1 1")
    bmc.emulate("sensor_set_bit_clr_rest 0x20 0 7 1 1")

    assert "| ok  |" in bmc.ipmitool("sdr", "type", "Power Supply").splitlines()[0]
    assert found(bmc_power.CHECK, bmc_power.read(host)) == {
        ("Psu1 Status", "psu_input_lost"): Severity.WARNING,
        ("Psu Redundancy", "psu_redundancy_lost"): Severity.MAJOR,
    }


def test_heat_and_a_slow_fan_are_judged_by_the_vendors_thresholds(bmc: SimulatedBmc, host: Host) -> None:
    bmc.emulate("sensor_set_value 0x20 0 1 47 1")
    bmc.emulate("sensor_set_value 0x20 0 3 8 1")

    assert found(bmc_sensors.CHECK, bmc_sensors.read(host)) == {
        ("Inlet Temp", "bmc_temperature"): Severity.MAJOR,
        ("Fan1", "bmc_fan"): Severity.WARNING,
    }


def test_only_what_is_new_in_the_log_counts_and_the_log_is_left_as_it_was(bmc: SimulatedBmc, host: Host) -> None:
    before = bmc_sel.read(host)
    critical_interrupt = "0x0a 0x44 0 0 2 0 0 0 0 0x20 0 4 0x13 0xa1 0x6f 0xa8 0x01 0x3a"
    bmc.ipmitool("raw", *critical_interrupt.split())
    bmc.emulate("sensor_set_bit 0x20 0 10 1 1 1")
    log = bmc.ipmitool("sel", "elist")

    now = bmc_sel.read(host)

    assert found(bmc_sel.CHECK, now, before) == {
        ("Critical Interrupt #0xa1", "bmc_critical_interrupt"): Severity.CRITICAL,
        ("Memory Dimm Ecc", "bmc_memory_uncorrectable"): Severity.CRITICAL,
    }
    assert found(bmc_sel.CHECK, bmc_sel.read(host), bmc_sel.next_state(before, now)) == {}
    assert bmc.ipmitool("sel", "elist") == log


def test_a_silent_bmc_is_a_warning_and_holds_up_no_other_check(bmc: SimulatedBmc, tmp_path: Path) -> None:
    settings = tmp_path / "agent.toml"
    settings.write_text(
        f"[programs]\nipmitool = {json.dumps(list(bmc.argv_in_haste))}\n[checks.bmc_sensors]\nraise_after = 1\n"
    )
    bmc.fall_silent()
    started_s = time.monotonic()
    try:
        asked = [BIN / "nodetriage", "check", "bmc_sensors", "fs_full", "--json", "--config", str(settings)]
        answer = json.loads(subprocess.run(asked, capture_output=True, text=True, timeout=60).stdout)
    finally:
        bmc.speak_again()

    outcomes = {one["check"]: one for one in answer["checks"]}
    assert [f["fault"] for f in outcomes["bmc_sensors"]["findings"]] == ["bmc_not_answering"]
    assert outcomes["fs_full"]["outcome"] in ("ok", "findings")
    assert time.monotonic() - started_s < 50
