"""Every check that is installed, ours and other people's, found once: when this module is imported."""

from nodetriage.checks.registry import all_checks

CHECKS, TROUBLES = all_checks()  # the checks, and a line for each foreign one that could not be loaded
