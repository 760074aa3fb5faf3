"""Settings are strict, each error is one line, and a policy beside the file is found."""

import subprocess
import sys
from pathlib import Path

import pytest

from nodetriage.checks.model.settings import ConfigError
from nodetriage.controller.config import load, needs_restart
from nodetriage.controller.scheduler import NoScheduler
from nodetriage.controller.settings.rules import Mode
from nodetriage.controller.slurm.client import Slurm
from nodetriage.controller.store.database import open_database


def written(folder: Path, text: str) -> Path:
    (folder / "controller.toml").write_text(text)
    return folder / "controller.toml"


def test_an_empty_file_listens_on_loopback_alone_and_keeps_sqlite_in_the_state_folder(tmp_path: Path) -> None:
    settings = load(written(tmp_path, ""))
    assert settings.controller.listen == "127.0.0.1:7443"
    assert settings.database_url == "sqlite:////var/lib/nodetriage-controller/history.sqlite"
    assert isinstance(settings.new_scheduler(), Slurm)


def test_later_files_of_the_folder_win_and_other_keys_stay(tmp_path: Path) -> None:
    path = written(
        tmp_path, '[controller]\nlisten = "127.0.0.1:1"\nmissed_heartbeats = 9\n[scheduler]\nkind = "slurm"\n'
    )
    (tmp_path / "controller.d").mkdir()
    (tmp_path / "controller.d/10-a.toml").write_text('[controller]\nlisten = "127.0.0.1:2"\n')
    (tmp_path / "controller.d/20-b.toml").write_text(
        '[controller]\nlisten = "127.0.0.1:3"\n[scheduler]\nkind = "none"\n'
    )
    settings = load(path)
    assert (settings.controller.listen, settings.controller.missed_heartbeats) == ("127.0.0.1:3", 9)
    assert isinstance(settings.new_scheduler(), NoScheduler)


WRONG = {
    "[controller]\nlistn = 'x'": r"controller\.toml: controller\.listn: unknown key; known keys: .*listen",
    "[controller]\nlisten = 7443": r"controller\.listen: expected a string, got 7443",
    "[scheduler]\nkind = 'pbs'": r"scheduler\.kind: expected one of 'none', 'slurm', got 'pbs'",
    "[controller]\nmissed_heartbeats = 0": r"missed_heartbeats: expected at least 1, got 0",
    "[admission]\nmax_agents = -1": r"max_agents: expected more than 0, got -1",
    "[controller": r"controller\.toml: not TOML",
    "[nonsense]": r"nonsense: unknown key",
}


@pytest.mark.parametrize("text", WRONG)
def test_a_wrong_setting_is_one_line_that_names_it(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError, match=WRONG[text]) as caught:
        load(written(tmp_path, text))
    assert "\n" not in str(caught.value)


def test_a_policy_beside_the_file_is_in_force_and_the_shipped_one_otherwise(tmp_path: Path) -> None:
    path = written(tmp_path, "")
    assert load(path).load_policy().mode == Mode.OBSERVE
    (tmp_path / "policy.toml").write_text('mode = "enforce"\n')
    assert load(path).load_policy().mode == Mode.ENFORCE
    (tmp_path / "policy.toml").write_text("")
    assert load(path).load_policy().mode == Mode.OBSERVE
    (tmp_path / "named.toml").write_text('mode = "recommend"\n')
    written(tmp_path, '[policy]\nfile = "named.toml"\n')
    assert load(path).load_policy().mode == Mode.RECOMMEND


def test_only_the_policy_can_change_without_a_restart(tmp_path: Path) -> None:
    old = load(written(tmp_path, ""))
    assert needs_restart(old, load(written(tmp_path, '[policy]\nfile = "other.toml"\n'))) == []
    assert needs_restart(old, load(written(tmp_path, '[controller]\nlisten = "unix:x"\n'))) == ["controller"]


@pytest.mark.parametrize("url", ["history.sqlite", "mysql://h/n", "sqlite://", "postgresql"])
def test_a_database_that_is_neither_sqlite_nor_postgresql_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="expected sqlite:///FILE or postgresql://HOST/NAME"):
        open_database(url)


WITH_PASSWORD = '[controller]\ndatabase = "postgresql://nodetriage:secret@db/history"\n'


def test_a_file_with_a_password_that_every_user_can_read_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, WITH_PASSWORD)
    path.chmod(0o644)
    with pytest.raises(
        ConfigError, match=r"controller\.toml: controller\.database: has a password.*chmod 0640"
    ) as caught:
        load(path)
    assert "secret" not in str(caught.value)
    path.chmod(0o640)
    assert load(path).database_url.startswith("postgresql://nodetriage:secret@")


def test_a_password_is_read_from_a_file_of_its_own(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        '[controller]\ndatabase = "postgresql://nodetriage@db/history"\n'
        f'database_password_file = "{tmp_path}/password"\n',
    )
    (tmp_path / "password").write_text("s@cret/1\n")
    (tmp_path / "password").chmod(0o600)
    assert open_database(load(path).database_url).url.password == "s@cret/1"
    (tmp_path / "password").chmod(0o644)
    with pytest.raises(ConfigError, match=r"database_password_file: .*/password: others have access"):
        _ = load(path).database_url
    (tmp_path / "password").unlink()
    with pytest.raises(ConfigError, match=r"database_password_file: .*/password: No such file"):
        _ = load(path).database_url


def test_settings_load_neither_cryptography_nor_slurm() -> None:
    code = "import sys, nodetriage.controller.config; print({'cryptography', 'grpc', 'structlog'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60).stdout == "set()\n"


@pytest.mark.parametrize("url", ["mysql://user:secret@h/n", "postgresql://user:secret@h:port/n"])
def test_a_password_in_a_database_url_is_not_repeated(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        open_database(url)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("policy", "scheduler", "mode", "why"),
    [
        (None, "slurm", "observe", "there is no policy.toml"),
        ("", "slurm", "observe", "sets no mode"),
        ('mode = "enforce"\n', "slurm", "enforce", "policy.toml sets it"),
        ('mode = "enforce"\n', "none", "observe", "kind is none"),
    ],
)
def test_the_mode_in_force_and_its_reason_are_known(
    tmp_path: Path, policy: str | None, scheduler: str, mode: str, why: str
) -> None:
    if policy is not None:
        (tmp_path / "policy.toml").write_text(policy)
    settings = load(written(tmp_path, f'[scheduler]\nkind = "{scheduler}"\n'))
    assert settings.why_mode(settings.load_policy())[0] == mode
    assert why in settings.why_mode(settings.load_policy())[1]
