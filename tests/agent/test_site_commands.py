"""A site's own commands in the prolog: checks of their own, in a worker of their own."""

import asyncio
import json
import time
from pathlib import Path

import pytest

from nodetriage.agent.settings.config import AgentSettings, load
from nodetriage.agent.site_commands import WORKER, HookCommand, NoPolicy, check_of
from nodetriage.agent.workers.pool import WorkerPool, setup_from
from nodetriage.checks.model import Finding, Outcome, Program, Severity, Unavailable
from nodetriage.checks.model.settings import ConfigError

CATALOGUE = "nodetriage.agent.installed_checks:CHECKS"
LICENCE = HookCommand("site_licence", ("/opt/site/licence", "-q"), severity=Severity.CRITICAL)


class OneProgram:
    """A Host whose only program ends as the test says."""

    def __init__(self, end: Program | Exception) -> None:
        self.end = end

    def run(self, argv: tuple[str, ...], timeout_s: float) -> Program:
        if isinstance(self.end, Exception):
            raise self.end
        return self.end


def found(end: Program | Exception) -> list[Finding]:
    check = check_of(LICENCE)
    return list(check.judge(check.read(OneProgram(end)), None, NoPolicy()))


def test_a_command_that_exits_with_0_finds_nothing() -> None:
    assert found(Program(0, "all well", "")) == []


def test_its_failure_is_a_finding_of_the_check_that_has_its_name() -> None:
    (finding,) = found(Program(3, "no licence\x1b[2J left\n", ""))
    assert (finding.fault, finding.component, finding.severity) == (
        "site_licence", "/opt/site/licence", Severity.CRITICAL
    )  # fmt: skip
    assert finding.evidence == {"exit_code": 3, "text": "no licence [2J left"}
    assert check_of(LICENCE).faults == ("site_licence",)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (TimeoutError("late"), "no answer after 10 s"),
        (Unavailable("/opt/site/licence: not installed"), "/opt/site/licence: not installed"),
        (PermissionError(13, "Permission denied"), "[Errno 13] Permission denied"),
        (OverflowError("too much"), "too much"),
    ],
)
def test_a_command_that_does_not_run_to_its_end_is_a_finding_too(error: Exception, text: str) -> None:
    (finding,) = found(error)
    assert finding.evidence == {"text": text}


def settings(folder: Path, text: str) -> AgentSettings:
    file = folder / "agent.toml"
    file.write_text(text)
    return load(file, (), "n1")


def test_a_command_is_a_check_like_any_other(tmp_path: Path) -> None:
    text = '[[hooks.command]]\nname = "mine"\nargv = ["/bin/true"]\ntimeout_s = 3\nevery_s = 60\nseverity = "major"\n'
    (check,) = settings(tmp_path, text).enabled
    assert (check.name, check.worker, check.every_s, check.timeout_s) == ("mine", WORKER, 60, 5)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('[[hooks.command]]\nname = "Mine!"\nargv = ["x"]\n', "expected up to 40 of a-z"),
        ('[[hooks.command]]\nname = "mine"\nargv = []\n', "argv: expected at least the program"),
        ('[[hooks.command]]\nname = "cheap"\nargv = ["x"]\n', "hooks.command.name: cheap is taken"),
        (
            '[[hooks.command]]\nname = "a"\nargv = ["x"]\n[[hooks.command]]\nname = "a"\nargv = ["y"]\n',
            "a is there twice",
        ),
        (
            '[hooks]\nprolog_checks = ["gpu_lots"]\n',
            "hooks.prolog_checks: unknown check 'gpu_lots'; expected one of cheap",
        ),
        ('[[hooks.command]]\nname = "mine"\nargv = ["x"]\ntimeout_s = 0\n', "expected timeout_s of 0.1 to 600"),
    ],
)
def test_a_wrong_command_or_list_is_refused_in_one_line(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(ConfigError) as error:
        settings(tmp_path, text)
    assert says in str(error.value)
    assert "\n" not in str(error.value)


async def test_the_agents_worker_runs_it_and_a_command_that_hangs_ends_by_its_own_limit(tmp_path: Path) -> None:
    commands = {"well": ["/bin/true"], "ill": ["/bin/sh", "-c", "echo broken; exit 4"], "slow": ["/bin/sleep", "600"]}
    table = "[[hooks.command]]\nname = {}\nargv = {}\ntimeout_s = 0.5\n"
    text = "".join(table.format(json.dumps(name), json.dumps(argv)) for name, argv in commands.items())
    own = settings(tmp_path, text)
    workers = WorkerPool(setup_from(own), CATALOGUE, lambda device_class: None)
    try:
        began_s = time.monotonic()
        well, ill, slow = await asyncio.gather(*(workers.run(check, (), None) for check in own.enabled))
        took_s = time.monotonic() - began_s
    finally:
        await workers.close()
    assert well.outcome is Outcome.OK
    assert [f.evidence for f in ill.findings] == [{"exit_code": 4, "text": "broken"}]
    assert [f.evidence for f in slow.findings] == [{"text": "no answer after 0.5 s"}]
    assert took_s < 60  # it would be ten minutes
