"""Slurm through its commands and its REST daemon."""
