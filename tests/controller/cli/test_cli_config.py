"""`nodetriagectl config`."""

from pathlib import Path

import pytest

from nodetriage.controller.cli.main import main


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "controller.toml"
    path.write_text("[controller]\nmissed_heartbeats = 9\n")
    (tmp_path / "controller.d").mkdir()
    (tmp_path / "controller.d/site.toml").write_text("[scheduler]\nkind = 'none'\n")
    (tmp_path / "policy.toml").write_text("[drain_limits]\nmax_nodes = 3\n")
    return path


def test_settings_and_policy_are_checked_together(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "check", "--config", str(file)]) == 0
    folder = file.parent
    assert capsys.readouterr().out == f"{file}, {folder}/controller.d/site.toml, {folder}/policy.toml: ok\n"


def test_a_wrong_policy_is_one_line_and_78(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (file.parent / "policy.toml").write_text("[drain_limits]\nmax_nods = 3\n")

    assert main(["config", "check", "--config", str(file)]) == 78
    assert f"{file.parent}/policy.toml: drain_limits.max_nods: unknown key" in capsys.readouterr().err


def test_a_password_is_never_shown(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text('[controller]\ndatabase = "postgresql://nodetriage:secret@db/history"\n')
    file.chmod(0o640)

    for argv in (["config", "show"], ["config", "show", "--json"]):
        assert main([*argv, "--config", str(file)]) == 0
        shown = capsys.readouterr().out
        assert "secret" not in shown
        assert "postgresql://nodetriage:***@db/history" in shown


def test_what_is_in_force_is_shown_with_where_it_is_set(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "show", "--config", str(file)]) == 0
    shown = capsys.readouterr().out.splitlines()

    assert f"controller.missed_heartbeats = 9  # {file}" in shown
    assert f'scheduler.kind = "none"  # {file.parent}/controller.d/site.toml' in shown
    assert f"policy.drain_limits.max_nodes = 3  # {file.parent}/policy.toml" in shown
    assert 'policy.mode = "observe"' in shown
