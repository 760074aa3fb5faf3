"""Hung tasks, lockups, RCU stalls, stuck work queues and interrupts.

Source: kernel/hung_task.c, kernel/watchdog.c, kernel/smp.c, kernel/rcu, kernel/workqueue.c, kernel/irq/spurious.c.
"""

from nodetriage.checks.model import Severity
from nodetriage.checks.model.kernel_rules import KernelRule, KernelRules

_HUNG = "kernel/hung_task.c"
_DOG = "kernel/watchdog.c"
_RCU = "kernel/rcu/tree_stall.h"
RULES = KernelRules((
    KernelRule(
        "hang.task",
        r"INFO: task (?P<task>.{1,15}):(?P<pid>\d{1,10}) blocked(?P<in_io> in I/O wait)? for more than \d+ seconds",
        "kernel_hung_task", Severity.WARNING,
        (
            "INFO: task python3:4711 blocked for more than 122 seconds.",
            "INFO: task python3:4711 blocked in I/O wait for more than 122 seconds.",
        ),
        "kernel", source=f"{_HUNG}:hung_task_info",
        never=("INFO: task python3:4711 is blocked on a mutex likely owned by task nv_queue:1877.",),
    ),
    KernelRule(
        "hang.soft", r"(?:NMI watchdog: |watchdog: |)BUG: soft lockup - CPU#(?P<cpu>\d{1,5}) stuck for \d+s",
        "kernel_soft_lockup", Severity.MAJOR,
        (
            "watchdog: BUG: soft lockup - CPU#12 stuck for 26s! [python3:4711]",
            "NMI watchdog: BUG: soft lockup - CPU#12 stuck for 26s! [python3:4711]",
            "BUG: soft lockup - CPU#12 stuck for 26s! [python3:4711]",
        ),
        "kernel", source=f"{_DOG}:watchdog_timer_fn",
        never=("watchdog: Delayed init of the lockup detector failed: -22",),
    ),
    KernelRule(
        "hang.hard", r"(?:NMI watchdog|watchdog): (?:CPU\d{1,5}: )?Watchdog detected hard LOCKUP on cpu (?P<cpu>\d{1,5})",
        "kernel_hard_lockup", Severity.CRITICAL,
        (
            "watchdog: CPU3: Watchdog detected hard LOCKUP on cpu 12",
            "watchdog: Watchdog detected hard LOCKUP on cpu 12", "NMI watchdog: Watchdog detected hard LOCKUP on cpu 12",
        ),
        "kernel", state="lasting", source=f"{_DOG}:watchdog_hardlockup_check",
        never=("NMI watchdog: Enabled. Permanently consumes one hw-PMU counter.",),
    ),
    KernelRule(
        "hang.hard.power", r"watchdog: CPU \d{1,5} (?:detected hard LOCKUP on other CPUs|self-detected hard LOCKUP)",
        "kernel_hard_lockup", Severity.CRITICAL,
        (
            "watchdog: CPU 3 detected hard LOCKUP on other CPUs 12-13",
            "watchdog: CPU 3 self-detected hard LOCKUP @ plpar_hcall_norets+0x1c/0x28",
        ),
        "kernel", state="lasting", source="arch/powerpc/kernel/watchdog.c",
    ),
    KernelRule(
        "hang.power.unstuck", r"watchdog: CPU (?P<cpu>\d{1,5}) became unstuck TB:",
        "kernel_soft_lockup", Severity.WARNING, ("watchdog: CPU 12 became unstuck TB:88120945310",),
        "kernel", state="recovered", source="arch/powerpc/kernel/watchdog.c:wd_smp_clear_cpu_pending",
    ),
    KernelRule(
        "hang.csd",
        r"smp: csd: (?:Detected|Continued) non-responsive CSD lock \(#\d+\) on CPU#\d+, waiting -?\d+ ns for CPU#(?P<cpu>\d{1,5})",
        "kernel_soft_lockup", Severity.MAJOR,
        (
            "smp: csd: Detected non-responsive CSD lock (#1) on CPU#3, waiting 5000000042 ns for CPU#12 "
            "do_flush_tlb_all+0x0/0x30(0x0).",
        ),
        "kernel", source="kernel/smp.c:csd_lock_wait_toolong", versions="5.14 and later",
        never=("smp: csd: CSD lock (#1) got unstuck on CPU#03, CPU#12 released the lock.",),
    ),
    KernelRule(
        "rcu.stall", r"(?:rcu: INFO: \w{1,30}|INFO: rcu_(?:sched|bh|preempt)(?:_state)?) (?:self-)?detected (?:expedited )?stalls? on CPU",
        "kernel_rcu_stall", Severity.MAJOR,
        (
            "INFO: rcu_sched self-detected stall on CPU", "INFO: rcu_sched_state detected stall on CPU 0 (t=15000 jiffies)",
            "rcu: INFO: rcu_sched self-detected stall on CPU", "rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:",
            "rcu: INFO: rcu_sched detected expedited stalls on CPUs/tasks: { 12-...D } 21 jiffies s: 1945 root: 0x1/.",
        ),
        "kernel", source=_RCU, never=("rcu: Hierarchical RCU implementation.",),
    ),
    KernelRule(
        "rcu.csd", r"rcu: INFO: \w{1,30} detected stall, but suppressed full report",
        "kernel_rcu_stall", Severity.MAJOR,
        ("rcu: INFO: rcu_sched detected stall, but suppressed full report due to a stuck CSD-lock.",),
        "kernel", source=_RCU, versions="6.14 and later",
    ),
    KernelRule(
        "rcu.kthread", r"(?:rcu: \w{1,30}|rcu_(?:sched|bh|preempt)) kthread (?:starved for|timer wakeup didn't happen for) \d+ jiffies",
        "kernel_rcu_stall", Severity.MAJOR,
        (
            "rcu: rcu_sched kthread starved for 5250 jiffies! g1042813 f0x0 RCU_GP_WAIT_FQS(5) ->state=0x0 ->cpu=12",
            "rcu_sched kthread starved for 5252 jiffies! g133525 c133524 f0x0 RCU_GP_WAIT_FQS(3) ->state=0x402 ->cpu=3",
            "rcu: rcu_sched kthread timer wakeup didn't happen for 5247 jiffies! g1042813 f0x0 RCU_GP_WAIT_FQS(5)",
        ),
        "kernel", source=_RCU, never=("rcu: \tRCU CPU stall warnings timeout set to 60 (rcu_cpu_stall_timeout).",),
    ),
    KernelRule(
        "rcu.tasks", r"(?:rcu_tasks: )?INFO: rcu_tasks\w{0,12} detected stalls on tasks",
        "kernel_rcu_stall", Severity.WARNING,
        (
            "rcu_tasks: INFO: rcu_tasks detected stalls on tasks:",
            "INFO: rcu_tasks detected stalls on tasks:",
        ),
        "kernel", source="kernel/rcu/tasks.h:check_holdout_task",
    ),
    KernelRule(
        "workqueue.lockup", r"BUG: workqueue lockup - pool", "kernel_workqueue_stall", Severity.MAJOR,
        ("BUG: workqueue lockup - pool cpus=12 node=0 flags=0x0 nice=0 stuck for 33s!", "BUG: workqueue lockup - pool"),
        "kernel", source="kernel/workqueue.c:wq_watchdog_timer_fn",
        never=("workqueue: round-robin CPU selection forced, expect performance impact",),
    ),
    KernelRule(
        "irq.nobody", r"irq (?P<irq>\d{1,6}): nobody cared \(try booting with", "kernel_irq_disabled", Severity.MAJOR,
        ('irq 16: nobody cared (try booting with the "irqpoll" option)',),
        r"irq\g<irq>", state="lasting", source="kernel/irq/spurious.c:__report_bad_irq",
    ),
    KernelRule(
        "irq.disabled", r"Disabling IRQ #(?P<irq>\d{1,6})$", "kernel_irq_disabled", Severity.MAJOR,
        ("Disabling IRQ #16",), r"irq\g<irq>", state="lasting", source="kernel/irq/spurious.c:note_interrupt",
    ),
))  # fmt: skip
