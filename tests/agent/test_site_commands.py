"""A site's own commands: checks of their own, in a worker of their own."""

import asyncio
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodetriage.agent.settings.config import AgentSettings, load
from nodetriage.agent.site_commands import TEXT_LIMIT, WORKER, NoPolicy, SiteCommand, check_of
from nodetriage.agent.workers.pool import WorkerPool, setup_from
from nodetriage.checks.model import Finding, Outcome, Program, Severity, Unavailable
from nodetriage.checks.model.settings import ConfigError

CATALOGUE = "nodetriage.agent.installed_checks:CHECKS"
LICENCE = SiteCommand("/opt/site/licence -q", severity=Severity.CRITICAL)
AS_NHC = SiteCommand("/opt/site/licence -q", severity=Severity.CRITICAL, exit_codes="nhc")


class OneProgram:
    """A Host whose only program ends as the test says."""

    def __init__(self, end: Program | Exception) -> None:
        self.end = end
        self.asked: list[tuple[str, ...]] = []

    def run(self, argv: tuple[str, ...], timeout_s: float) -> Program:
        self.asked.append(argv)
        if isinstance(self.end, Exception):
            raise self.end
        return self.end


def found(end: Program | Exception, command: SiteCommand = LICENCE) -> list[Finding]:
    check = check_of("site_licence", command)
    return list(check.judge(check.read(OneProgram(end)), None, NoPolicy()))


@pytest.mark.parametrize("command", [LICENCE, AS_NHC])
def test_a_command_that_exits_with_0_finds_nothing(command: SiteCommand) -> None:
    assert found(Program(0, "all well", ""), command) == []


def test_its_failure_is_a_finding_of_the_check_that_has_its_name() -> None:
    (finding,) = found(Program(2, "no licence\x1b[2J left|used=12;10\nmore\n", ""))
    assert (finding.fault, finding.component, finding.severity) == (
        "site_licence", "/opt/site/licence", Severity.CRITICAL
    )  # fmt: skip
    assert finding.evidence == {"exit_code": 2, "text": "no licence [2J left"}
    assert check_of("site_licence", LICENCE).faults == ("site_licence",)


def test_a_warning_of_a_nagios_plugin_is_a_warning_whatever_its_failure_is_worth() -> None:
    (finding,) = found(Program(1, "DISK WARNING - 9% left", ""))
    assert (finding.severity, finding.evidence["text"]) == (Severity.WARNING, "DISK WARNING - 9% left")
    (mild,) = found(Program(1, "", ""), SiteCommand("x", severity=Severity.INFO))
    assert mild.severity is Severity.INFO


@pytest.mark.parametrize("status", [1, 2, 3, 127])
def test_each_exit_code_but_0_is_a_failure_where_the_command_speaks_as_nhc(status: int) -> None:
    (finding,) = found(Program(status, "", "ERROR:  nhc:  Health check failed:  no /scratch\n"), AS_NHC)
    assert finding.severity is Severity.CRITICAL
    assert finding.evidence == {"exit_code": status, "text": "ERROR:  nhc:  Health check failed:  no /scratch"}


@pytest.mark.parametrize(
    ("end", "text"),
    [
        (Program(3, "UNKNOWN - no such sensor", ""), "exit code 3: UNKNOWN - no such sensor"),
        (Program(127, "", "sh: x: not found"), "exit code 127"),
        (Program(-9, "", ""), "exit code -9"),
        (TimeoutError("late"), "no answer after 10 s"),
        (Unavailable("/opt/site/licence: not installed"), "/opt/site/licence: not installed"),
        (PermissionError(13, "Permission denied"), "Permission denied"),
        (OverflowError("too much"), "too much"),
    ],
)
def test_a_command_that_cannot_say_how_the_node_is_leaves_it_unknown(end: Program | Exception, text: str) -> None:
    with pytest.raises((ValueError, OSError, OverflowError), match=text):
        found(end)


def test_a_signal_that_ends_a_command_is_no_failure_in_the_sense_of_nhc_either() -> None:
    with pytest.raises(ValueError, match="signal 9"):
        found(Program(-9, "", ""), AS_NHC)


@given(st.integers(0, 2), st.text(), st.text())
def test_whatever_a_command_prints_the_evidence_is_one_short_line_of_ascii(status: int, out: str, err: str) -> None:
    for finding in found(Program(status, out, err)):
        text = finding.evidence["text"]
        assert isinstance(text, str)
        assert len(text) <= TEXT_LIMIT
        assert all(" " <= c <= "~" for c in text)


