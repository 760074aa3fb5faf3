"""Recorded machines: those in health say nothing in three rounds, each sick one says what it has and no more."""

from pathlib import Path

import pytest

from nodetriage.agent.machine.host import Host
from nodetriage.agent.settings.config import defaults
from nodetriage.agent.settings.expected import with_profile
from nodetriage.agent.workers.run import run
from nodetriage.checks.model import Finding, Outcome, Severity
from nodetriage.checks.profiles.catalogue import DMI_PRODUCT, choose, profiles
from nodetriage.checks.registry import ALL

GPU_CHECKS = [check for check in ALL if check.name.startswith("gpu_")]


def names(host: Host) -> tuple[str, ...]:
    return tuple(gpu.name for gpu in host.gpus() if gpu.name)


def look(folder: Path, rounds: int, checks=ALL) -> dict[str, list]:
    """The results of each check, a round after the other; `before` is the first where the machine has it."""
    host = Host(folder)
    earlier = Host(folder / "before") if (folder / "before").exists() else host
    settings = with_profile(defaults(checks), host)
    results: dict[str, list] = {check.name: [] for check in checks}
    for check in settings.enabled:
        memory = None
        for number in range(rounds):
            at = earlier if number == 0 else host
            results[check.name].append(run(check, at.for_check(check), check.policy, memory))
            memory = results[check.name][-1].memory
    return results


def found(folder: Path, rounds: int) -> set[tuple[str, str, str]]:
    """What the GPU checks find in the last round."""
    last: list[Finding] = [f for r in look(folder, rounds, GPU_CHECKS).values() for f in r[-1].findings]
    return {(f.component, f.fault, f.severity.name) for f in last}


@pytest.mark.parametrize("name", sorted(profiles()))
def test_a_healthy_machine_of_every_profile_has_no_findings_over_three_rounds(hosts: Path, name: str) -> None:
    folder = hosts / name

    assert choose(Host(folder).text(DMI_PRODUCT), names(Host(folder))).name == name
    for results in look(folder, 3).values():
        assert {r.outcome for r in results} <= {Outcome.OK, Outcome.SKIPPED}, results
    assert look(folder, 1)["gpu_lost"][0].outcome is Outcome.OK


def test_idle_gpus_at_the_lowest_pcie_generation_are_well(hosts: Path) -> None:
    gpus = Host(hosts / "dgx-h100").gpus()

    assert {(g.facts["pcie_generation"], g.facts["pcie_generation_max"]) for g in gpus} == {(1, 5)}
    assert found(hosts / "dgx-h100", 3) == set()


def test_a_gpu_with_mig_is_asked_as_itself_and_its_links_are_not_missed(hosts: Path) -> None:
    mig = Host(hosts / "dgx-a100").gpus()[7]

    assert mig.facts["mig_enabled"] == 1
    assert not any(link.active for link in mig.nvlinks or ())
    assert found(hosts / "dgx-a100", 3) == set()


def test_on_a_workstation_what_does_not_exist_is_skipped_and_says_so(hosts: Path) -> None:
    results = {name: r[0] for name, r in look(hosts / "generic", 1, GPU_CHECKS).items()}

    skipped = {name for name, r in results.items() if r.outcome is Outcome.SKIPPED}
    ecc = {"gpu_ecc", "gpu_ecc_corrected"}
    new = {"gpu_repair", "gpu_settings", "gpu_c2c"}
    assert ecc | new | {"gpu_nvlink", "gpu_recovery", "gpu_retired_pages", "gpu_inforom", "gpu_processes"} == skipped
    assert all(results[name].why for name in skipped)


G = [f"0000:{bus}:00.0" for bus in ("1b", "43", "52", "61", "9d", "c3", "d1", "df")]


