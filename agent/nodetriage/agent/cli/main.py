"""The command `nodetriage`: what runs on a node. Each verb imports what it needs when it is called."""

import argparse
import contextlib
import dataclasses
import io
import json
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from nodetriage.agent.cli import config, nhc_import, profile, running, slurm
from nodetriage.agent.cli.settings import DEFAULT_CONFIG, chosen, load
from nodetriage.service.command_line import BAD_CONFIGURATION, UNKNOWN, Parser
from nodetriage.service.version import VERSION

MOST_LOOKS = 100


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one verb. 0 ok, 1 warning, 2 major or critical, 3 unknown, 78 bad configuration or command line."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a mount point need not be text
    arguments = _parser().parse_args(argv)
    from nodetriage.checks.model.settings import ConfigError

    try:
        code: int = arguments.verb(arguments)
        sys.stdout.flush()
    except ConfigError as error:
        print(f"nodetriage: {error}", file=sys.stderr)
        return BAD_CONFIGURATION
    except BrokenPipeError:  # the reader has ended, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return UNKNOWN
    except KeyboardInterrupt:
        return 130
    return code


def _parser() -> Parser:
    parser = Parser(prog="nodetriage", description="Finds hardware and system faults on this node.")
    parser.add_argument(
        "--version", action="version", version=f"nodetriage {VERSION}", help="say which version this is"
    )
    verbs = parser.add_subparsers(required=True, metavar="VERB", parser_class=Parser)
    _add_offline(verbs)
    _add_running(verbs)
    settings = verbs.add_parser(
        "config", help="check the settings, or show what is in force", description="the settings"
    )
    config.add(settings, DEFAULT_CONFIG, Parser)
    text = "say what this machine should have, or learn it from a good one"
    profile.add(_verb(verbs, profile.run, "profile", text, "one JSON object instead of TOML"))
    slurm_verb = verbs.add_parser("slurm", help="look at Slurm's own settings", description="Slurm's own settings")
    slurm.add(slurm_verb, Parser)
    return parser


def _verb(verbs: Any, run: Any, name: str, text: str, json_help: str = "") -> argparse.ArgumentParser:
    added: argparse.ArgumentParser = verbs.add_parser(name, help=text, description=text)
    added.set_defaults(verb=run)
    if json_help:
        added.add_argument("--json", action="store_true", help=json_help)
    return added


def _add_offline(verbs: Any) -> None:
    """The verbs that need no running agent."""
    check = _verb(verbs, _check, "check", "run checks once and show their findings", "one JSON object instead of text")
    check.add_argument("names", nargs="*", metavar="NAME", help="checks to run (default: all that are enabled)")
    check.add_argument("--root", type=Path, default=Path("/"), metavar="DIR", help="look at a recorded machine")
    check.add_argument("--before", type=Path, metavar="DIR", help="the same machine earlier (default: DIR/before)")
    check.add_argument("--profile", default="", metavar="NAME|FILE.toml", help="what the machine should have")
    check.add_argument("--config", type=Path, metavar="FILE", help=f"settings (default: {DEFAULT_CONFIG})")
    check.add_argument("--looks", type=_looks, default=1, metavar="N", help="look so often, as some checks need it (1)")
    check.add_argument("--pause", type=float, default=60.0, metavar="SECONDS", help="between two looks (60)")
    check.add_argument("--list", action="store_true", help="list the checks, and run none")
    check.add_argument("--times", action="store_true", help="with --json: how long each took")

    text = "say what a fault means and what will be done; without a name, list the faults"
    explain = _verb(verbs, _explain, "explain", text, "one JSON object, or a list of them")
    what = "a fault code, an Xid (79) or an SXid (sxid:12028)"
    explain.add_argument("what", nargs="?", metavar="FAULT|XID", help=what)

    dmesg = _verb(
        verbs, _dmesg, "dmesg", "find the faults in a kernel log", "one JSON object a fault; the summary goes to stderr"
    )
    dmesg.add_argument("file", nargs="?", default="-", metavar="FILE", help="a saved log of any format; - reads stdin")

    text = "translate the configuration of NHC into settings, and say what has no translation"
    nhc_import.add(_verb(verbs, nhc_import.run, "nhc-import", text, "one JSON object with the settings and the lines"))

    text = "record what the checks read, without names, for a bug report"
    capture = _verb(verbs, _capture, "capture", text, "one JSON object: the folder, its files, and what is missing")
    capture.add_argument("into", type=Path, metavar="DIR", help="a new folder")
    capture.add_argument("names", nargs="*", metavar="NAME", help="checks to record (default: all)")
    capture.add_argument("--root", type=Path, default=Path("/"), metavar="DIR", help="record from a recorded machine")


def _add_running(verbs: Any) -> None:
    """The agent, and the verb that asks it."""
    agent = _verb(verbs, running.run_agent, "agent", "run the agent, until SIGTERM")
    agent.add_argument("--config", type=Path, metavar="FILE", help=f"settings (default: {DEFAULT_CONFIG})")
    text = "ask the running agent for the state of this node"
    status = _verb(verbs, running.status, "status", text, "the agent's answer as it is")
    status.add_argument("--config", type=Path, metavar="FILE", help=f"settings (default: {DEFAULT_CONFIG})")
    status.add_argument("--timeout", type=float, default=5.0, metavar="SECONDS", help="how long to wait (5)")


