"""Readings of PCIe links."""
