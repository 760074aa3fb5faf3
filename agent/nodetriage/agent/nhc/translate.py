"""What a check of NHC is here: settings of a check of ours, a command, nothing where ours always looks, or unknown."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from nodetriage.agent.nhc import commands, natives
from nodetriage.agent.nhc.arguments import Untranslatable
from nodetriage.agent.nhc.conf import Line

NHC = "/usr/sbin/nhc"


@dataclass(frozen=True, slots=True)
class Translated:
    """`settings` are tables below the file's top, for `line.nodes`. `state`: full, partly, none.

    `note` says what is lost, or why nothing could be translated.
    """

    line: Line
    state: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    note: str = ""


def translated(line: Line, with_nhc: bool) -> Translated:
    """`with_nhc`: what has no other form becomes a command that runs NHC for this one check."""
    if line.is_setting:
        return Translated(line, *_setting(line.check))
    if line.why:
        return Translated(line, "none", note=line.why)
    try:
        if not line.words:
            raise Untranslatable("it is a piece of shell code")
        settings, note = _check(line)
    except Untranslatable as error:
        if not with_nhc:
            return Translated(line, "none", note=f"{error}; --with-nhc lets NHC itself run it")
        run = commands.joined(NHC, "-l", "/dev/null", "-e", line.check, "MARK_OFFLINE=0")
        return Translated(line, "partly", commands.command(line, run), f"{error}; NHC itself runs it")
    return Translated(line, "partly" if note else "full", settings, note)


def _check(line: Line) -> tuple[Mapping[str, Any], str]:
    name, *arguments = line.words
    if name in natives.ALWAYS:
        return {}, natives.ALWAYS[name]
    native: Callable[[str, list[str]], tuple[Mapping[str, Any], str]] | None = natives.CHECKS.get(name)
    if native is not None:
        return native(name, arguments)
    made = commands.CHECKS.get(name)
    if made is not None:
        run, timeout_s = made(arguments)
        return commands.command(line, run, timeout_s), ""
    if name.startswith("check_"):
        raise Untranslatable("no check of ours does this")
    raise Untranslatable("it is no check of NHC")


_SETTINGS = {
    "MARK_OFFLINE": "the hooks and the policy observe until their mode is enforce",
    "NHC_RM": "the scheduler is a setting of the controller",
    "NHC_CHECK_ALL": "all checks always run",
    "TIMEOUT": "each check has a time limit of its own, timeout_s",
    "DEBUG": "`nodetriage check` shows what each check says",
    "DETACHED_MODE": "checks always run apart from the hooks",
    "DETACHED_MODE_FAIL_NODATA": "checks always run apart from the hooks",
}


def _setting(text: str) -> tuple[str, Mapping[str, Any], str]:
    name = text.removeprefix("export").strip().partition("=")[0]
    if name == "HOSTNAME":
        return "full", {}, "[agent] node is this, and by itself SLURMD_NODENAME or the short host name"
    if name in _SETTINGS:
        return "full", {}, f"no setting is needed: {_SETTINGS[name]}"
    return "none", {}, f"{name} is a variable of NHC or of its scripts; nothing here reads it"
