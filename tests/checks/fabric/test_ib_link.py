"""InfiniBand and RoCE ports."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodetriage.agent.machine.host import Host
from nodetriage.checks.fabric.ib_link import Policy, Role, judge, next_state, read
from nodetriage.checks.model import Finding, Severity, Unavailable
from nodetriage.checks.readers.ib_port import Port

PORT = Port("mlx5_0/1", 1000.0, "ACTIVE", "LinkUp", 400, 4, "NDR", "InfiniBand", "0000:18:00.0", downed=0)
DOWN = replace(PORT, state="DOWN", phys_state="Polling", rate_gbps=10, speed="SDR")
INIT = replace(PORT, state="INIT", rate_gbps=400)
COMPUTE = Policy(roles={"compute": Role(hcas=("mlx5_*",), rate_gbps=400, width=4)})
Put = Callable[..., Path]


def found(now: Port, before: Port | None = None, policy: Policy = COMPUTE) -> list[Finding]:
    memory = next_state(None, (before,)) if before else None
    return list(judge((now,), memory, policy))


def faults(findings: list[Finding]) -> dict[str, Severity]:
    return {f.fault: f.severity for f in findings}


@pytest.fixture
def put(tmp_path: Path) -> Put:
    """Makes a port under tmp_path; keywords are its files. Gives the port's folder."""

    def make(hca: str = "mlx5_0", **files: str) -> Path:
        port = tmp_path / f"sys/class/infiniband/{hca}/ports/1"
        device = tmp_path / f"sys/devices/{hca}/0000:18:00.0"
        (port / "counters").mkdir(parents=True)
        device.mkdir(parents=True)
        (port.parent.parent / "device").symlink_to(f"/sys/devices/{hca}/0000:18:00.0")
        healthy = {
            "state": "4: ACTIVE",
            "phys_state": "5: LinkUp",
            "rate": "400 Gb/sec (4X NDR)",
            "link_layer": "InfiniBand",
            "counters__link_downed": "0",
        }
        for name, text in {**healthy, **files}.items():
            (port / name.replace("__", "/")).write_text(text + "\n")
        return port

    return make


def test_every_port_is_read_and_named_by_adapter_and_port(put: Put, tmp_path: Path) -> None:
    put("mlx5_0")
    put("mlx5_1")

    ports = read(Host(tmp_path))

    assert ports == (replace(PORT, at_s=0.0), replace(PORT, name="mlx5_1/1", at_s=0.0))


def test_the_ports_of_a_real_node_are_read(hosts: Path) -> None:
    ports = {p.name: p for p in read(Host(hosts / "dgx-h100"))}

    assert len(ports) == 9
    assert ports["mlx5_6/1"].pci == "0000:9a:00.0"
    assert (ports["mlx5_3/1"].downed, ports["mlx5_bond_0/1"].link_layer) == (255, "Ethernet")


def test_a_virtual_function_is_no_port_of_ours(put: Put, tmp_path: Path) -> None:
    put("mlx5_0")
    (tmp_path / "sys/devices/mlx5_0/0000:18:00.0/physfn").mkdir()

    assert read(Host(tmp_path)) == ()


def test_a_restricted_function_that_answers_no_counter_is_still_judged_by_its_state(put: Put, tmp_path: Path) -> None:
    put("mlx5_0")
    (tmp_path / "errors.toml").write_text('"/sys/class/infiniband/mlx5_0/ports/1/counters/link_downed" = "EINVAL"\n')

    (port,) = read(Host(tmp_path))

    assert (port.state, port.downed, port.error) == ("ACTIVE", None, "")


def test_on_ethernet_the_carrier_counts_because_the_infiniband_counter_stays_zero(put: Put, tmp_path: Path) -> None:
    put("mlx5_bond_0", link_layer="Ethernet")
    for name, downs in (("ens1", 2), ("ens2", 3)):
        folder = tmp_path / f"sys/devices/mlx5_bond_0/0000:18:00.0/net/{name}"
        folder.mkdir(parents=True)
        (folder / "carrier_down_count").write_text(f"{downs}\n")

    assert read(Host(tmp_path))[0].downed == 5


