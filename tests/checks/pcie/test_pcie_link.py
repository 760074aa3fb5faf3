"""PCIe links: lanes, speeds, and what is no fault."""

from dataclasses import replace
from pathlib import Path

import pytest

from nodetriage.agent.machine.host import Host
from nodetriage.checks.model import Finding, Severity, Unavailable
from nodetriage.checks.pcie.pcie_link import CHECK, Expected, Policy, judge, next_state, read
from nodetriage.checks.readers.pcie.ends import Link

GPU = Link("0000:9d:00.0", "gpu", "0000:9c:01.0", 16, 2.5, 16, 32.0)
NIC = Link("0000:18:00.0", "nic", "0000:17:01.0", 16, 32.0, 16, 32.0)


def found(now: Link, *earlier: Link, policy: Policy = CHECK.policy) -> list[Finding]:
    memory = None
    for link in earlier:
        memory = next_state(memory, (link,))
    return list(judge((now,), memory, policy))


def put(root: Path, address: str, class_code: str, vendor: str = "15B3", **files: str) -> Path:
    """A device below a port; keywords are its files."""
    place = root / f"sys/devices/pci0000:00/0000:00:01.0/{address}"
    place.mkdir(parents=True)
    (place / "uevent").write_text(f"PCI_CLASS={class_code}\nPCI_ID={vendor}:1021\n")
    whole = {"max_link_width": "16", "max_link_speed": "32.0 GT/s PCIe"}
    whole |= {"current_link_width": "16", "current_link_speed": "32.0 GT/s PCIe"}
    for name, text in {**whole, **files}.items():
        (place / name).write_text(text + "\n")
    link = root / f"sys/bus/pci/devices/{address}"
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(f"../../../devices/pci0000:00/0000:00:01.0/{address}")
    return place


def test_a_gpu_that_lost_lanes_is_high_at_the_first_look() -> None:
    (finding,) = found(replace(GPU, width=8))

    assert (finding.component, finding.fault, finding.severity) == (
        "0000:9d:00.0",
        "pcie_link_narrow",
        Severity.CRITICAL,
    )
    assert (finding.evidence["width"], finding.evidence["expected_width"]) == (8, 16)


def test_an_idle_gpu_at_the_lowest_speed_is_well_however_long_it_idles() -> None:
    assert found(GPU, *(GPU,) * 10) == []


def test_an_adapter_is_slow_only_when_it_stays_so() -> None:
    slow = replace(NIC, speed_gts=8.0)

    assert found(slow, slow) == []
    assert [f.fault for f in found(slow, slow, slow)] == ["pcie_link_slow"]
    assert found(NIC, slow, slow, slow) == []
    assert found(slow, slow, NIC, slow) == []


def test_a_card_of_sixteen_lanes_in_a_slot_of_eight_is_whole(tmp_path: Path) -> None:
    port = put(tmp_path, "0000:18:00.0", "20700", current_link_width="8").parent
    (port / "max_link_width").write_text("8\n")
    (port / "max_link_speed").write_text("16.0 GT/s PCIe\n")
    (tmp_path / "sys/bus/pci/devices/0000:00:01.0").symlink_to("../../../devices/pci0000:00/0000:00:01.0")
    (port / "uevent").write_text("PCI_CLASS=60400\nPCI_ID=8086:352A\n")

    (link,) = read(Host(tmp_path))

    assert (link.port, link.most_width, link.most_speed_gts) == ("0000:00:01.0", 8, 16.0)
    assert found(link) == []


def test_a_narrow_adapter_whose_slot_may_be_narrow_is_low_and_high_where_it_was_wider() -> None:
    narrow = replace(NIC, width=8)

    assert [f.severity for f in found(narrow)] == [Severity.MAJOR]
    assert [f.severity for f in found(narrow, NIC)] == [Severity.CRITICAL]
    assert [f.severity for f in found(narrow, policy=Policy(expected={"nic": Expected(width=16)}))] == [
        Severity.CRITICAL
    ]


def test_a_site_can_say_what_a_slot_has() -> None:
    policy = Policy(expected={"0000:18:*": Expected(width=8, speed_gts=16)})

    assert found(replace(NIC, width=8, speed_gts=16), *(replace(NIC, width=8, speed_gts=16),) * 5, policy=policy) == []