@pytest.mark.parametrize(
    ("machine", "expected"),
    [
        ("dgx-h100-ecc-off", {(G[0], "gpu_ecc_off", "MAJOR")}),
        ("dgx-h100-sram-threshold", {(G[1], "gpu_sram_threshold", "CRITICAL")}),
        ("dgx-h100-remap-spares-low", {(G[2], "gpu_remap_spares_low", "WARNING")}),
        ("dgx-h100-recovery-reset", {(G[5], "gpu_recovery_needed", "MAJOR")}),
        (
            "dgx-h100-recovery-drain",
            {(G[5], "gpu_recovery_needed", "CRITICAL"), (G[5], "gpu_recovery_action", "CRITICAL")},
        ),
        (
            "dgx-h100-nvlink-down",
            {(G[5], "gpu_nvlink_down", "CRITICAL"), (G[5], "gpu_nvlink_error", "CRITICAL")},
        ),
        ("dgx-h100-fabric", {(G[0], "gpu_fabric_incomplete", "CRITICAL"), (G[4], "gpu_fabric_incomplete", "CRITICAL")}),
        ("dgx-h100-hot", {(G[0], "gpu_hot", "WARNING")}),
        ("dgx-h100-throttled", {(g, "gpu_throttled", "WARNING") for g in G[:4]}),
        ("dgx-h100-processes", {(G[0], "gpu_process_left_over", "WARNING")}),
        ("dgx-h100-inforom", {(G[6], "gpu_inforom_corrupt", "WARNING")}),
        ("dgx-h100-persistence-off", {(g, "gpu_persistence_off", "WARNING") for g in G}),
        ("dgx-h100-vbios-drift", {(G[3], "gpu_vbios_drift", "WARNING")}),
        ("dgx-h100-driver-mismatch", {(g, "gpu_driver_unusable", "MAJOR") for g in G}),
        (
            "dgx-h100-gsp-timeout",
            {
                (G[4], "gpu_gsp_timeout", "CRITICAL"),
                (G[4], "gpu_recovery_action", "MAJOR"),
                (G[4], "gpu_recovery_needed", "MAJOR"),
            },
        ),
        ("dgx-h100-xid95", {(G[1], "gpu_ecc_uncontained", "CRITICAL")}),
        (
            "dgx-h100-remap-failed",
            {
                (G[2], "gpu_row_remap_failed", "CRITICAL"),
                (G[2], "gpu_remap_failed", "CRITICAL"),
                (G[2], "gpu_remap_spares_low", "WARNING"),
            },
        ),
        (
            "dgx-a100-remap-failed",
            {
                ("0000:87:00.0", "gpu_row_remap_failed", "CRITICAL"),
                ("0000:87:00.0", "gpu_remap_failed", "CRITICAL"),
                ("0000:87:00.0", "gpu_remap_spares_low", "WARNING"),
            },
        ),
        (
            "gb200-nvl72-tray-xid149",
            {
                ("0018:01:00.0", "gpu_nvlink_error", "CRITICAL"),
                ("0018:01:00.0", "gpu_xid_application", "INFO"),
                ("0018:01:00.0", "gpu_recovery_action", "MAJOR"),
                ("0018:01:00.0", "gpu_recovery_needed", "MAJOR"),
                ("0018:01:00.0", "gpu_fabric_incomplete", "CRITICAL"),
            },
        ),
        (
            "v100-retired-pages",
            {
                ("0000:1a:00.0", "gpu_page_retirement_pending", "MAJOR"),
                ("0000:1c:00.0", "gpu_pages_retired_many", "MAJOR"),
            },
        ),
    ],
)
def test_a_machine_with_one_fault_shows_it_and_nothing_else(hosts: Path, machine: str, expected: set) -> None:
    assert found(hosts / machine, 3) == expected


@pytest.mark.parametrize(
    ("machine", "expected"),
    [
        ("dgx-h100-ecc-storm", {(G[6], "gpu_ecc_corrected_rate", "WARNING")}),
        (
            "dgx-h100-nvlink-errors",
            {
                (f"{G[1]}/nvlink4", "gpu_nvlink_errors", "WARNING"),
                (f"{G[2]}/nvlink9", "gpu_nvlink_failing", "MAJOR"),
            },
        ),
        ("dgx-h100-pcie-replays", {(G[7], "gpu_pcie_replays", "WARNING")}),
        (
            "dgx-h100-ecc-uncorrected",
            {
                (G[3], "gpu_ecc_uncorrected", "CRITICAL"),
                (G[3], "gpu_ecc_uncorrectable", "CRITICAL"),
                (G[3], "gpu_ecc_contained", "MAJOR"),
                (G[3], "gpu_row_remap_pending", "MAJOR"),
                (G[3], "gpu_remap_pending", "MAJOR"),
                (G[3], "gpu_recovery_needed", "MAJOR"),
            },
        ),
    ],
)
def test_a_counter_that_rose_since_the_last_round_is_found_once(hosts: Path, machine: str, expected: set) -> None:
    assert found(hosts / machine, 2) == expected
    counted = {f for f in expected if f[1] in {"gpu_ecc_corrected_rate", "gpu_ecc_uncorrected", "gpu_pcie_replays"}}
    assert not counted & found(hosts / machine, 3)


def test_five_lines_of_a_gsp_timeout_are_one_finding(hosts: Path) -> None:
    (gsp,) = (f for f in look(hosts / "dgx-h100-gsp-timeout", 1)["gpu_xid"][0].findings if f.fault == "gpu_gsp_timeout")

    assert gsp.evidence["count"] == 5
    assert gsp.evidence["xid"] == 119


@pytest.mark.parametrize("machine", ["dgx-h100-xid-applications", "dgx-h100-sxid-noise"])
def test_errors_of_programs_and_noise_of_switches_never_drain_a_node(hosts: Path, machine: str) -> None:
    findings = look(hosts / machine, 1)["gpu_xid"][0].findings

    assert findings
    assert {f.severity for f in findings} == {Severity.INFO}


def test_of_a_fatal_switch_error_the_switch_is_named_first_and_the_victims_follow(hosts: Path) -> None:
    findings = look(hosts / "dgx-h100-sxid-fatal", 1)["gpu_xid"][0].findings

    assert (findings[0].component, findings[0].fault) == ("0000:09:00.0", "nvswitch_fatal")
    assert [f.component for f in findings[1:]] == G[:2]
    assert findings[0].evidence["at_boot_s"] < min(float(f.evidence["at_boot_s"]) for f in findings[1:])