@pytest.mark.parametrize(
    ("text", "rate_gbps", "width", "speed"),
    [
        ("400 Gb/sec (4X NDR)", 400, 4, "NDR"),
        ("2.5 Gb/sec (1X SDR)", 2.5, 1, "SDR"),
        ("10 Gb/sec (4X)", 10, 4, ""),
        ("800 Gb/sec (4X XDR)", 800, 4, "XDR"),
        ("40 Gb/sec", 40, 0, ""),
    ],
)
def test_a_rate_is_read_with_and_without_its_words(put: Put, tmp_path: Path, text, rate_gbps, width, speed) -> None:
    put(rate=text)

    (port,) = read(Host(tmp_path))

    assert (port.rate_gbps, port.width, port.speed) == (rate_gbps, width, speed)


@pytest.mark.parametrize("name", ["state", "phys_state", "rate", "counters__link_downed"])
@pytest.mark.parametrize("text", ["", "Unknown", "-1", "4: ", ": ACTIVE", "9" * 400, "\ufffd"])
def test_a_port_that_gives_nonsense_is_found_and_does_not_hide_the_others(put: Put, tmp_path, name, text) -> None:
    put("mlx5_0", **{name: text})
    put("mlx5_1")

    findings = list(judge(read(Host(tmp_path)), None, COMPUTE))

    assert {(f.component, f.fault) for f in findings} == {("mlx5_0/1", "ib_port_unreadable")}
    assert name.replace("__", "/") in str(findings[0].evidence["error"])


@pytest.mark.parametrize("rate", ["", "??", "-1 Gb/sec (4X)", "40 Gb/sec (-1X QDR)"])
def test_the_rate_of_a_port_that_is_not_up_is_never_its_fault(put: Put, tmp_path: Path, rate: str) -> None:
    """A driver knows none: an unused port is then no fault, and one with a role is down, not unreadable."""
    put("mlx5_0", state="1: DOWN", phys_state="2: Polling", rate=rate)

    assert set(faults(list(judge(read(Host(tmp_path)), None, COMPUTE)))) == {"ib_link_down"}
    assert list(judge(read(Host(tmp_path)), None, Policy())) == []


@pytest.mark.parametrize("error", ["EIO", "ENODEV", "EINVAL", "EAGAIN"])
def test_a_port_whose_state_cannot_be_read_is_found(put: Put, tmp_path: Path, error: str) -> None:
    put("mlx5_0")
    (tmp_path / "errors.toml").write_text(f'"/sys/class/infiniband/mlx5_0/ports/1/state" = "{error}"\n')

    (finding,) = judge(read(Host(tmp_path)), None, COMPUTE)

    assert (finding.fault, finding.severity) == ("ib_port_unreadable", Severity.MAJOR)
    assert "/sys/class/infiniband/mlx5_0/ports/1/state" in str(finding.evidence["error"])


def test_a_port_that_is_up_at_full_speed_is_well() -> None:
    assert found(PORT, PORT) == []


def test_a_port_that_is_down_is_found_with_what_its_cable_says() -> None:
    (finding,) = found(DOWN)

    assert (finding.component, finding.fault, finding.severity) == ("mlx5_0/1", "ib_link_down", Severity.CRITICAL)
    assert finding.evidence["phys_state"] == "Polling"
    assert finding.evidence["pci"] == "0000:18:00.0"


def test_an_unused_port_that_no_role_claims_is_no_fault() -> None:
    assert found(DOWN, DOWN, Policy()) == []


def test_a_port_that_no_role_claims_but_was_up_since_boot_is_down() -> None:
    memory = next_state(next_state(None, (PORT,)), (DOWN,))

    assert faults(list(judge((DOWN,), memory, Policy()))) == {"ib_link_down": Severity.CRITICAL}


def test_a_port_that_fell_back_to_fewer_lanes_is_narrow() -> None:
    assert faults(found(replace(PORT, width=1, rate_gbps=100))) == {"ib_link_narrow": Severity.MAJOR}


def test_lanes_are_judged_where_only_their_number_is_expected() -> None:
    policy = Policy(roles={"compute": Role(hcas=("mlx5_*",), width=4)})

    assert faults(found(replace(PORT, width=2, rate_gbps=200), policy=policy)) == {"ib_link_narrow": Severity.MAJOR}
    assert found(PORT, policy=policy) == []


def test_a_port_at_a_lower_speed_on_all_lanes_is_slow() -> None:
    assert faults(found(replace(PORT, rate_gbps=200, speed="HDR"))) == {"ib_link_slow": Severity.MAJOR}