def test_a_device_that_does_not_answer_shows_all_ones_and_is_found(tmp_path: Path) -> None:
    put(tmp_path, "0000:18:00.0", "20700", current_link_width="63", current_link_speed="Unknown")

    assert off_the_bus(tmp_path) == [("0000:18:00.0", Severity.CRITICAL, "current_link_width is 63")]


def off_the_bus(root: Path) -> list[tuple[str, Severity, object]]:
    found = list(judge(read(Host(root)), None, Policy()))
    assert {f.fault for f in found} <= {"pcie_off_bus"}
    return [(f.component, f.severity, f.evidence["reason"]) for f in found]


def test_a_device_that_the_kernel_knows_to_be_gone_refuses_its_files(tmp_path: Path) -> None:
    place = put(tmp_path, "0000:18:00.0", "20700", max_link_width="255", max_link_speed="Unknown")
    path = f"/{place.relative_to(tmp_path)}"
    refused = [f'"{path}/{name}" = "EINVAL"' for name in ("current_link_width", "current_link_speed")]
    (tmp_path / "errors.toml").write_text("\n".join(refused) + "\n")

    assert off_the_bus(tmp_path) == [("0000:18:00.0", Severity.CRITICAL, "current_link_width cannot be read")]


def test_a_configuration_space_of_ones_is_a_device_off_the_bus(tmp_path: Path) -> None:
    unknown = {"current_link_width": "0", "current_link_speed": "Unknown"}
    put(tmp_path, "0000:18:00.0", "20700", **unknown).joinpath("config").write_bytes(b"\xff" * 256)

    assert off_the_bus(tmp_path) == [("0000:18:00.0", Severity.CRITICAL, "the configuration space holds ones only")]


def test_a_device_that_lost_its_link_in_this_boot_is_off_the_bus_and_one_that_never_had_it_is_not() -> None:
    down = replace(NIC, width=0, speed_gts=0)

    assert [(f.fault, f.severity) for f in found(down, NIC)] == [("pcie_off_bus", Severity.CRITICAL)]
    assert [(f.fault, f.severity) for f in found(down, down)] == [("pcie_unreadable", Severity.MAJOR)]


def test_a_device_that_the_kernel_has_suspended_is_not_off_the_bus(tmp_path: Path) -> None:
    place = put(tmp_path, "0000:18:00.0", "20700", current_link_width="63", current_link_speed="Unknown")
    (place / "power").mkdir()
    (place / "power/runtime_status").write_text("suspended\n")
    put(tmp_path, "0000:19:00.0", "20700")

    assert off_the_bus(tmp_path) == []


def test_a_switch_that_is_off_the_bus_stands_for_what_is_behind_it() -> None:
    uplink = Link("0000:16:00.0", "switch", "0000:15:01.0", behind=("0000:18:00.0", "0000:19:00.0"), silent="ones")
    below = [Link(f"0000:{n}:00.0", "nic", "", behind=(f"0000:{n}:00.0",), silent="ones") for n in (18, 19)]
    other = Link("0000:9d:00.0", "gpu", "", behind=("0000:9d:00.0",), silent="ones")

    lost = list(judge((uplink, *below, other), None, Policy()))

    assert [(f.component, f.evidence.get("behind", "")) for f in lost] == [
        ("0000:16:00.0", "0000:18:00.0 0000:19:00.0"),
        ("0000:9d:00.0", ""),
    ]


def test_an_old_kernel_that_cannot_name_a_speed_does_not_lose_the_device(tmp_path: Path) -> None:
    put(tmp_path, "0000:18:00.0", "20700", current_link_speed="Unknown", max_link_speed="Unknown")

    assert off_the_bus(tmp_path) == []


@pytest.mark.parametrize("tree", ["switch-uplink-narrow", "switch-uplink-narrow/before"])
def test_a_narrow_link_above_a_switch_is_told_once_with_all_devices_behind_it(hosts: Path, tree: str) -> None:
    (finding,) = judge(read(Host(hosts / tree)), None, Policy())

    assert (finding.component, finding.fault, finding.severity) == ("0000:16:00.0", "pcie_link_narrow", Severity.MAJOR)
    assert finding.evidence["behind"] == "0000:18:00.0 0000:19:00.0"
    assert (finding.evidence["kind"], finding.evidence["port"]) == ("switch", "0000:15:01.0")


