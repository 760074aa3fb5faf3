"""A kernel that hangs or broke: hung tasks, lockups, RCU stalls, oopses.

Source: the kernel log (kernel/hung_task.c, kernel/watchdog.c, Documentation/RCU/stallwarn.rst and
admin-guide/bug-hunting.rst). A program's own protection fault begins with "traps:" and is not the kernel's.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from nodetriage.checks.model import Check, Finding, Host, Severity
from nodetriage.checks.rules.kernel_lines import Event, events, findings, nothing, pattern, rule

RULES = (
    rule("hung_task", r"INFO: task .{1,64}:\d+ blocked for more than \d+ seconds", "kernel"),
    rule("soft_lockup", r"BUG: soft lockup - CPU#\d+ stuck for \d+s", "kernel"),
    rule("hard_lockup", r"Watchdog detected hard LOCKUP on cpu \d+|^(?:NMI watchdog: )?BUG: hard lockup", "kernel"),
    rule("rcu_stall", r"rcu: INFO: \w+ (?:self-)?detected (?:expedited )?stalls?|rcu: \w+ kthread starved", "kernel"),
    rule(
        "oops",
        r"^BUG: (?:unable to handle|kernel NULL pointer|scheduling while atomic|Bad page state)|^kernel BUG at "
        r"|^Oops(?:: |\[)|^general protection fault|^Internal error: |^Unable to handle kernel ",
        "kernel",
    ),
)


@dataclass(frozen=True, slots=True)
class Policy:
    """What each is worth. A task can hang for a file server's sake; after a lockup or an oops nothing is sure."""

    hung_task: Severity = Severity.WARNING
    soft_lockup: Severity = Severity.MAJOR
    hard_lockup: Severity = Severity.CRITICAL
    rcu_stall: Severity = Severity.MAJOR
    oops: Severity = Severity.MAJOR


def read(host: Host) -> tuple[Event, ...]:
    return events(host.kernel_log(), RULES)


def judge(now: tuple[Event, ...], before: tuple[Event, ...] | None, policy: Policy) -> Iterator[Finding]:
    yield from findings(now, {r.kind: (f"kernel_{r.kind}", getattr(policy, r.kind)) for r in RULES})


CHECK = Check(
    name="kernel_hang",
    read=read,
    judge=judge,
    policy=Policy(),
    faults=("kernel_hung_task", "kernel_soft_lockup", "kernel_hard_lockup", "kernel_rcu_stall", "kernel_oops"),
    next_state=nothing,
    kernel_pattern=pattern(RULES),
)
