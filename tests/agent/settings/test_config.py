"""agent.toml and conf.d: strict, and each error names file, key and what was expected."""

from pathlib import Path

import pytest

from nodetriage.agent.settings.config import COMMON_KEYS, defaults, load, node_name
from nodetriage.checks.model.settings import ConfigError


@pytest.fixture
def write(tmp_path: Path, trial: Path):  # type: ignore[no-untyped-def]
    def put(text: str, name: str = "agent.toml") -> Path:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return path

    return put


def checks():  # type: ignore[no-untyped-def]
    from trial_checks import ALL

    return ALL


def test_an_empty_file_gives_the_defaults(write) -> None:  # type: ignore[no-untyped-def]
    settings, base = load(write(""), checks()), defaults(checks())
    assert settings.checks == base.checks
    assert settings.agent == base.agent
    assert settings.kernel_log.accept_user_records is False
    assert [c.name for c in settings.enabled] == [c.name for c in checks()]


def test_later_files_win_key_by_key(write) -> None:  # type: ignore[no-untyped-def]
    path = write('[agent]\nnode = "n1"\nheartbeat_s = 2\n[checks.word]\nevery_s = 9\nlimit = 5\n')
    write('[agent]\nnode = "n2"\n[checks.word]\nlimit = 6\n', "conf.d/20-b.toml")
    write("[checks.word]\nlimit = 8\nenabled = false\n", "conf.d/10-a.toml")
    settings = load(path, checks())
    word = settings.checks["word"]
    assert (settings.agent.node, settings.agent.heartbeat_s) == ("n2", 2.0)
    assert (word.check.every_s, word.check.policy.limit, word.overrides, word.enabled) == (9.0, 6, {"limit": 6}, False)
    assert "word" not in {c.name for c in settings.enabled}
    assert len(settings.files) == 3


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "[agent]\nnod = 'x'\n",
            "agent.toml: agent.nod: unknown key; known keys: boot_grace_s, heartbeat_s, node, root, run_dir",
        ),
        ("[agnt]\n", "agnt: unknown key; known keys: agent, controller, hooks, "),
        ("[agent]\nheartbeat_s = 'fast'\n", "agent.heartbeat_s: expected a number, got 'fast'"),
        ("[agent]\nheartbeat_s = 0\n", "heartbeat_s: expected 0.05 to 3600, got 0"),
        ("[controller]\naddresses = 'a:1'\n", "controller.addresses: expected a list, got 'a:1'"),
        ("[kernel_log]\naccept_user_records = 1\n", "kernel_log.accept_user_records: expected true or false, got 1"),
        (
            "[checks.wrd]\n",
            "checks.wrd: unknown check; known checks: count, disk, disk2, log, mounts, touch, twin, word",
        ),
        (
            "[checks.word]\nlimits = 1\n",
            "checks.word.limits: unknown key; known keys: clear_after, enabled, every_s, lim",
        ),
        ("[checks.word]\nlimit = 'x'\n", "checks.word.limit: expected a whole number, got 'x'"),
        ("[checks.word]\nevery_s = 0\n", "checks.word: every_s: expected more than 0, got 0"),
        ("[checks.word]\nraise_after = 0\n", "checks.word: raise_after: expected at least 1, got 0"),
        ("[checks]\nword = 1\n", "checks.word: expected a table, got 1"),
        ("checks = 1\n", "checks: expected a table, got 1"),
        ("[agent\n", "agent.toml: not TOML"),
    ],
)
def test_a_wrong_file_is_refused_in_one_line(write, text: str, says: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ConfigError) as refused:
        load(write(text), checks())
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.toml: No such file"):
        load(tmp_path / "none.toml", ())


def test_no_check_of_ours_names_a_policy_key_like_one_that_every_check_has() -> None:
    import dataclasses

    from nodetriage.agent.installed_checks import CHECKS

    for check in CHECKS:
        assert not {f.name for f in dataclasses.fields(check.policy)} & set(COMMON_KEYS), check.name


def test_the_node_is_named_as_slurm_names_it() -> None:
    assert node_name("set", {"SLURMD_NODENAME": "n1"}, "vm.example.org") == "set"
    assert node_name("", {"SLURMD_NODENAME": "n1"}, "vm.example.org") == "n1"
    assert node_name("", {}, "vm.example.org") == "vm"
