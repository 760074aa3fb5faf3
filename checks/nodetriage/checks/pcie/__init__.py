"""Checks of PCIe links."""
