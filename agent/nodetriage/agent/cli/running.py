"""The verbs `agent` and `status`: run the agent, and ask the running one."""

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nodetriage.service.command_line import UNKNOWN
from nodetriage.service.version import VERSION

if TYPE_CHECKING:
    from nodetriage.agent.settings.config import AgentSettings


def run_agent(arguments: argparse.Namespace) -> int:
    from nodetriage.agent import start
    from nodetriage.agent.installed_checks import TROUBLES
    from nodetriage.agent.machine.host import Host
    from nodetriage.agent.settings.expected import with_profile

    for trouble in TROUBLES:
        print(f"nodetriage: {trouble}", file=sys.stderr)
    settings, unusable = _settings(arguments.config)
    return start.run(with_profile(settings, Host(settings.agent.root)), unusable=unusable)


def _settings(config: Path | None) -> "tuple[AgentSettings, str]":
    """The settings, and what is wrong with those about the controller: without them the agent works alone.

    Raises ConfigError where anything else is wrong.
    """
    from nodetriage.agent.cli.settings import load
    from nodetriage.agent.installed_checks import CHECKS
    from nodetriage.checks.model.settings import ConfigError

    try:
        return load(config, CHECKS), ""
    except ConfigError as error:
        return load(config, CHECKS, ignore=("controller", "identity")), str(error)


def status(arguments: argparse.Namespace) -> int:
    from nodetriage.agent.cli import status_view, style

    socket = _settings(arguments.config)[0].agent.socket
    try:
        answer = _ask(socket, arguments.timeout)
        results = status_view.results(answer)
    except _NoAnswer as error:
        print(f"nodetriage: {error}", file=sys.stderr)
        return UNKNOWN
    except (KeyError, ValueError) as error:
        text = f"{socket}: expected an answer of this version ({VERSION}), got another form ({error!r})"
        print(f"nodetriage: {text}; restart the agent after an upgrade", file=sys.stderr)
        return UNKNOWN
    if arguments.json:
        print(json.dumps(answer, indent=2))
    else:
        print("\n".join(status_view.as_text(answer, results, style.of(sys.stdout))))
    return status_view.exit_code(results)


class _NoAnswer(Exception):
    """The text says what happened, where, and what to do."""


def _ask(socket: Path, timeout_s: float) -> dict[str, Any]:
    from nodetriage.agent import control_socket

    try:
        answer = control_socket.ask(socket, {"ask": "status"}, timeout_s)
    except (FileNotFoundError, ConnectionRefusedError):
        start = "start it (systemctl start nodetriage-agent), or name its settings (--config)"
        raise _NoAnswer(f"{socket}: no agent runs here; {start}") from None
    except PermissionError:
        raise _NoAnswer(f"{socket}: only root and the agent's own user may ask the agent; use sudo") from None
    except TimeoutError:
        raise _NoAnswer(f"{socket}: no answer within {timeout_s:g} s; the agent hangs or is busy (--timeout)") from None
    except OSError as error:
        raise _NoAnswer(f"{socket}: the agent cannot be asked: {error.strerror or error}") from None
    if "error" in answer:
        raise _NoAnswer(f"{socket}: the agent refused: {answer['error']}")
    return answer
