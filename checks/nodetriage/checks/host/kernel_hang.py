"""A kernel that hangs or broke: hung tasks, lockups, RCU stalls, oopses.

Source: the kernel log (kernel/hung_task.c, kernel/watchdog.c, Documentation/RCU/stallwarn.rst and
admin-guide/bug-hunting.rst). A program's own protection fault begins with "traps:" and is not the kernel's.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from nodetriage.checks.model import Check, Finding, Host, Severity
from nodetriage.checks.rules.kernel_lines import Event, events, findings, nothing, pattern, rule

RULES = (
    rule(
        "hung_task", r"INFO: task .{1,15}:\d+ blocked(?: in I/O wait)? for more than \d+ seconds", "kernel",
        "INFO: task python3:4711 blocked for more than 122 seconds.",
        "INFO: task python3:4711 blocked in I/O wait for more than 122 seconds.",
    ),
    rule(
        "soft_lockup", r"(?:(?:NMI )?watchdog: )?BUG: soft lockup - CPU#\d+ stuck for \d+s", "kernel",
        "watchdog: BUG: soft lockup - CPU#12 stuck for 26s! [python3:4711]",
    ),
    rule(
        "hard_lockup", r"(?:NMI )?watchdog: (?:CPU\d+: )?Watchdog detected hard LOCKUP on cpu \d+", "kernel",
        "watchdog: CPU3: Watchdog detected hard LOCKUP on cpu 12",
        "NMI watchdog: Watchdog detected hard LOCKUP on cpu 12",
    ),
    rule(
        "rcu_stall",
        r"rcu: INFO: \w{1,30} (?:self-)?detected (?:expedited )?stalls? on CPU|rcu: \w{1,30} kthread starved for",
        "kernel",
        "rcu: INFO: rcu_sched self-detected stall on CPU", "rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:",
        "rcu: rcu_sched kthread starved for 5250 jiffies! g1042813 f0x0 RCU_GP_WAIT_FQS(5) ->state=0x0 ->cpu=12",
    ),
    rule(
        "oops",
        r"BUG: (?:unable to handle|kernel NULL pointer|scheduling while atomic|Bad page state)"
        r"|kernel BUG at [\w./-]{4,120}:\d+!|(?:Oops: ){1,2}[0-9a-f]{4} \[#\d+\] (?:PREEMPT|SMP)"
        r"|(?:Oops: )?general protection fault"
        "|Internal error: (?:Oops|a?synchronous|SP/PC|SError|level|undefined)|Unable to handle kernel ",
        "kernel",
        "BUG: unable to handle page fault for address: ffffb5a2c0c01000",
        "kernel BUG at mm/slub.c:448!", "Oops: 0002 [#1] SMP NOPTI", "Oops: Oops: 0002 [#1] PREEMPT SMP",
        "general protection fault, probably for non-canonical address 0xdead000000000122: 0000 [#1] PREEMPT SMP NOPTI",
        "Internal error: Oops - BUG: 00000000f2000800 [#1] SMP",
        "Unable to handle kernel NULL pointer dereference at virtual address 0000000000000008",
    ),
)  # fmt: skip


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
