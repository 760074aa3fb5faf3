"""Checks of file systems and disks."""
