"""Configurations of NHC as settings: what each line becomes, and that the settings are right ones."""

import json
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodetriage.agent.cli.main import main
from nodetriage.agent.cli.nhc_import import as_toml
from nodetriage.agent.nhc.conf import lines, node_set
from nodetriage.agent.nhc.translate import Translated, translated
from nodetriage.agent.settings.config import AgentSettings, load
from nodetriage.checks.model import Severity
from nodetriage.checks.registry import ALL

SAMPLES = Path(__file__).parent / "samples"


def import_(text: str, with_nhc: bool = False) -> list[Translated]:
    return [translated(line, with_nhc) for line in lines(text)]


def loaded(text: str, folder: Path, node: str = "n1", with_nhc: bool = False) -> AgentSettings:
    file = folder / "agent.toml"
    file.write_text("\n".join(as_toml(import_(text, with_nhc))))
    return load(file, ALL, node)


def said(text: str) -> tuple[str, str]:
    (one,) = import_(text)
    return one.state, one.note


def policy(settings: AgentSettings, check: str) -> object:
    return settings.checks[check].check.policy


def run_of(text: str, folder: Path) -> int:
    """The exit code of the command that a line became, as the agent runs it."""
    (command,) = loaded(text, folder).commands.values()
    assert command.exit_codes == "nhc"
    return subprocess.run(command.argv, check=False, capture_output=True, timeout=60).returncode


def test_mounts_become_expected_mounts_and_read_only_ones_may_be_read_only(tmp_path: Path) -> None:
    checks = ("check_fs_mount_rw -f /scratch", "check_fs_mount -t nfs -s nas:/home -f /home", "check_fs_mount_rw /")
    text = "".join(f"* || {check}\n" for check in checks)
    found = policy(loaded(text, tmp_path), "fs_mounts")

    assert {point: one.read_only for point, one in found.expected.items()} == {  # type: ignore[attr-defined]
        "/scratch": False,
        "/home": True,
        "/": False,
    }
    assert [(t.state, t.note) for t in import_(text)] == [
        ("full", ""), ("partly", "its type, source may be any"), ("full", "")
    ]  # fmt: skip


def test_memory_ports_services_and_versions_become_settings_of_the_checks(tmp_path: Path) -> None:
    settings = loaded(
        "* || check_hw_physmem 1915071MB 1915071MB 5%\n* || check_hw_ib 400 mlx5_0:1\n* || check_hw_eth eth0\n"
        "* || check_ps_service -u root -S sshd\n* || check_ps_daemon munged munge\n"
        '* || check_dmi_data_match "BIOS Information: Version: 2.0.1"\n* || check_hw_mcelog\n',
        tmp_path,
    )
    memory, ports = policy(settings, "mem_size"), policy(settings, "ib_link")
    assert (round(memory.expected_gib), memory.tolerance_pct) == (1870, 5.0)  # type: ignore[attr-defined]
    assert ports.roles["nhc_mlx5_0"].rate_gbps == 400  # type: ignore[attr-defined]
    assert list(policy(settings, "eth_link").expected) == ["eth0"]  # type: ignore[attr-defined]
    expected = policy(settings, "services").expected  # type: ignore[attr-defined]
    assert expected == {"sshd.service": Severity.MAJOR, "munged.service": Severity.MAJOR}
    assert policy(settings, "node_drift").bios == ("2.0.1",)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("* || check_cmd_status -t 2 -r 0 true", 0),
        ("* || check_cmd_status -t 2 -r 0 false", 1),
        ("* || check_cmd_status -t 1 -r 1 false", 0),
        ("* || check_cmd_status -t 1 -r 1 true", 1),
        ("* || check_cmd_output -t 2 -r 0 -m '/Linux/' uname", 0),
        ("* || check_cmd_output -t 2 -r 0 -m '/Solaris/' uname", 1),
        ("* || check_cmd_output -m '!/Solaris/' -m 'Lin*' uname", 0),
        ("* || check_cmd_output -m '!/Linux/' uname", 1),
        ("* || check_file_contents /proc/sys/kernel/ostype '/Linux/'", 0),
        ("* || check_file_contents /proc/sys/kernel/ostype 'Linu'", 1),
        ("* || check_file_test -c -r -w /dev/null /dev/zero", 0),
        ("* || check_file_test -d /dev/null", 1),
        ("* || check_file_test -r '/no/such file; echo'", 1),
    ],
)
def test_a_check_of_a_command_or_file_becomes_a_command_that_says_the_same(
    tmp_path: Path, line: str, code: int
) -> None:
    assert run_of(line, tmp_path) == code


@pytest.mark.parametrize(
    ("target", "nodes"),
    [
        ("*", ""),
        ("gpu-*", "gpu-*"),
        ("n0000", "n0000"),
        ("{n[01-20,30]}", "n[01-20,30]"),
        ("/^s(has|sky)/", "shas*,ssky*"),
        ("/gpu/", "*gpu*"),
        ("/^node[0-9][0-9]$/", "node??"),
        ("/^n.*-ib$/", "n*-ib"),
    ],
)
def test_a_target_becomes_a_set_of_nodes(target: str, nodes: str) -> None:
    assert node_set(target) == nodes