def test_two_lanes_of_a_split_cable_that_give_the_whole_rate_are_no_fault() -> None:
    role = Role(hcas=("mlx5_*",), rate_gbps=200, width=4)

    assert found(replace(PORT, rate_gbps=200, width=2), policy=Policy(roles={"compute": role})) == []


def test_a_port_whose_speed_an_old_kernel_cannot_name_is_judged_by_its_rate() -> None:
    assert found(replace(PORT, speed="SDR")) == []


def test_a_port_that_went_down_and_came_back_is_flapping() -> None:
    (finding,) = found(replace(PORT, downed=2, at_s=1030.0), replace(PORT, downed=1))

    assert (finding.fault, finding.severity) == ("ib_link_flapping", Severity.WARNING)
    assert (finding.evidence["flaps"], finding.evidence["in_window"]) == (1, 1)


def test_flaps_are_counted_over_three_hours_of_rounds() -> None:
    memory = None
    for n in range(4):
        now = replace(PORT, downed=n, at_s=1000.0 + 3600 * n)
        last = list(judge((now,), memory, COMPUTE))
        memory = next_state(memory, (now,))

    assert faults(last) == {"ib_link_flapping": Severity.MAJOR}
    assert last[0].evidence["in_window"] == 3
    much_later = replace(PORT, downed=4, at_s=1000.0 + 3600 * 20)
    assert faults(list(judge((much_later,), memory, COMPUTE))) == {"ib_link_flapping": Severity.WARNING}


def test_a_counter_that_somebody_reset_is_not_a_flap() -> None:
    assert found(replace(PORT, downed=0), replace(PORT, downed=7)) == []


def test_the_first_look_at_a_port_cannot_show_a_flap() -> None:
    assert found(replace(PORT, downed=7)) == []


def test_a_counter_that_fills_while_we_watch_is_said_because_it_is_blind_from_then_on() -> None:
    memory = next_state(None, (replace(PORT, downed=254),))
    full = replace(PORT, downed=255)

    assert set(faults(list(judge((full,), memory, COMPUTE)))) == {"ib_link_flapping", "ib_counter_saturated"}
    memory = next_state(memory, (full,))
    assert faults(list(judge((full,), memory, COMPUTE))) == {"ib_counter_saturated": Severity.WARNING}


def test_a_counter_that_was_full_at_the_first_look_is_said_only_where_the_site_asks() -> None:
    full = replace(PORT, downed=255)

    assert found(full) == []
    assert found(full, full) == []
    assert set(faults(found(full, full, replace(COMPUTE, full_since_boot=True)))) == {"ib_counter_saturated"}


def test_a_port_that_waits_for_minutes_lacks_its_subnet_manager() -> None:
    memory = next_state(next_state(None, (PORT,)), (replace(INIT, at_s=1030.0),))
    soon, later = replace(INIT, at_s=1100.0), replace(INIT, at_s=1030.0 + 180)

    assert list(judge((soon,), memory, COMPUTE)) == []
    (finding,) = judge((later,), memory, COMPUTE)
    assert (finding.fault, finding.severity) == ("ib_no_subnet_manager", Severity.WARNING)
    assert (finding.evidence["waited_s"], finding.evidence["fabric_wide"]) == (180, True)


def test_a_port_that_waits_at_the_first_look_is_taken_to_wait_since_boot() -> None:
    assert set(faults(found(INIT))) == {"ib_no_subnet_manager"}
    assert found(replace(INIT, at_s=60.0)) == []


def test_a_port_that_came_up_waits_anew_when_it_goes_back_to_init() -> None:
    memory = None
    for now in (INIT, replace(PORT, at_s=1100.0), replace(INIT, at_s=2000.0)):
        last = list(judge((now,), memory, COMPUTE))
        memory = next_state(memory, (now,))

    assert last == []


def test_an_adapter_that_is_gone_is_missed_by_its_role() -> None:
    policy = Policy(roles={"compute": Role(hcas=("mlx5_0", "mlx5_1"), ports=2)})

    (finding,) = judge((PORT,), None, policy)

    assert (finding.component, finding.fault, finding.severity) == ("ib/compute", "ib_port_missing", Severity.CRITICAL)
    assert (finding.evidence["expected"], finding.evidence["found"]) == (2, 1)


