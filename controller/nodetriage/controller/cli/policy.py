"""The verbs `policy explain`, `policy check`, `dry-run` and `replay`: what a policy says and would do."""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nodetriage.controller.cli.options import add_options, connection, print_result
from nodetriage.service import moment

if TYPE_CHECKING:
    from nodetriage.checks.model import Severity
    from nodetriage.controller.settings.rules import Policy
    from nodetriage.service.table import Table

KEPT = ("action", "fault", "severity", "times", "nodes", "last")
JOBS = ("at", "node", "hook", "fault", "component", "job")


def add(verbs: Any) -> None:
    text = "explain what the policy does about a fault, or check a policy file"
    policy = verbs.add_parser("policy", help=text, description=text)
    policy.add_argument("what", choices=("explain", "check"))
    policy.add_argument(
        "subject", metavar="FAULT|FILE", help="explain: a fault code, or an Xid as 79; check: a policy.toml"
    )
    policy.add_argument("--partition", action="append", default=[], help="of the node; may be repeated")
    policy.add_argument("--profile", default="", help="the node's hardware profile")
    policy.add_argument(
        "--severity", choices=("info", "warning", "major", "critical"), help="instead of the fault's usual severity"
    )
    policy.add_argument("--node", default="", help="use this node's partitions and profile, from the database")
    policy.add_argument("--policy", type=Path, metavar="FILE", help="this file instead of the policy in force")
    add_options(policy)
    policy.set_defaults(verb=_policy)
    text = "what shadow rules, new checks or a milder mode kept from being done, and jobs that hooks would refuse"
    dry_run = verbs.add_parser("dry-run", help=text, description=text)
    moment.add_since(dry_run, "not older than", "7d")
    add_options(dry_run)
    dry_run.set_defaults(verb=_dry_run)
    text = "compare what another policy would have done with the recorded history; changes nothing"
    replay = verbs.add_parser("replay", help=text, description=text)
    replay.add_argument("--policy", type=Path, metavar="FILE", required=True, help="the policy to try")
    moment.add_since(replay, "compare what came after", "30d")
    add_options(replay)
    replay.set_defaults(verb=_replay)


def _policy(arguments: argparse.Namespace) -> int:
    from nodetriage.controller.settings.policy_file import load_policy

    if arguments.what == "explain":
        return _explain(arguments)
    found = load_policy(Path(arguments.subject))
    shadow = sum(rule.shadow or not rule.action.drains for rule in found.rule)
    text = f"sound: mode {found.mode}, {len(found.rule)} rules, {shadow} of them drain nothing"
    whole = {"file": arguments.subject, "mode": found.mode, "rules": len(found.rule), "drain_nothing": shadow}
    print_result(arguments, whole, f"{arguments.subject}: {text}")
    return 0


def _explain(arguments: argparse.Namespace) -> int:
    from nodetriage.checks.model import Severity
    from nodetriage.controller.settings import explain

    partitions, profile = tuple(arguments.partition), arguments.profile
    if arguments.node:
        partitions, profile = _node(arguments)
    fault, severity = _subject(arguments.subject)
    if arguments.severity:
        severity = Severity[arguments.severity.upper()]
    found = explain.explain(_in_force(arguments), fault, severity, partitions, profile)
    whole = {"fault": found.fault, "action": found.action, "steps": list(found.steps)}
    print_result(arguments, whole, *found.steps, f"so: {found.action}")
    return 0


def _subject(word: str) -> tuple[str, "Severity | None"]:
    """The fault that a code, or the number of an Xid or SXid, stands for, and its severity where the number has one."""
    from nodetriage.checks.model import Severity
    from nodetriage.checks.readers import nvidia_log

    if (number := nvidia_log.code_of(word)) is None:
        return word, None
    kind, code = number
    if kind == "xid":
        xid = nvidia_log.explain(code)
        return xid.fault, xid.severity
    switch = nvidia_log.explain_switch(code)
    severity = switch.severity if switch else Severity.WARNING
    return "nvswitch_fatal" if severity is Severity.CRITICAL else "nvswitch_error", severity


def _in_force(arguments: argparse.Namespace) -> "Policy":
    """The file that is named, else the controller's, else the shipped one. Raises ConfigError."""
    from nodetriage.controller import config
    from nodetriage.controller.settings.policy_file import load_policy, shipped_policy

    if arguments.policy:
        return load_policy(arguments.policy)
    if arguments.config or config.DEFAULT_CONFIG.exists():
        return config.load(arguments.config or config.DEFAULT_CONFIG).load_policy()
    return shipped_policy()


def _node(arguments: argparse.Namespace) -> tuple[tuple[str, ...], str]:
    from nodetriage.controller.store import state_store
    from nodetriage.controller.store.database import NoDatabase

    with connection(arguments) as opened:
        facts = state_store.load(opened).nodes.get(arguments.node)
    if facts is None:
        raise NoDatabase(
            f"{arguments.node}: the controller knows no node of this name: `nodetriagectl nodes` lists them"
        )
    return facts.partitions, facts.profile


def _dry_run(arguments: argparse.Namespace) -> int:
    from nodetriage.controller.cli import format
    from nodetriage.controller.store import fleet, state_store

    with connection(arguments) as opened:
        since_us = state_store.to_us(arguments.since)
        found, refused = fleet.shadow_actions(opened, since_us), fleet.jobs_not_refused(opened, since_us)
    kept = [{**row, "severity": format.severity(row["severity"]), "last": format.iso(row["last_us"])} for row in found]
    jobs = [{**row, "at": format.iso(row["at_us"])} for row in refused]
    parts = [
        _held_back(KEPT, kept, "the policy held nothing back"),
        _held_back(JOBS, jobs, "no hook held a refusal back"),
    ]
    print_result(arguments, {"actions": _only(KEPT, kept), "jobs": _only(JOBS, jobs)}, *parts)
    return 0


def _held_back(columns: Sequence[str], rows: Sequence[Mapping[str, Any]], nothing: str) -> "Table | str":
    from nodetriage.controller.cli import render

    return render.record_table(columns, rows) if rows else nothing


def _only(columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [{name: row[name] for name in columns} for row in rows]


def _replay(arguments: argparse.Namespace) -> int:
    from nodetriage.controller.cli import render
    from nodetriage.controller.engine import inputs
    from nodetriage.controller.policy.verify import replay
    from nodetriage.controller.settings.policy_file import load_policy
    from nodetriage.controller.store.database import NoDatabase

    policy, since = load_policy(arguments.policy), arguments.since
    with connection(arguments) as opened:
        try:
            then = replay.run(inputs.history(opened, since), None, since).counts()
            other = replay.run(inputs.history(opened, since), policy, since).counts()
        except LookupError as error:
            raise NoDatabase(str(error)) from error
    rows = [{"figure": n, "then": then[n], "other": other[n], "difference": _signed(other[n] - then[n])} for n in then]
    shown = render.record_table(("figure", "then", "other", "difference"), rows)
    print_result(arguments, {"since": since.isoformat(), "then": then, "other": other}, shown)
    return 0


def _signed(number: float) -> str:
    return f"{number:+g}" if number else "0"
