"""NHC's checks that become a command of the site: (arguments) -> (command line, time limit). Raises Untranslatable."""

import shlex
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from nodetriage.agent.nhc.arguments import Untranslatable, options, seconds
from nodetriage.agent.nhc.conf import Line
from nodetriage.agent.nhc.match import as_grep
from nodetriage.agent.site_commands import RUN_LIMIT

Made = tuple[str, float]
_TESTS = "bcdefghkLprsSuwx"  # of test(1), with the same letters in NHC
_DEFAULT_S = 10.0


def command(line: Line, run: str, timeout_s: float = _DEFAULT_S) -> Mapping[str, Any]:
    """The table of one command; its name has the number of the line. Raises Untranslatable."""
    if len(run) > RUN_LIMIT:
        raise Untranslatable("its command line is too long")
    name = f"nhc_line_{line.number}"
    return {"checks": {"command": {name: {"run": run, "exit_codes": "nhc", "timeout_s": timeout_s}}}}


def joined(*words: str) -> str:
    return shlex.join(words)


def _in_shell(steps: Iterable[str]) -> str:
    return joined("sh", "-c", " && ".join(steps))


def _status(arguments: list[str]) -> Made:
    found, rest = options(arguments, "", "tr")
    wanted = found.get("r", ["0"])[-1]
    if not rest or not wanted.isdecimal():
        raise Untranslatable("expected an exit code and a command")
    if wanted == "0":
        return joined(*rest), seconds(found)
    return _in_shell([f"{{ {joined(*rest)}; test $? -eq {int(wanted)}; }}"]), seconds(found)


def _output(arguments: list[str]) -> Made:
    found, rest = options(arguments, "", "trme")
    wanted = found.get("r", ["0"])[-1]
    runs = found.get("e", []) or ([joined(*rest)] if rest else [])
    if len(runs) != 1 or not wanted.isdecimal():
        raise Untranslatable("expected one command")
    steps = [f'{{ o="$({runs[0]} 2>&1)"; test $? -eq {int(wanted)}; }}']
    steps += [f'{no}printf "%s\\n" "$o" | {grep}' for no, grep in map(_grep, found.get("m", []))]
    return _in_shell(steps), seconds(found)


def _contents(arguments: list[str]) -> Made:
    if len(arguments) < 2 or arguments[0].startswith("-"):
        raise Untranslatable("expected a file and match strings")
    file = shlex.quote(arguments[0])
    steps = [f"{no}{grep} -- {file}" for no, grep in map(_grep, arguments[1:])]
    return _in_shell([f"test -r {file}", *steps]), _DEFAULT_S


def _file_test(arguments: list[str]) -> Made:
    found, files = options(arguments, _TESTS, "")
    if not found or not files:
        raise Untranslatable("expected tests and files")
    return _in_shell(f"test -{letter} {shlex.quote(file)}" for file in files for letter in found), _DEFAULT_S


def _grep(match: str) -> tuple[str, str]:
    try:
        return as_grep(match)
    except ValueError as error:
        raise Untranslatable(str(error)) from None


CHECKS: Mapping[str, Callable[[list[str]], Made]] = {
    "check_cmd_status": _status,
    "check_cmd_output": _output,
    "check_file_contents": _contents,
    "check_file_test": _file_test,
}
