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
from typing import TYPE_CHECKING, Any, BinaryIO, NoReturn

from nodetriage.agent.cli import config, profile, slurm
from nodetriage.service.version import VERSION

if TYPE_CHECKING:
    from nodetriage.agent.settings.config import AgentSettings
    from nodetriage.checks.model import Check

UNKNOWN = 3
BAD_CONFIGURATION = 78  # EX_CONFIG of sysexits.h
DEFAULT_CONFIG = Path("/etc/nodetriage/agent.toml")


class Parser(argparse.ArgumentParser):
    """A wrong command line ends with 78: argparse's own 2 would read as "a serious fault was found"."""

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(BAD_CONFIGURATION, f"{self.prog}: {message}\n")


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
    except BrokenPipeError:  # the reader has seen enough
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

    def add(verb: Any, name: str, text: str, json_help: str = "") -> argparse.ArgumentParser:
        added = verbs.add_parser(name, help=text, description=text)
        added.set_defaults(verb=verb)
        if json_help:
            added.add_argument("--json", action="store_true", help=json_help)
        return added

    check = add(_check, "check", "run checks once and say what they find", "one JSON object instead of text")
    check.add_argument("names", nargs="*", metavar="NAME", help="checks to run (default: all that are enabled)")
    check.add_argument("--root", type=Path, default=Path("/"), metavar="DIR", help="look at a recorded machine")
    check.add_argument("--before", type=Path, metavar="DIR", help="the same machine earlier (default: DIR/before)")
    check.add_argument("--profile", default="", metavar="NAME|FILE.toml", help="what the machine should have")
    check.add_argument("--config", type=Path, metavar="FILE", help=f"settings (default: {DEFAULT_CONFIG})")
    check.add_argument("--list", action="store_true", help="say which checks there are, and run none")
    check.add_argument("--times", action="store_true", help="with --json: how long each took")

    explain = add(_explain, "explain", "say what a fault means and what will be done", "one JSON object")
    explain.add_argument("what", metavar="FAULT|XID", help="a fault code, an Xid (79) or an SXid (sxid:12028)")

    dmesg = add(_dmesg, "dmesg", "find the faults in a kernel log", "one JSON object a record")
    dmesg.add_argument("file", nargs="?", default="-", metavar="FILE", help="a saved log of any format; - reads stdin")

    capture = add(_capture, "capture", "record what the checks read, without names, for a bug report")
    capture.add_argument("into", type=Path, metavar="DIR", help="a new folder")
    capture.add_argument("names", nargs="*", metavar="NAME", help="checks to record (default: all)")
    capture.add_argument("--root", type=Path, default=Path("/"), metavar="DIR", help="record from a recorded machine")

    agent = add(_agent, "agent", "run the agent, until SIGTERM")
    agent.add_argument("--config", type=Path, metavar="FILE", help=f"settings (default: {DEFAULT_CONFIG})")

    status = add(_status, "status", "ask the running agent what it knows", "the agent's answer as it is")
    status.add_argument("--config", type=Path, metavar="FILE", help=f"settings (default: {DEFAULT_CONFIG})")
    status.add_argument("--timeout", type=float, default=5.0, metavar="SECONDS", help="how long to wait (5)")

    settings = verbs.add_parser(
        "config", help="check the settings, or show what is in force", description="the settings"
    )
    config.add(settings, DEFAULT_CONFIG, Parser)
    profile.add(add(profile.run, "profile", "say what this machine should have, or learn it from a good one"))
    slurm_verb = verbs.add_parser("slurm", help="look at Slurm's own settings", description="Slurm's own settings")
    slurm.add(slurm_verb, Parser)
    return parser


def _settings(config: Path | None, checks: "Sequence[Check[Any, Any]]", live: bool = True) -> "AgentSettings":
    """The file that was named; else the default one on the live machine, where it exists. Raises ConfigError."""
    from nodetriage.agent.settings.config import defaults, load

    if config is None and not (live and DEFAULT_CONFIG.exists()):
        return defaults(checks)
    return load(config or DEFAULT_CONFIG, checks)


