"""How much a fault matters. Imports nothing of ours."""

import enum


class Severity(enum.IntEnum):
    """How much a fault matters to the node's jobs. The order is meaning; the numbers are the wire's."""

    INFO = 1  # keep
    WARNING = 2  # record; no action
    MAJOR = 3  # serious: the job may finish, then the node is drained
    CRITICAL = 4  # remove the node now
