"""Ethernet links."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from nodetriage.agent.machine.host import Host
from nodetriage.checks.fabric.eth_link import CHECK, Expected, Policy, judge, next_state, read
from nodetriage.checks.model import Finding, Severity, Unavailable
from nodetriage.checks.readers.netdev import Interface

UP = Interface("eno1", 1000.0, "0000:05:00.0", wanted_up=True, carrier=True, speed_mbps=10_000, downs=1)
DOWN = replace(UP, carrier=False, speed_mbps=0)
Put = Callable[..., Path]


def found(now: Interface, *earlier: Interface, policy: Policy = CHECK.policy) -> dict[str, Severity]:
    return {f.fault: f.severity for f in findings(now, *earlier, policy=policy)}


def findings(now: Interface, *earlier: Interface, policy: Policy) -> list[Finding]:
    memory = None
    for interface in earlier:
        memory = next_state(memory, (interface,))
    return list(judge((now,), memory, policy))


@pytest.fixture
def put(tmp_path: Path) -> Put:
    def make(name: str, address: str = "0000:05:00.0", **files: str) -> Path:
        device = tmp_path / f"sys/devices/pci0000:04/{address}"
        folder = device / "net" / name
        folder.mkdir(parents=True)
        told = {"type": "1", "flags": "0x1003", "operstate": "up", "speed": "10000", "carrier_down_count": "0"}
        for key, text in {**told, **files}.items():
            (folder / key).write_text(text + "\n")
        (folder / "device").symlink_to(f"../../../{address}")
        link = tmp_path / "sys/class/net" / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(f"../../devices/pci0000:04/{address}/net/{name}")
        return folder

    return make


def test_a_port_that_nobody_uses_is_no_fault() -> None:
    assert found(DOWN, DOWN) == {}


def test_a_port_that_was_up_and_is_down_is_a_fault() -> None:
    assert found(DOWN, UP) == {"eth_link_down": Severity.MAJOR}


def test_a_port_that_an_administrator_took_down_is_no_fault() -> None:
    assert found(replace(DOWN, wanted_up=False), UP) == {}


def test_a_lost_member_of_a_bond_is_a_warning() -> None:
    assert found(replace(DOWN, bond="bond0"), replace(UP, bond="bond0")) == {"eth_link_down": Severity.WARNING}


def test_an_expected_port_must_be_up_there_and_fast() -> None:
    policy = Policy(expected={"eno*": Expected(speed_mbps=25_000)})

    assert found(DOWN, policy=policy) == {"eth_link_down": Severity.CRITICAL}
    assert found(UP, policy=policy) == {"eth_link_slow": Severity.MAJOR}
    assert [f.fault for f in judge((), None, policy)] == ["eth_missing"]


def test_a_link_that_went_down_and_came_back_between_two_looks_flaps() -> None:
    assert found(replace(UP, downs=2), UP) == {"eth_link_flapping": Severity.WARNING}
    assert found(replace(UP, downs=4), UP) == {"eth_link_flapping": Severity.MAJOR}
    assert found(replace(UP, downs=0), UP) == {}


def test_ports_with_rdma_are_left_to_ib_link_unless_they_are_named() -> None:
    rdma, was = replace(DOWN, rdma=True), replace(UP, rdma=True)

    assert found(rdma, was) == {}
    assert found(rdma, was, policy=Policy(expected={"eno1": Expected()})) == {"eth_link_down": Severity.CRITICAL}


def test_what_hangs_on_usb_is_not_watched() -> None:
    assert found(replace(DOWN, pci=""), replace(UP, pci="")) == {}
    assert found(replace(DOWN, pci="", is_bond=True), replace(UP, pci="", is_bond=True)) == {
        "eth_link_down": Severity.MAJOR
    }


def test_physical_functions_and_bonds_are_read_and_nothing_else(tmp_path: Path, put: Put) -> None:
    put("eno1")
    (put("eno1v0", "0000:05:10.0").parents[1] / "physfn").mkdir()
    put("ibp24s0", "0000:18:00.0", type="32")
    for name in ("docker0", "lo"):
        (tmp_path / "sys/class/net" / name).mkdir()
    bond = tmp_path / "sys/class/net/bond0"
    (bond / "bonding").mkdir(parents=True)
    for key, text in {"type": "1", "flags": "0x1443", "operstate": "up"}.items():
        (bond / key).write_text(text)

    assert [(i.name, i.pci, i.carrier) for i in read(Host(tmp_path))] == [
        ("bond0", "", True),
        ("eno1", "0000:05:00.0", True),
    ]


def test_the_speed_of_a_link_that_is_down_is_not_known_and_no_error(tmp_path: Path, put: Put) -> None:
    put("eno1", operstate="down", speed="-1")
    put("eno2", "0000:06:00.0", operstate="down")
    (tmp_path / "errors.toml").write_text('"/sys/class/net/eno2/speed" = "EINVAL"\n')

    assert [(i.speed_mbps, i.error) for i in read(Host(tmp_path))] == [(0, ""), (0, "")]


@pytest.mark.parametrize("name", ["flags", "operstate", "carrier_down_count"])
@pytest.mark.parametrize("text", ["", "Unknown", "-1", "0xzz", "9" * 300, "\ufffd"])
def test_nonsense_is_found_and_does_not_hide_the_others(tmp_path: Path, put: Put, name: str, text: str) -> None:
    put("eno1", **{name: text})
    put("eno2", "0000:06:00.0")

    broken, whole = read(Host(tmp_path))

    assert (bool(broken.error), whole.error) == (True, "")
    assert [f.fault for f in judge((broken, whole), None, Policy())] == ["eth_unreadable"]


def test_without_ethernet_it_is_skipped_unless_some_is_expected(tmp_path: Path) -> None:
    with pytest.raises(Unavailable):
        list(judge(read(Host(tmp_path)), None, Policy()))


MEMBER = replace(UP, name="eno1np0", bond="bond0", rdma=True)


def test_a_member_of_a_bond_is_judged_with_rdma_too_and_though_it_never_was_up() -> None:
    down = replace(MEMBER, carrier=False)

    assert found(down) == {"eth_link_down": Severity.WARNING}
    assert found(replace(down, wanted_up=False)) == {}
    assert found(replace(down, bond="")) == {}
    assert found(MEMBER) == {}


@pytest.mark.parametrize("tree", ["rdma-mgmt-bond-member-down", "mlx5-lag-pf0-down"])
def test_a_bond_that_lost_a_member_is_a_warning_run_after_run(hosts: Path, tree: str) -> None:
    memory = next_state(None, read(Host(hosts / tree / "before")))
    for _ in range(3):
        said = list(judge(now := read(Host(hosts / tree)), memory, CHECK.policy))
        memory = next_state(memory, now)

        assert {(f.fault, f.severity) for f in said} == {("eth_link_down", Severity.WARNING)}
        assert len({f.component for f in said}) == 1


def test_representors_are_no_ports(hosts: Path) -> None:
    assert [i.name for i in read(Host(hosts / "switchdev-representors"))] == ["enp42s0f0np0"]


def test_a_port_of_a_bridge_is_no_member_of_a_bond(tmp_path: Path, put: Put) -> None:
    for name, kind in (("br0", "bridge"), ("bond0", "bonding")):
        (tmp_path / f"sys/devices/virtual/net/{name}/{kind}").mkdir(parents=True)
        (tmp_path / "sys/class/net").mkdir(parents=True, exist_ok=True)
        (tmp_path / f"sys/class/net/{name}").symlink_to(f"../../devices/virtual/net/{name}")
    (tmp_path / "sys/devices/virtual/net/bond0/bonding/ad_partner_mac").write_text("aa:bb:cc:00:00:01\n")
    (put("eno1") / "master").symlink_to("/sys/devices/virtual/net/br0")
    (put("eno2", "0000:06:00.0") / "master").symlink_to("/sys/devices/virtual/net/bond0")

    told = {i.name: (i.bond, i.partner) for i in read(Host(tmp_path)) if i.pci}

    assert told == {"eno1": ("", ""), "eno2": ("bond0", "aa:bb:cc:00:00:01")}


def test_evidence_names_the_switch_at_the_other_end_of_a_bond() -> None:
    down = replace(MEMBER, carrier=False, partner="aa:bb:cc:00:00:01")

    assert [f.evidence["partner"] for f in findings(down, policy=CHECK.policy)] == ["aa:bb:cc:00:00:01"]


def test_flaps_that_were_seen_while_the_link_was_down_are_reported_when_it_is_up() -> None:
    assert found(replace(UP, downs=2), UP, replace(DOWN, downs=2)) == {"eth_link_flapping": Severity.WARNING}
    assert found(replace(DOWN, downs=4), UP) == {
        "eth_link_down": Severity.MAJOR,
        "eth_link_flapping": Severity.MAJOR,
    }
    assert found(replace(DOWN, downs=2), UP) == {"eth_link_down": Severity.MAJOR}


@pytest.mark.parametrize(
    ("mii", "own", "active", "unused"),
    [
        ("up", "1", "1", False),
        ("up", "2", "1", True),
        ("down", "1", "1", True),
        ("up", None, None, False),
        (None, "1", None, False),
    ],
)
def test_a_member_that_has_a_link_and_that_the_bond_does_not_use_is_a_warning(
    tmp_path: Path, put: Put, mii: str | None, own: str | None, active: str | None, unused: bool
) -> None:
    bonding = tmp_path / "sys/devices/virtual/net/bond0/bonding"
    member = put("eno1")
    (member / "bonding_slave").mkdir()
    bonding.mkdir(parents=True)
    (tmp_path / "sys/class/net/bond0").symlink_to("../../devices/virtual/net/bond0")
    (member / "master").symlink_to("/sys/devices/virtual/net/bond0")
    files = {member / "bonding_slave/mii_status": mii, member / "bonding_slave/ad_aggregator_id": own}
    for file, text in (files | {bonding / "ad_aggregator": active}).items():
        if text is not None:
            file.write_text(text + "\n")

    (interface,) = [i for i in read(Host(tmp_path)) if i.name == "eno1"]

    assert found(interface) == ({"eth_member_unused": Severity.WARNING} if unused else {})