def test_seven_ports_that_are_well_do_not_hide_the_eighth() -> None:
    others = tuple(replace(PORT, name=f"mlx5_{i}/1") for i in range(1, 8))

    assert [f.component for f in judge((*others, DOWN), None, COMPUTE)] == ["mlx5_0/1"]


def test_a_second_port_that_somebody_disabled_is_no_fault() -> None:
    second = replace(DOWN, name="mlx5_0/2", phys_state="Disabled")

    assert list(judge((PORT, second), None, Policy())) == []


@pytest.mark.parametrize(
    "now", [DOWN, replace(PORT, rate_gbps=200), replace(PORT, downed=5), replace(PORT, error="EIO")]
)
def test_each_finding_names_its_adapter_by_the_pci_address_too(now: Port) -> None:
    """The kernel's name of an adapter can change with a bond, a rename or another card."""
    (finding,) = found(now, PORT)

    assert finding.evidence["pci"] == "0000:18:00.0"


def test_a_node_without_ports_is_skipped_unless_some_are_expected() -> None:
    with pytest.raises(Unavailable, match="no InfiniBand"):
        list(judge((), None, Policy()))
    missing = list(judge((), None, Policy(roles={"compute": Role(hcas=("mlx5_0",), ports=1)})))
    assert faults(missing) == {"ib_port_missing": Severity.CRITICAL}


def test_roles_differ_in_what_a_lost_link_is_worth() -> None:
    roles = {
        "compute": Role(hcas=("mlx5_0",)),
        "management": Role(hcas=("mlx5_bond_*",), down=Severity.WARNING),
    }
    both = (DOWN, replace(DOWN, name="mlx5_bond_0/1", link_layer="Ethernet"))

    assert [f.severity for f in judge(both, None, Policy(roles=roles))] == [Severity.CRITICAL, Severity.WARNING]


def before_and_after(hosts: Path, tree: str) -> list[Finding]:
    memory = next_state(None, read(Host(hosts / tree / "before")))
    return list(judge(read(Host(hosts / tree)), memory, Policy()))


def test_a_management_adapter_with_rdma_in_a_bond_is_left_to_the_rules_for_ethernet(hosts: Path) -> None:
    assert before_and_after(hosts, "rdma-mgmt-bond-member-down") == []


def test_a_bond_of_two_functions_that_lost_a_member_has_no_passing_flap(hosts: Path) -> None:
    assert before_and_after(hosts, "mlx5-lag-pf0-down") == []


def test_lost_links_of_representors_are_not_those_of_the_uplink(hosts: Path) -> None:
    assert before_and_after(hosts, "switchdev-representors") == []


def test_lost_links_of_the_uplink_count_beside_representors_too(put: Put, tmp_path: Path) -> None:
    put("mlx5_0", link_layer="Ethernet")
    for name, downs, phys in (("eth0", 3, "p0"), ("eth1", 40, "pf0vf0"), ("eth2", 50, "c1pf0sf88")):
        folder = tmp_path / f"sys/devices/mlx5_0/0000:18:00.0/net/{name}"
        folder.mkdir(parents=True)
        (folder / "carrier_down_count").write_text(f"{downs}\n")
        (folder / "phys_port_name").write_text(f"{phys}\n")

    (port,) = read(Host(tmp_path))

    assert (port.netdev, port.downed) == ("eth0", 3)


ETHERNET = replace(PORT, name="bnxt_re0/1", link_layer="Ethernet", pci="0000:41:00.0", netdev="eno1")


def test_an_ethernet_port_that_no_role_claims_follows_the_rules_for_ethernet() -> None:
    down = replace(ETHERNET, state="DOWN", phys_state="Disabled")

    assert faults(found(down, ETHERNET, Policy())) == {"ib_link_down": Severity.MAJOR}
    for harmless in (replace(down, bond="bond0"), replace(down, wanted_up=False), replace(down, pci="")):
        assert found(harmless, replace(ETHERNET, pci=harmless.pci), Policy()) == []


def test_an_ethernet_port_that_a_role_claims_is_part_of_the_compute_fabric() -> None:
    policy = Policy(roles={"compute": Role(pci=("0000:41:*",), ports=1, rate_gbps=400)})
    down = replace(ETHERNET, state="DOWN", phys_state="Disabled")

    assert faults(found(down, ETHERNET, policy)) == {"ib_link_down": Severity.CRITICAL}


