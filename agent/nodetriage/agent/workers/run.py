"""One run of one check: read, judge, result. Workers and the command line both use it."""

import time
from typing import Any

from nodetriage.agent.core.result import Result
from nodetriage.checks.model import Check, Host, Outcome, Unavailable


def run(check: Check[Any, Any], host: Host, policy: Any, before: Any) -> Result:
    """Runs the check once. Never raises: a defect of the check becomes the outcome `broken`."""
    started = time.perf_counter()

    def result(outcome: Outcome, **fields: Any) -> Result:
        took_ms = (time.perf_counter() - started) * 1000
        return Result(check.name, outcome, took_ms=round(took_ms, 3), **fields)

    try:
        now = check.read(host)
        findings = tuple(check.judge(now, before, policy))
        cleared = tuple(check.clears(now, before)) if check.clears else ()
        memory = check.next_state(before, now)
    except Unavailable as error:
        return result(Outcome.SKIPPED, why=str(error), memory=before)
    except Exception as error:  # noqa: BLE001 a defect of one check must not end the worker
        return result(Outcome.BROKEN, why=f"{type(error).__name__}: {error}", memory=before)
    outcome = Outcome.FINDINGS if findings else Outcome.OK
    alone, why = host.excluded, ""
    if alone:
        outcome = Outcome.FINDINGS if findings else Outcome.SKIPPED
        why = f"not looked at: {', '.join(alone)}"
    return result(outcome, findings=findings, cleared=cleared, excluded=alone, why=why, memory=memory)