def _check(arguments: argparse.Namespace) -> int:
    from nodetriage.agent.cli import one_shot, report
    from nodetriage.agent.installed_checks import CHECKS, TROUBLES
    from nodetriage.agent.machine.host import Host
    from nodetriage.agent.settings.expected import with_profile

    for trouble in TROUBLES:
        print(f"nodetriage: {trouble}", file=sys.stderr)
    live = str(arguments.root) == "/"
    settings = _settings(arguments.config, CHECKS, live)
    if arguments.list:
        _print(f"{c.name:<16} {c.worker:<8} every {c.every_s:g} s: {', '.join(c.faults)}" for c in CHECKS)
        return 0
    settings = with_profile(settings, Host(arguments.root), arguments.profile)
    checks = _chosen(arguments.names, settings)
    if live:
        import asyncio

        results = asyncio.run(one_shot.on_this_machine(checks, settings))
    else:
        before = arguments.before or arguments.root / "before"
        if not arguments.before and not before.is_dir():
            before = None
        results = one_shot.on_tree(checks, arguments.root, before)
    if arguments.json:
        print(json.dumps({"profile": settings.profile.name, **report.as_json(results, arguments.times)}, indent=2))
    else:
        _print(report.in_brief(results, _colour()))
    return report.exit_code(results)


def _chosen(names: Sequence[str], settings: "AgentSettings") -> "list[Check[Any, Any]]":
    """The checks of these names, in the order of the catalogue; without names, those that are enabled."""
    from nodetriage.checks.model.settings import ConfigError

    for name in names:
        if name not in settings.checks:
            raise ConfigError(f"check {name}: unknown; known checks: {', '.join(settings.checks)}")
    if not names:
        return list(settings.enabled)
    return [found.check for name, found in settings.checks.items() if name in names]


def _explain(arguments: argparse.Namespace) -> int:
    from nodetriage.agent.cli import explain

    try:
        found = explain.explain(arguments.what)
    except KeyError as error:
        print(f"nodetriage: {error.args[0]}", file=sys.stderr)
        return UNKNOWN
    if arguments.json:
        print(json.dumps({**dataclasses.asdict(found), "severity": found.severity.name.lower()}, indent=2))
    else:
        _print(explain.as_text(found))
    return 0


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
    """Prints each fault when it is read, so that `dmesg --follow | nodetriage dmesg` works."""
    from nodetriage.agent.cli import dmesg, report

    worst, told = None, set()
    for fault in dmesg.find_faults(log):
        worst = max(worst or fault.severity, fault.severity)
        if as_json:
            print(json.dumps(dmesg.as_json(fault)), flush=True)
        else:
            print("\n".join(dmesg.as_text(fault, fault.advice not in told, _colour())), flush=True)
            told.add(fault.advice)
    return report.code_of(worst)


def _capture(arguments: argparse.Namespace) -> int:
    from nodetriage.agent.installed_checks import CHECKS
    from nodetriage.agent.machine import capture
    from nodetriage.checks.model.settings import ConfigError

    try:
        arguments.into.mkdir(parents=True)
    except OSError as error:
        raise ConfigError(f"{arguments.into}: {error.strerror}") from error
    checks = _chosen(arguments.names, _settings(None, CHECKS, live=False))
    with capture.Doing() as doing:
        host = capture.CaptureHost(arguments.root, arguments.into, doing.say)
        troubles = capture.capture(checks, host)
    for trouble in troubles:
        print(trouble, file=sys.stderr)
    files = sum(path.is_file() for path in arguments.into.rglob("*"))
    print(f"{files} files in {arguments.into}. Look through them before you send them:")
    print("serial numbers, GUIDs, MAC and IP addresses and host names are replaced; paths and process names are not.")
    return 0


def _agent(arguments: argparse.Namespace) -> int:
    from nodetriage.agent import daemon
    from nodetriage.agent.installed_checks import CHECKS, TROUBLES
    from nodetriage.agent.machine.host import Host
    from nodetriage.agent.settings.expected import with_profile

    for trouble in TROUBLES:
        print(f"nodetriage: {trouble}", file=sys.stderr)
    settings = _settings(arguments.config, CHECKS)
    return daemon.run(with_profile(settings, Host(settings.agent.root)))


def _status(arguments: argparse.Namespace) -> int:
    from nodetriage.agent import control_socket
    from nodetriage.agent.cli import status_view
    from nodetriage.agent.installed_checks import CHECKS

    settings = _settings(arguments.config, CHECKS)
    try:
        said = control_socket.ask(settings.agent.socket, {"ask": "status"}, arguments.timeout)
        if "error" in said:
            raise ValueError(said["error"])
        results = status_view.results(said)
    except (OSError, ValueError, KeyError) as error:
        print(f"nodetriage: {settings.agent.socket}: {error}", file=sys.stderr)
        return UNKNOWN
    _print([json.dumps(said, indent=2)] if arguments.json else status_view.as_text(said, results, _colour()))
    return status_view.exit_code(results)


def _print(lines: Iterable[str]) -> None:
    for line in lines:
        print(line)


def _colour() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):
        sys.exit(main())
