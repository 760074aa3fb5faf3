"""What the driver's recovery actions are worth: the one table for NVML's field and for Xid 154.

Source: NVML's nvmlDeviceGpuRecoveryAction_t. The words that the driver prints beside the number changed between its
branches, the numbers did not.
"""

from nodetriage.checks.model import Severity

NONE = 0
RESETS = frozenset((1, 2, 4, 6, 7))  # one that becomes NONE was done: the others only let peers or IMEX settle

# A job that still runs may finish under all but one: the driver asks for that one where work must leave first.
_ACTIONS: dict[int, tuple[str, Severity]] = {
    1: ("reset", Severity.MAJOR),
    2: ("reboot", Severity.MAJOR),
    3: ("drain_p2p", Severity.MAJOR),  # quiesce peer traffic and ask again
    4: ("drain_and_reset", Severity.CRITICAL),
    5: ("recover_imex", Severity.WARNING),  # of the whole domain: no fault of this node alone
    6: ("reset_bus", Severity.MAJOR),
    7: ("reboot_system", Severity.MAJOR),
}


def worth(action: int) -> tuple[str, Severity]:
    """Name and severity of an action that is not NONE; a number that nobody knows is a warning."""
    return _ACTIONS.get(action, ("unknown", Severity.WARNING))
