"""How well a finding is witnessed. Imports nothing of ours."""

import enum


class Confidence(enum.IntEnum):
    """How many witnesses a finding has, and how direct they are. The order is meaning; the numbers are the wire's.

    Each rule of the policy acts from its `min_confidence` on; docs/policy.md has the table.
    """

    LINE = 1  # a kernel line alone: no device that it names, or the device contradicts it
    DEVICE = 2  # a kernel line about a device that this machine has
    STATE = 3  # a counter or a state, read from the device or the kernel itself
    WITNESSED = 4  # two witnesses that do not depend on each other agree
