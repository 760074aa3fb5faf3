"""Slurm on this node: its hooks and its configuration."""
