"""The verb `profile`: shows what this machine should have, or learns that from a good machine."""

import argparse
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nodetriage.agent.core.result import Result
    from nodetriage.agent.settings.config import AgentSettings

NOT_WELL = 2
LEARNED_RANK = 20  # before our own profiles of the same product


def add(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--learn", action="store_true", help="write one from this machine, which must have no faults")
    verb.add_argument("--force", action="store_true", help="with --learn: even from a machine with faults")
    verb.add_argument("--root", type=Path, default=Path("/"), metavar="DIR", help="look at a recorded machine")


def run(arguments: argparse.Namespace) -> int:
    from nodetriage.agent.installed_checks import CHECKS
    from nodetriage.agent.machine.host import Host
    from nodetriage.agent.settings.config import defaults
    from nodetriage.agent.settings.expected import with_profile

    host = Host(arguments.root)
    settings = with_profile(defaults(CHECKS), host)
    if arguments.learn:
        return _learn(arguments, settings, _product(host))
    from nodetriage.checks.profiles.catalogue import profiles

    expected = profiles()[settings.profile.name].checks
    if arguments.json:
        print(json.dumps({"profile": settings.profile.name, "checks": expected}, indent=2))
        return 0
    print(f"# profile {settings.profile.name}, chosen by what the machine is")
    print("\n".join(_tables(expected)))
    return 0


def _learn(arguments: argparse.Namespace, settings: "AgentSettings", product: str) -> int:
    from nodetriage.checks.model import Severity
    from nodetriage.checks.profiles import learned

    results = _look(arguments.root, settings)
    wrong = [f for result in results for f in result.findings if f.severity >= Severity.MAJOR]
    if wrong and not arguments.force:
        for finding in wrong:
            print(f"nodetriage: this machine has a fault: {finding.component}: {finding.fault}", file=sys.stderr)
        print("nodetriage: learn a profile from a machine without faults, or use --force", file=sys.stderr)
        return NOT_WELL
    found = learned.learn(_memories(results, settings))
    if arguments.json:
        match = {"match": {"dmi_product": [product], "rank": LEARNED_RANK}} if product else {}
        print(json.dumps({**match, "checks": found}, indent=2))
        return 0
    print("# Learned from one machine: look through it, then name it in [profile] of agent.toml.")
    print("# A role of ib_link is named after its rate; rename it after what its ports are for.")
    if product:
        from nodetriage.checks.model.settings import as_toml

        print(f"\n[match]\ndmi_product = [{as_toml(product)}]\nrank = {LEARNED_RANK}")
    print("\n".join(_tables(found)))
    return 0


def _look(root: Path, settings: "AgentSettings") -> "list[Result]":
    import asyncio

    from nodetriage.agent.cli import one_shot

    if str(root) == "/":
        return asyncio.run(one_shot.on_this_machine(settings.enabled, settings))
    return one_shot.on_tree(settings.enabled, root, None)


def _memories(results: "list[Result]", settings: "AgentSettings") -> dict[str, Any]:
    """The memory of each check that looked; a worker gives it as JSON."""
    import msgspec

    from nodetriage.agent.workers.worker import memory_type
    from nodetriage.checks.model import Outcome
    from nodetriage.checks.profiles.learned import BY_CHECK

    # Skipped ones too: a check without an expectation is what a profile is for.
    answered = (Outcome.OK, Outcome.FINDINGS, Outcome.SKIPPED)
    looked = {r.check: r.memory for r in results if r.check in BY_CHECK and r.outcome in answered}
    return {
        name: msgspec.json.decode(memory, type=memory_type(settings.checks[name].check))
        if isinstance(memory, bytes)
        else memory
        for name, memory in looked.items()
        if memory not in (None, b"null")
    }


def _tables(table: Mapping[str, Any], path: str = "checks") -> Iterator[str]:
    """The table as TOML: its plain values under its name, then its tables."""
    from nodetriage.checks.model.settings import as_toml

    if plain := {key: value for key, value in table.items() if not isinstance(value, Mapping)}:
        yield f"\n[{path}]"
        yield from (f"{key} = {as_toml(value)}" for key, value in plain.items())
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _tables(value, f"{path}.{key}")


def _product(host: Any) -> str:
    from nodetriage.checks.profiles.catalogue import DMI_PRODUCT

    try:
        return str(host.text(DMI_PRODUCT))
    except OSError:
        return ""