PCI_ROLE = Policy(roles={"compute": Role(pci=("0000:18:00.0",), hcas=("mlx5_7",), ports=1, rate_gbps=400)})


@pytest.mark.parametrize("name", ["mlx5_0/1", "ibp24s0/1", "mlx5_7/1"])
def test_an_adapter_has_its_role_whatever_the_kernel_calls_it(name: str) -> None:
    assert found(replace(PORT, name=name), policy=PCI_ROLE) == []
    assert faults(found(replace(DOWN, name=name), policy=PCI_ROLE)) == {"ib_link_down": Severity.CRITICAL}


def test_the_address_of_an_adapter_counts_before_its_name() -> None:
    """In another tray order mlx5_7 is the storage adapter."""
    storage = replace(DOWN, name="mlx5_7/1", pci="0000:29:00.0")
    roles = {**PCI_ROLE.roles, "storage": Role(pci=("0000:29:00.?",), must_be_up=False)}

    assert list(judge((PORT, storage), None, Policy(roles=roles))) == []


def test_ports_with_other_names_and_addresses_fill_a_role_by_their_rate() -> None:
    policy = Policy(roles={"compute": Role(hcas=("mlx5_0", "mlx5_1"), ports=2, rate_gbps=400)})
    others = tuple(replace(PORT, name=f"rocep{n}s0/1", pci=f"0000:{n}:00.0") for n in (24, 64))
    slow = replace(PORT, name="eth/1", rate_gbps=25)

    assert list(judge((*others, slow), None, policy)) == []
    missing = list(judge((others[0], slow), None, policy))
    assert [(f.component, f.fault) for f in missing] == [("ib/compute", "ib_port_missing")]


def test_a_role_with_a_link_layer_takes_no_other_port() -> None:
    policy = Policy(roles={"compute": Role(link_layer="InfiniBand", ports=2, rate_gbps=400)})

    (missing,) = judge((PORT, replace(ETHERNET, rate_gbps=400)), None, policy)

    assert (missing.fault, missing.evidence["found"]) == ("ib_port_missing", 1)


def put_adapter(root: Path, address: str, driver: str = "") -> Path:
    place = root / f"sys/devices/pci0000:00/{address}"
    place.mkdir(parents=True)
    (place / "uevent").write_text((f"DRIVER={driver}\n" if driver else "") + "PCI_CLASS=20700\nPCI_ID=15B3:1021\n")
    link = root / f"sys/bus/pci/devices/{address}"
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(f"../../../devices/pci0000:00/{address}")
    return place


@pytest.mark.parametrize(("driver", "severity"), [("", Severity.CRITICAL), ("vfio-pci", Severity.WARNING)])
def test_an_adapter_whose_driver_made_no_port_is_named_by_its_address(
    put: Put, tmp_path: Path, driver: str, severity: Severity
) -> None:
    put("mlx5_0")
    put_adapter(tmp_path, "0000:9a:00.0", driver)
    policy = Policy(roles={"compute": Role(hcas=("mlx5_*",), ports=2)})

    (finding,) = judge(read(Host(tmp_path)), None, policy)

    assert (finding.component, finding.fault, finding.severity) == ("0000:9a:00.0", "ib_port_missing", severity)
    assert (finding.evidence["role"], finding.evidence["on_bus"], finding.evidence["driver"]) == (
        "compute",
        True,
        driver,
    )


def test_an_adapter_without_a_port_that_no_role_lacks_is_no_fault(put: Put, tmp_path: Path) -> None:
    put("mlx5_0")
    put_adapter(tmp_path, "0000:9a:00.0")

    assert list(judge(read(Host(tmp_path)), None, COMPUTE)) == []
    assert list(judge(read(Host(tmp_path)), None, Policy())) == []


def test_an_ethernet_adapter_without_rdma_is_not_one_without_a_port(put: Put, tmp_path: Path) -> None:
    put("mlx5_0")
    (put_adapter(tmp_path, "0000:9a:00.0") / "net/eth0").mkdir(parents=True)

    assert [port.name for port in read(Host(tmp_path))] == ["mlx5_0/1"]


