"""From a fault to the action that it leads to, step by step, as text. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from nodetriage.checks.model import Severity
from nodetriage.checks.model.faults import faults
from nodetriage.checks.model.settings import ConfigError
from nodetriage.controller.settings.rules import Mode, Policy, Response, Rule

_MEANS = {
    Response.RECORD: "it is kept as history",
    Response.SHADOW: "what the severity would lead to is recorded, and not done",
    Response.DRAIN_AFTER_JOB: "the node takes no new job, and running ones may end",
    Response.DRAIN_AND_REQUEUE: "the node takes no new job, and running ones are requeued",
}


@dataclass(frozen=True, slots=True)
class Explained:
    fault: str
    action: str  # record, shadow, drain_after_job, drain_and_requeue
    steps: tuple[str, ...]


def explain(
    policy: Policy, fault: str, severity: Severity | None, partitions: Sequence[str], profile: str, check: str = ""
) -> Explained:
    """`severity` None: the fault's usual one. Raises ConfigError for a fault that is neither known nor trusted."""
    known = faults().get(fault)
    if known is None and (severity is None or fault not in policy.shadow.trusted):
        raise ConfigError(f"{fault}: no such fault (nodetriage explain lists them); of another's, name --severity")
    severity = severity or (known.severity if known else Severity.CRITICAL)
    rule = policy.rule_for(fault, severity, partitions, profile)
    steps = [f"{fault}: {known.title if known else 'a fault of a check from elsewhere'}"]
    steps.append(f"severity {severity.name.lower()}{' (usual; the check decides)' if known else ''}")
    steps += _rules(policy, fault, severity, partitions, profile)
    steps += _waits(policy, fault, rule)
    if policy.shadow.checks and rule.action.drains and not check:
        steps.append(f"only said where one of these checks reports it: {', '.join(policy.shadow.checks)}")
    action, why = rule.action, policy.untrusted(check, fault)
    if action.drains and why:
        steps.append(f"only said: {why}")
        action = Response.SHADOW
    elif action.drains and policy.mode is not Mode.ENFORCE:
        steps.append(f"only said: the mode is {policy.mode}")
        action = Response.SHADOW
    steps.append(f"{action}: {_MEANS[action]}")
    if action.drains:
        steps += _limits(policy, rule)
    return Explained(fault, str(action), tuple(steps))


def _rules(policy: Policy, fault: str, severity: Severity, partitions: Sequence[str], profile: str) -> list[str]:
    said = [f"[severity] {severity.name.lower()} = {policy.by_severity(severity).action}"]
    decides = policy.rule_for(fault, severity, partitions, profile)
    for rule in policy.matching(fault, severity, partitions, profile):
        role = "decides" if rule is decides else "is in shadow" if rule.shadow else "is less specific, or earlier"
        said.append(f"rule {_named(rule)} = {rule.action}: {role}")
    return said


def _named(rule: Rule) -> str:
    parts = [f"fault={rule.fault}" if rule.fault else "", f"partition={rule.partition}" if rule.partition else ""]
    parts += [f"severity={rule.severity.name.lower()}" if rule.severity is not None else ""]
    parts += [f"profile={rule.profile}" if rule.profile else ""]
    return " ".join(filter(None, parts)) or "for all"


def _waits(policy: Policy, fault: str, rule: Rule) -> list[str]:
    said = (
        [f"its confidence must be {policy.least_confidence(rule).name.lower()} or more"] if rule.action.drains else []
    )
    if rule.confirm > 1:
        said.append(f"agents must report it {rule.confirm} times")
    settle_s = policy.common_mode.settle_s(fault)
    if hold_s := max(rule.hold_s, settle_s):
        why = ", for other nodes to say the same: its cause is often shared" if settle_s >= rule.hold_s else ""
        said.append(f"it must have lasted {hold_s:g} s{why}")
    return said


def _limits(policy: Policy, rule: Rule) -> list[str]:
    limits, common = policy.drain_limits, policy.common_mode
    back = "an operator" if rule.returns == "operator" else f"the checks, {policy.return_hold_s:g} s after it is gone,"
    said = [
        f"drains are limited to {limits.max_drains_per_hour} an hour, {limits.max_nodes} nodes,"
        f" {limits.max_percent:g} % of the fleet",
        f"{back} brings the node back",
    ]
    if common.enabled:
        said.append(
            f"on {common.min_nodes} nodes, or {common.min_percent:g} %, in {common.window_s:g} s: one fleet incident"
        )
    return said
