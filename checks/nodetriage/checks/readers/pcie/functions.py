"""What one PCI function is: Documentation/ABI/testing/sysfs-bus-pci, Documentation/PCI/sysfs-pci.rst."""

from pathlib import PurePosixPath

from nodetriage.checks.model import Host, PciDevice


def device(host: Host, path: PurePosixPath) -> PciDevice | None:
    """Reads `uevent`, which has all in one file; a recorded tree may have only the single files.

    None where neither says what the device is: it goes away just now, or the tree is not whole.
    """
    try:
        folder = host.link(path)
    except OSError:  # a recorded tree may lack the links
        folder = path
    keys = _uevent(host, str(path))
    try:
        if "PCI_ID" in keys:
            vendor, number = (int(text, 16) for text in keys["PCI_ID"].split(":"))
        else:
            vendor, number = (int(host.text(path / name), 16) for name in ("vendor", "device"))
        class_code = int(keys["PCI_CLASS"] if "PCI_CLASS" in keys else host.text(path / "class"), 16)
    except (FileNotFoundError, ValueError):
        return None
    return PciDevice(path.name.lower(), vendor, number, class_code, str(folder), host.exists(folder / "physfn"))


def driver(host: Host, of: PciDevice) -> str | None:
    """The driver to which it is bound now; None where it has none. Raises OSError."""
    if name := _uevent(host, of.folder).get("DRIVER"):
        return name
    try:
        return host.link(f"{of.folder}/driver").name
    except FileNotFoundError:
        return None


def _uevent(host: Host, folder: str) -> dict[str, str]:
    """The device's keys and values; empty where a recorded tree lacks the file."""
    try:
        return dict(line.split("=", 1) for line in host.text(f"{folder}/uevent").splitlines() if "=" in line)
    except FileNotFoundError:
        return {}