def test_an_adapter_that_left_the_bus_is_named_by_the_address_that_it_had() -> None:
    policy = Policy(roles={"compute": Role(hcas=("mlx5_*",), ports=2)})
    other = replace(PORT, name="mlx5_1/1", pci="0000:40:00.0")
    memory = next_state(None, (PORT, other))
    for _ in range(2):
        found = list(judge((PORT,), memory, policy))
        memory = next_state(memory, (PORT,))

    assert [(f.component, f.fault, f.evidence["on_bus"]) for f in found] == [("0000:40:00.0", "ib_port_missing", False)]
    assert list(judge((PORT, other), memory, policy)) == []


def test_an_absent_adapter_of_a_role_with_addresses_is_named_though_it_was_never_seen() -> None:
    policy = Policy(roles={"compute": Role(pci=("0000:18:00.0", "0000:40:00.0"), ports=2)})

    assert [f.component for f in judge((PORT,), None, policy)] == ["0000:40:00.0"]


@pytest.mark.parametrize("text", ["", None])
def test_an_unused_port_without_a_rate_is_no_fault_and_an_active_one_is(put: Put, tmp_path: Path, text) -> None:
    for hca, state in (("mlx5_0", "1: DOWN"), ("mlx5_1", "4: ACTIVE")):
        rate = put(hca, state=state) / "rate"
        rate.unlink() if text is None else rate.write_text(text)

    found = list(judge(read(Host(tmp_path)), None, Policy()))

    assert [(f.component, f.fault) for f in found] == [("mlx5_1/1", "ib_port_unreadable")]


def looks(*rounds: Port) -> list[list[tuple[object, ...]]]:
    """What each look says of flaps."""
    memory, said = None, []
    for at_s, port in enumerate(rounds):
        now = (replace(port, at_s=1000.0 + at_s),)
        found = judge(now, memory, COMPUTE)
        said.append([(f.evidence["flaps"], f.evidence["in_window"]) for f in found if f.fault == "ib_link_flapping"])
        memory = next_state(memory, now)
    return said


def test_a_flap_that_is_first_seen_while_the_port_is_down_counts_when_it_is_up_again() -> None:
    assert looks(PORT, replace(DOWN, downed=1), replace(PORT, downed=1)) == [[], [], [(1, 1)]]


def test_flaps_count_while_the_port_is_down_and_none_counts_twice() -> None:
    assert looks(PORT, replace(DOWN, downed=3), replace(PORT, downed=3), replace(PORT, downed=3)) == [
        [],
        [(2, 3)],
        [(1, 3)],
        [],
    ]


def test_a_port_that_goes_down_and_stays_down_does_not_flap() -> None:
    assert looks(PORT, *(replace(DOWN, downed=1),) * 3) == [[], [], [], []]


def test_a_port_without_a_counter_flaps_where_two_looks_show_it() -> None:
    blind = replace(PORT, downed=None)

    assert looks(blind, replace(DOWN, downed=None), blind) == [[], [], [(1, 1)]]


def test_a_port_that_comes_up_for_the_first_time_does_not_flap() -> None:
    assert looks(DOWN, PORT) == [[], []]


ports = st.builds(
    Port,
    name=st.sampled_from(["mlx5_0/1", "mlx5_1/1", "mlx5_bond_0/1"]),
    at_s=st.floats(0, 1e6),
    state=st.sampled_from(["ACTIVE", "DOWN", "INIT", "ARMED", "NOP", ""]),
    rate_gbps=st.sampled_from([0, 2.5, 400]),
    width=st.integers(0, 12),
    link_layer=st.sampled_from(["InfiniBand", "Ethernet", "Unknown"]),
    downed=st.none() | st.integers(0, 255),
    error=st.sampled_from(["", "EIO"]),
)


@given(st.lists(st.lists(ports, max_size=3, unique_by=lambda p: p.name).map(tuple), max_size=8))
def test_no_sequence_of_readings_makes_judge_raise_or_a_lost_link_pass_for_well(rounds) -> None:
    memory = None
    for now in rounds:
        if now:
            found = {f.component for f in judge(now, memory, COMPUTE) if f.fault != "ib_link_flapping"}
            bad = {p.name for p in now if p.error or p.state not in ("ACTIVE", "INIT", "ARMED")}
            assert bad <= found
        memory = next_state(memory, now)
