"""`nodetriage config`."""

import json
from pathlib import Path

import pytest

from nodetriage.agent.cli.main import main

HOSTS = Path(__file__).resolve().parents[2] / "hosts"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "agent.toml"
    path.write_text("[agent]\nheartbeat_s = 3\n[[hosts]]\nnodes = 'gpu-[1-8]'\nchecks.ib_link.every_s = 11\n")
    return path


def test_right_settings_are_told_with_their_files(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (file.parent / "conf.d").mkdir()
    (file.parent / "conf.d/site.toml").write_text("")

    assert main(["config", "check", "--config", str(file)]) == 0
    assert capsys.readouterr().out == f"{file}, {file.parent}/conf.d/site.toml: ok\n"


def test_a_wrong_setting_is_one_line_and_78(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text("[hooks]\nmode = 'shut'\n")

    assert main(["config", "check", "--config", str(file)]) == 78
    assert capsys.readouterr().err == (
        f"nodetriage: {file}: hooks.mode: expected one of 'observe', 'enforce', got 'shut'\n"
    )


@pytest.mark.parametrize(
    ("lines", "error"),
    [
        ("[controller]\naddresses = ['ctl:7433']\n", "controller.addresses: ctl:7433: plaintext is for loopback"),
        ("[controller]\naddresses = ['ctl']\n", "controller.addresses: expected host:port or unix:/path, got 'ctl'"),
        ("[identity]\nkind = 'tls'\nkey = '/no/key'\n", "identity.key: /no/key: No such file or directory"),
        ("[profile]\nname = 'abacus'\n", "profile 'abacus': unknown; known profiles: a100-pcie, dgx-a100"),
    ],
    ids=["no identity", "no port", "no key", "no profile"],
)
def test_what_a_start_would_refuse_the_check_refuses_too(
    file: Path, lines: str, error: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text(lines)

    assert main(["config", "check", "--config", str(file)]) == 78
    said = capsys.readouterr().err
    assert said.startswith(f"nodetriage: {error}")
    assert said.count("\n") == 1


def test_the_keys_of_another_node_are_not_looked_for_here(file: Path) -> None:
    file.write_text("[identity]\nkind = 'tls'\nkey = '/no/key'\n")

    assert main(["config", "check", "--config", str(file), "--node", "another"]) == 0


def test_what_is_in_force_is_shown_with_where_it_is_set(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["config", "show", "--config", str(file), "--node", "gpu-7", "--root", str(HOSTS / "dgx-h100")]

    assert main(argv) == 0
    shown = capsys.readouterr().out.splitlines()

    assert f"agent.heartbeat_s = 3  # {file}" in shown
    assert f"checks.ib_link.every_s = 11  # {file}: hosts[0]" in shown
    assert "checks.gpu_lost.expected_gpus = 8  # profile dgx-h100" in shown
    assert "hooks.deadline_s = 1" in shown
    assert 'checks.ib_link.others.down = "critical"' in shown


def test_only_what_differs_can_be_shown(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["config", "show", "--config", str(file), "--root", str(HOSTS / "cpu-only"), "--changed", "--json"]

    assert main(argv) == 0

    assert json.loads(capsys.readouterr().out) == [
        {"key": "agent.heartbeat_s", "value": "3", "source": str(file)},
        {"key": "profile.name", "value": '"generic"', "source": "chosen by what the machine is"},
    ]
