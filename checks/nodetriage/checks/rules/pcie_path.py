"""What a finding about a PCIe link says of the devices behind it. Pure."""

from nodetriage.checks.model import Scalar

_NAMED = 32  # devices; a node has fewer behind one link


def behind(address: str, devices: tuple[str, ...]) -> dict[str, Scalar]:
    """The devices behind the link whose lower end is `address`, as evidence; empty where that is the only one."""
    return {} if devices in ((), (address,)) else {"behind": " ".join(devices[:_NAMED])}
