"""slurm.conf read as Slurm reads it, and what is said of it."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodetriage.agent.cli.main import main
from nodetriage.agent.slurm.conf import SlurmConf, parse
from nodetriage.agent.slurm.doctor import Advice, Level, examine

CONF = Path("/etc/slurm/slurm.conf")

GOOD = """\
# A site that has done all that docs/hooks.md says.
Prolog=/etc/slurm/prolog.d/*
Epilog=/etc/slurm/epilog.d/*
PrologFlags=Contain
SchedulerParameters=bf_interval=30,nohold_on_prolog_fail
HealthCheckProgram=/etc/slurm/nodetriage-healthcheck
HealthCheckInterval=300
HealthCheckNodeState=CYCLE,ANY
PrologEpilogTimeout=120
RebootProgram=/usr/sbin/reboot
ResumeTimeout=900
GresTypes=gpu
ProctrackType=proctrack/cgroup
AccountingStorageType=accounting_storage/slurmdbd
"""


def read(*texts: str, **included: str) -> SlurmConf:
    files: Mapping[Path, str] = {CONF: "\n".join(texts), **{CONF.parent / n: t for n, t in included.items()}}

    def text(path: Path) -> str:
        try:
            return files[path]
        except KeyError:
            raise FileNotFoundError(2, "No such file or directory", str(path)) from None

    return parse(CONF, text)


def said(*texts: str, hooked: bool = True) -> dict[str, Advice]:
    return {advice.key: advice for advice in examine(read(*texts), lambda _: hooked)}


def test_keys_are_read_without_regard_to_case_and_the_last_one_counts() -> None:
    conf = read("SLURMDTIMEOUT=10\nslurmdtimeout=20")

    assert conf.get("SlurmdTimeout") == "20"


def test_comments_continued_lines_quotes_and_several_pairs_are_read() -> None:
    conf = read(
        "SlurmUser=slurm SlurmdUser=root # both\n"
        "Schedulerparameters=a,\\\n"
        "  b=2\n"
        'Prolog = "/a b/c" #x\n'
        "JobCompPass=a\\#b"
    )

    assert (conf.get("slurmuser"), conf.get("slurmduser"), conf.get("prolog")) == ("slurm", "root", "/a b/c")
    assert conf.get("jobcomppass") == "a#b"


def test_a_continued_list_is_one_value() -> None:
    assert read("PrologFlags=Alloc,\\\nContain").words("PrologFlags") == {"alloc", "contain"}


def test_keys_of_nodes_and_partitions_are_not_the_clusters() -> None:
    conf = read("NodeName=n[1-2] CPUs=4 State=UNKNOWN\nPartitionName=p Nodes=ALL Default=YES\nState=x")

    assert conf.values == {"state": "x"}


def test_included_files_are_read_in_their_place_and_named() -> None:
    conf = read("ClusterName=c1\nJobRequeue=0\ninclude %c.conf", **{"c1.conf": "JobRequeue=1"})

    assert conf.get("JobRequeue") == "1"
    assert conf.files == (CONF, CONF.parent / "c1.conf")


def test_an_include_that_is_missing_is_told_and_costs_nothing_else() -> None:
    conf = read("Include gone.conf\nJobRequeue=0")

    assert conf.troubles == (f"{CONF}: include {CONF.parent}/gone.conf: No such file or directory",)
    assert conf.get("JobRequeue") == "0"


def test_a_file_that_includes_itself_ends() -> None:
    conf = read("JobRequeue=0\nInclude slurm.conf")

    assert len(conf.troubles) == 1
    assert "includes itself" in conf.troubles[0]


@given(st.text(max_size=200))
def test_any_text_is_read_without_an_error(text: str) -> None:
    examine(read(text), lambda _: True)


def test_a_site_that_has_done_everything_hears_nothing() -> None:
    assert said(GOOD) == {}


@pytest.mark.parametrize(
    ("line", "key", "level", "words"),
    [
        ("PrologFlags=NoHold", "PrologFlags", Level.DANGER, "without a check"),
        ("PrologFlags=Alloc,Serial", "PrologFlags", Level.NOTE, "one after the other"),
        ("SchedulerParameters=bf_interval=30", "SchedulerParameters", Level.DANGER, "requeued held"),
        ("HealthCheckInterval=0", "HealthCheckInterval", Level.MISSING, "never runs"),
        ("HealthCheckInterval=10", "HealthCheckInterval", Level.NOTE, "300 is enough"),
        ("HealthCheckNodeState=ANY", "HealthCheckNodeState", Level.DANGER, "same moment"),
        ("HealthCheckProgram=", "HealthCheckProgram", Level.NOTE, "not set"),
        ("PrologEpilogTimeout=65534", "PrologEpilogTimeout", Level.DANGER, "has no time limit"),
        ("PrologEpilogTimeout=2", "PrologTimeout", Level.DANGER, "2 s is short"),
        ("JobRequeue=0", "JobRequeue", Level.DANGER, "not requeued"),
        ("MaxBatchRequeue=1", "MaxBatchRequeue", Level.DANGER, "held after 1"),
        ("SlurmdTimeout=0", "SlurmdTimeout", Level.DANGER, "never set DOWN"),
        ("SlurmdTimeout=3600", "SlurmdTimeout", Level.NOTE, "3600 s"),
        ("ReturnToService=2", "ReturnToService", Level.DANGER, "as soon as"),
        ("RebootProgram=", "RebootProgram", Level.NOTE, "does nothing"),
        ("ResumeTimeout=60", "ResumeTimeout", Level.DANGER, "set DOWN"),
        ("SuspendTime=600 SuspendProgram=/x", "SuspendProgram", Level.NOTE, "powered down"),
        ("GresTypes=", "GresTypes", Level.NOTE, "which GPUs"),
        ("ProctrackType=proctrack/linuxproc", "ProctrackType", Level.NOTE, "outlive"),
        ("AccountingStorageType=accounting_storage/none", "AccountingStorageType", Level.NOTE, "no jobs"),
    ],
)
def test_each_danger_is_named_by_its_key(line: str, key: str, level: Level, words: str) -> None:
    advice = said(GOOD, line)[key]

    assert advice.level is level
    assert words in advice.text


@pytest.mark.parametrize("line", ["PrologTimeout=60", "PrologEpilogTimeout=60 EpilogTimeout=90"])
def test_the_newer_keys_for_time_limits_count_as_well(line: str) -> None:
    text = GOOD.replace("PrologEpilogTimeout=120", line)
    if "EpilogTimeout" not in line:
        assert said(text)["PrologEpilogTimeout"].level is Level.DANGER
        text += "EpilogTimeout=60\n"

    assert said(text) == {}


def test_a_prolog_that_does_not_call_us_is_told() -> None:
    advice = said(GOOD, hooked=False)

    assert {advice["Prolog"].level, advice["Epilog"].level} == {Level.MISSING}


def test_an_empty_file_lacks_prolog_and_epilog_and_has_no_danger() -> None:
    advice = said("")

    assert [a.key for a in advice.values() if a.level is Level.MISSING] == ["Prolog", "Epilog"]
    assert not [a for a in advice.values() if a.level is Level.DANGER]


def test_the_command_says_it_by_its_exit_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d/50-nodetriage").write_text("#!/bin/sh\n# nodetriage\n")
    conf = tmp_path / "slurm.conf"
    conf.write_text(
        GOOD.replace("/etc/slurm/prolog.d", f"{tmp_path}/d").replace("/etc/slurm/epilog.d", f"{tmp_path}/d")
    )
    assert main(["slurm", "doctor", "--conf", str(conf)]) == 0
    conf.write_text(GOOD)
    assert main(["slurm", "doctor", "--conf", str(conf)]) == 1
    conf.write_text(f"{GOOD}JobRequeue=0\n")
    capsys.readouterr()
    assert main(["slurm", "doctor", "--json", "--conf", str(conf)]) == 2
    assert json.loads(capsys.readouterr().out)["advice"][0] == {
        "level": "danger",
        "key": "JobRequeue",
        "text": "batch jobs are not requeued unless they ask for it: a faulty node ends them",
        "set": "JobRequeue=1",
    }


def test_a_conf_that_is_not_there_is_unknown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["slurm", "doctor", "--conf", str(tmp_path / "x")]) == 3
    assert capsys.readouterr().err == f"nodetriage: {tmp_path}/x: No such file or directory\n"