def test_the_other_links_below_a_switch_are_judged_on_their_own(hosts: Path) -> None:
    links = {link.address: link for link in read(Host(hosts / "switch-uplink-narrow"))}

    assert {a: (link.kind, link.port) for a, link in links.items() if link.port} == {
        "0000:16:00.0": ("switch", "0000:15:01.0"),
        "0000:18:00.0": ("gpu", "0000:17:00.0"),
        "0000:19:00.0": ("nic", "0000:17:01.0"),
    }


def test_a_slot_that_a_bios_holds_at_a_lower_speed_since_boot_is_a_warning(hosts: Path) -> None:
    memory = None
    for _ in range(5):
        memory = next_state(memory, now := read(Host(hosts / "gen4-limited-slots")))

    found = list(judge(now, memory, Policy()))

    assert {f.fault for f in found} == {"pcie_link_slow"}
    assert {f.severity for f in found} == {Severity.WARNING}
    assert {f.evidence["since_boot"] for f in found} == {True}


def test_a_link_that_fell_in_this_boot_or_below_what_the_site_expects_is_more_than_a_warning() -> None:
    slow = replace(NIC, speed_gts=16.0)
    expected = Policy(expected={"nic": Expected(speed_gts=32)})

    assert [f.severity for f in found(slow, NIC, slow, slow)] == [Severity.MAJOR]
    assert [f.severity for f in found(slow, slow, slow, policy=expected)] == [Severity.MAJOR]
    assert [f.severity for f in found(slow, slow, slow)] == [Severity.WARNING]


def test_two_functions_of_one_card_have_one_link(tmp_path: Path) -> None:
    for address in ("0000:18:00.0", "0000:18:00.1"):
        put(tmp_path, address, "20700", current_link_width="8")

    (finding,) = judge(read(Host(tmp_path)), None, Policy())

    assert (finding.component, finding.evidence["behind"]) == ("0000:18:00.0", "0000:18:00.0 0000:18:00.1")


def test_a_virtual_machine_without_links_is_skipped_and_not_ok(tmp_path: Path) -> None:
    unknown = {"max_link_width": "255", "max_link_speed": "Unknown"}
    put(tmp_path, "0000:18:00.0", "20700", current_link_width="0", current_link_speed="Unknown", **unknown)

    with pytest.raises(Unavailable):
        read(Host(tmp_path))


def test_virtual_functions_and_screens_of_a_bmc_are_left_out(tmp_path: Path) -> None:
    (put(tmp_path, "0000:18:00.1", "20700", current_link_width="0") / "physfn").mkdir()
    put(tmp_path, "0000:03:00.0", "30000", vendor="1A03", current_link_width="1")

    with pytest.raises(Unavailable):
        read(Host(tmp_path))


@pytest.mark.parametrize("name", ["max_link_width", "current_link_width", "max_link_speed", "current_link_speed"])
@pytest.mark.parametrize("text", ["", "-1", "Unknownish\ufffd 3", "9" * 400, "16x"])
def test_nonsense_never_passes_for_a_whole_link(tmp_path: Path, name: str, text: str) -> None:
    put(tmp_path, "0000:18:00.0", "20700", **{name: text})
    put(tmp_path, "0000:19:00.0", "20700")

    links = read(Host(tmp_path))

    assert len(links) == 2
    broken = next(link for link in links if link.address == "0000:18:00.0")
    assert broken.error or not (broken.width and broken.speed_gts and broken.most_width and broken.most_speed_gts)


@pytest.mark.parametrize("error", ["EIO", "EAGAIN"])
def test_a_file_that_cannot_be_read_is_found_with_its_path(tmp_path: Path, error: str) -> None:
    put(tmp_path, "0000:18:00.0", "20700")
    path = "/sys/devices/pci0000:00/0000:00:01.0/0000:18:00.0/current_link_width"
    (tmp_path / "errors.toml").write_text(f'"{path}" = "{error}"\n')

    (finding,) = judge(read(Host(tmp_path)), None, Policy())

    assert finding.fault == "pcie_unreadable"
    assert path in str(finding.evidence["error"])