def _check(arguments: argparse.Namespace) -> int:
    from nodetriage.agent.cli import one_shot, report, style
    from nodetriage.agent.installed_checks import CHECKS, TROUBLES
    from nodetriage.agent.machine.host import Host
    from nodetriage.agent.settings.expected import with_profile

    for trouble in TROUBLES:
        print(f"nodetriage: {trouble}", file=sys.stderr)
    live = str(arguments.root) == "/"
    settings = load(arguments.config, CHECKS, live)
    if arguments.list:
        return _list_checks(arguments.json)
    settings = with_profile(settings, Host(arguments.root), arguments.profile)
    checks = chosen(arguments.names, settings)
    looks = one_shot.Looks(arguments.looks, max(0.0, arguments.pause))
    if live:
        import asyncio

        results = asyncio.run(one_shot.on_this_machine(checks, settings, looks, _say))
    else:
        before = arguments.before or arguments.root / "before"
        if not arguments.before and not before.is_dir():
            before = None
        results = one_shot.on_tree(checks, arguments.root, before, looks)
    if arguments.json:
        print(json.dumps({"profile": settings.profile.name, **report.as_json(results, arguments.times)}, indent=2))
    else:
        _print(report.in_brief(results, style.of(sys.stdout)))
        if more := one_shot.looks_needed(checks, results):
            _say(f"some checks need {more} looks: --looks {more}")
    return report.exit_code(results)


def _looks(text: str) -> int:
    if not (text.isdecimal() and 1 <= int(text) <= MOST_LOOKS):
        raise argparse.ArgumentTypeError(f"expected 1 to {MOST_LOOKS}, got {text!r}")
    return int(text)


def _say(text: str) -> None:
    """On stderr: stdout holds the results alone."""
    print(f"nodetriage: {text}", file=sys.stderr, flush=True)


def _list_checks(as_json: bool) -> int:
    from nodetriage.agent.installed_checks import CHECKS

    if as_json:
        listed = [{"check": c.name, "class": c.worker, "every_s": c.every_s, "faults": c.faults} for c in CHECKS]
        print(json.dumps(listed, indent=2))
    else:
        _print(f"{c.name:<16} {c.worker:<8} every {c.every_s:g} s: {', '.join(c.faults)}" for c in CHECKS)
    return 0


def _explain(arguments: argparse.Namespace) -> int:
    from nodetriage.agent.cli import explain, style

    if arguments.what is None:
        found = explain.all_faults()
        _print([json.dumps([_plain(e) for e in found], indent=2)] if arguments.json else explain.as_list(found))
        return 0
    try:
        one = explain.explain(arguments.what)
    except KeyError as error:
        print(f"nodetriage: {error.args[0]}", file=sys.stderr)
        return UNKNOWN
    _print([json.dumps(_plain(one), indent=2)] if arguments.json else explain.as_text(one, style.of(sys.stdout)))
    return 0


def _plain(explanation: Any) -> dict[str, Any]:
    return {**dataclasses.asdict(explanation), "severity": explanation.severity.name.lower()}


def _dmesg(arguments: argparse.Namespace) -> int:
    if arguments.file == "-":
        return _triage(sys.stdin.buffer, arguments.json)
    try:
        with Path(arguments.file).open("rb") as log:
            return _triage(log, arguments.json)
    except BrokenPipeError:
        raise
    except OSError as error:
        print(f"nodetriage: {arguments.file}: {error.strerror}", file=sys.stderr)
        return UNKNOWN


def _triage(log: BinaryIO, as_json: bool) -> int:
    from nodetriage.agent.cli import dmesg, report, saved_log, style
    from nodetriage.agent.installed_checks import CHECKS

    found = dmesg.triage(saved_log.entries(saved_log.lines_of(log)), CHECKS)
    if as_json:
        _print(json.dumps(dmesg.as_json(row)) for row in found.rows)
        print(dmesg.summary(found), file=sys.stderr)
    else:
        _print(dmesg.as_text(found, style.of(sys.stdout)))
    return report.code_of(found.rows[0].severity if found.rows else None)


def _capture(arguments: argparse.Namespace) -> int:
    from nodetriage.agent.cli import capture
    from nodetriage.agent.installed_checks import CHECKS
    from nodetriage.checks.model.settings import ConfigError

    try:
        arguments.into.mkdir(parents=True)
    except OSError as error:
        raise ConfigError(f"{arguments.into}: expected a folder that can be made: {error.strerror}") from error
    checks = chosen(arguments.names, load(None, CHECKS, live=False))
    with capture.Doing() as doing:
        host = capture.CaptureHost(arguments.root, arguments.into, doing.say)
        troubles = capture.capture(checks, host)
    for trouble in troubles:
        print(trouble, file=sys.stderr)
    files = sum(path.is_file() for path in arguments.into.rglob("*"))
    if arguments.json:
        print(json.dumps({"folder": str(arguments.into), "files": files, "incomplete": troubles}, indent=2))
        return 0
    print(f"{files} files in {arguments.into}. Look through them before you send them:")
    print("serial numbers, GUIDs, MAC and IP addresses and host names are replaced; paths and process names are not.")
    return 0


def _print(lines: Iterable[str]) -> None:
    for line in lines:
        print(line)


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):
        sys.exit(main())
