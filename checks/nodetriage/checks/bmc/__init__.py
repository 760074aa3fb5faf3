"""Checks of what the BMC reports."""
