"""Checks of memory, CPUs, kernel, clock and services."""