def test_words_are_split_as_a_shell_does_and_nothing_is_expanded() -> None:
    host = OneProgram(Program(0, "", ""))
    check_of("x", SiteCommand("check_x -m 'two words' $HOME; reboot")).read(host)
    assert host.asked == [("check_x", "-m", "two words", "$HOME;", "reboot")]


def settings(folder: Path, text: str, node: str = "n1") -> AgentSettings:
    file = folder / "agent.toml"
    file.write_text(text)
    return load(file, (), node)


def test_a_command_is_a_check_like_any_other(tmp_path: Path) -> None:
    text = (
        '[checks.command.mine]\nrun = "/bin/true"\ntimeout_s = 3\nevery_s = 60\nseverity = "major"\nraise_after = 2\n'
    )
    (check,) = settings(tmp_path, text).enabled
    assert (check.name, check.worker, check.every_s, check.timeout_s) == ("mine", WORKER, 60, 5)
    assert check.raise_after == 2


def test_a_table_for_some_nodes_changes_the_command_there_and_nowhere_else(tmp_path: Path) -> None:
    text = (
        '[checks.command.mine]\nrun = "a"\n[[hosts]]\nnodes = "n[2-3]"\nchecks.command.mine.enabled = false\n'
        'checks.command.other.run = "b"\n[[hosts]]\nnodes = "n3"\nchecks.command.other.severity = "info"\n'
    )
    names = {node: [c.name for c in settings(tmp_path, text, node).enabled] for node in ("n1", "n2", "n3")}
    assert names == {"n1": ["mine"], "n2": ["other"], "n3": ["other"]}
    assert settings(tmp_path, text, "n3").commands["other"] == SiteCommand("b", Severity.INFO)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('[checks.command."Mine!"]\nrun = "x"\n', "checks.command.Mine!: expected a name of up to 40 of a-z"),
        ('[checks.command.mine]\nrun = ""\n', "run: expected at least the program"),
        ('[checks.command.mine]\nrun = "x \'"\n', "No closing quotation; expected words as in a shell"),
        ('[checks.command.mine]\nrun = "x\\ny"\n', "run: expected one line"),
        ("[checks.command.mine]\nevery_s = 5\n", "checks.command.mine: missing key: run"),
        ('[checks.command.mine]\nrun = "x"\nargv = []\n', "checks.command.mine.argv: unknown key"),
        ('[checks]\ncommand = "x"\n', "checks.command: expected tables [checks.command.NAME]"),
        ('[checks.command]\nmine = "x"\n', "checks.command.mine: expected a table with the key run"),
        ('[checks.command.cheap]\nrun = "x"\n', "checks.command.cheap: the name is taken"),
        ('[checks.command.gpu_off_bus]\nrun = "x"\n', "checks.command.gpu_off_bus: the name is taken"),
        (
            '[hooks]\nprolog_checks = ["gpu_lots"]\n',
            "hooks.prolog_checks: unknown check 'gpu_lots'; expected one of cheap",
        ),
        ('[checks.command.mine]\nrun = "x"\ntimeout_s = 0\n', "expected timeout_s of 0.1 to 600"),
        ('[checks.command.mine]\nrun = "x"\nraise_after = 0\n', "raise_after and clear_after of at least 1"),
        ('[[hosts]]\nnodes = "n9"\nchecks.command.mine.every_s = 5\n', "checks.command.mine: missing key: run"),
    ],
)
def test_a_wrong_command_or_list_is_refused_in_one_line(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(ConfigError) as error:
        settings(tmp_path, text)
    assert says in str(error.value)
    assert "\n" not in str(error.value)


async def test_the_agents_worker_runs_it_and_a_command_that_hangs_ends_by_its_own_limit(tmp_path: Path) -> None:
    commands = {"well": "/bin/true", "ill": "sh -c 'echo broken; exit 2'", "slow": "/bin/sleep 600"}
    text = "".join(f'[checks.command.{name}]\nrun = "{line}"\ntimeout_s = 0.5\n' for name, line in commands.items())
    own = settings(tmp_path, text)
    workers = WorkerPool(setup_from(own), CATALOGUE, lambda device_class: None)
    try:
        began_s = time.monotonic()
        well, ill, slow = await asyncio.gather(*(workers.run(check, (), None) for check in own.enabled))
        took_s = time.monotonic() - began_s
    finally:
        await workers.close()
    assert well.outcome is Outcome.OK
    assert [f.evidence for f in ill.findings] == [{"exit_code": 2, "text": "broken"}]
    assert (slow.outcome, slow.why) == (Outcome.BROKEN, "TimeoutError: no answer after 0.5 s")
    assert took_s < 60  # it would be ten minutes
