"""Checks of InfiniBand, RoCE and Ethernet."""