@pytest.mark.parametrize("target", ["!io*", "/^n[^0]/", "/^(a|b(c|d))/", "/n\\d+/", "n[abc]", ""])
def test_a_target_that_has_no_form_as_a_set_is_not_guessed(target: str) -> None:
    with pytest.raises(ValueError, match=r"hosts|form|means"):
        node_set(target)


def test_a_line_for_some_hosts_is_in_force_there_alone(tmp_path: Path) -> None:
    text = "/^s(has|sky)/ || check_fs_mount_rw -f /gpfs\nsknl* || check_hw_eth enp4s0\n* || check_fs_mount_rw -f /\n"
    points = {
        node: sorted(policy(loaded(text, tmp_path, node), "fs_mounts").expected)  # type: ignore[attr-defined]
        for node in ("shas0101", "sknl0101")
    }
    assert points == {"shas0101": ["/", "/gpfs"], "sknl0101": ["/"]}
    assert list(policy(loaded(text, tmp_path, "sknl0101"), "eth_link").expected) == ["enp4s0"]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("* || check_ps_loadavg $((2*HW_CORES))", "shell code"),
        ("* || check_hw_ib 100", "which ports"),
        ("* || check_hw_physmem 1k 1TB", "less than 1 GiB"),
        ("* || check_fs_free /tmp 20%", "one limit for all"),
        ("* || check_hw_topology", "no check of ours does this"),
        ("* || my_own_check", "no check of NHC"),
        ("* || check_cmd_output -m '{a}' uname", "needs NHC"),
        ("* || check_fs_mount_rw -f '/(a|b)/'", "no pattern"),
        ("* || check_ps_service -Z sshd", "-Z has no meaning here"),
        ("!io* || check_hw_eth eth0", "all nodes but these"),
        ("source /etc/nhc/scripts/logwatch.nhc", "no check behind ||"),
    ],
)
def test_what_has_no_translation_is_named_with_the_reason(line: str, why: str) -> None:
    state, note = said(line)
    assert state == "none"
    assert why in note


def test_nhc_itself_can_run_what_has_no_translation(tmp_path: Path) -> None:
    text = "n[1-4] || check_ps_loadavg $((2*HW_CORES))\n"
    (command,) = loaded(text, tmp_path, "n2", with_nhc=True).commands.values()

    assert command.argv[-3:] == ("-e", "check_ps_loadavg $((2*HW_CORES))", "MARK_OFFLINE=0")
    assert loaded(text, tmp_path, "n9", with_nhc=True).commands == {}


def test_settings_of_nhc_say_what_stands_for_them() -> None:
    assert said("* || export MARK_OFFLINE=0")[0] == "full"
    assert said('* || HOSTNAME="$HOSTNAME_S"')[0] == "full"
    state, note = said("gpu-* || NVIDIA_HEALTHMON=nvidia-healthmon")
    assert (state, note.split()[0]) == ("none", "NVIDIA_HEALTHMON")


@pytest.mark.parametrize("sample", sorted(SAMPLES.glob("*.conf")), ids=lambda path: path.stem)
@pytest.mark.parametrize("with_nhc", [False, True])
def test_a_published_configuration_becomes_settings_that_the_agent_takes(
    sample: Path, with_nhc: bool, tmp_path: Path
) -> None:
    text = sample.read_text()
    found = import_(text, with_nhc)

    loaded(text, tmp_path, with_nhc=with_nhc)
    assert len(found) == sum(1 for line in text.splitlines() if line.strip() and not line.strip().startswith("#"))
    assert all(one.note for one in found if one.state != "full")
    translated_lines = sum(one.state != "none" for one in found)
    assert translated_lines >= len(found) * (0.9 if with_nhc else 0.5)


@given(st.text(alphabet=st.sampled_from("*|/ -abcfmn[]{}()!$'\"\\=#0159%:.,\n\t") | st.characters(), max_size=200))
def test_no_text_breaks_the_import_and_what_comes_out_is_always_loadable(
    tmp_path_factory: pytest.TempPathFactory, text: str
) -> None:
    for line in (text, f"* || check_file_contents {text}", f"{text} || check_fs_mount_rw -f /a", f"* || {text}"):
        loaded(line, tmp_path_factory.mktemp("any"), with_nhc=True)


def test_the_verb_prints_settings_and_counts_and_its_exit_code_says_whether_all_was_translated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    conf = tmp_path / "nhc.conf"
    conf.write_text("* || check_fs_mount_rw -f /tmp\n")
    assert main(["nhc-import", str(conf)]) == 0
    printed = capsys.readouterr()
    assert '[checks.fs_mounts.expected."/tmp"]' in printed.out
    assert printed.err.startswith("nodetriage: 1 lines: 1 translated, 0 in part, 0 not")

    conf.write_text("* || check_hw_topology\n")
    assert main(["nhc-import", str(conf), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["lines"][0]["state"] == "none"
    assert main(["nhc-import", str(tmp_path / "absent")]) == 78
