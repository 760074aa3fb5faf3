"""Settings for some nodes only, and where each setting comes from."""

from pathlib import Path

import pytest

from nodetriage.agent.settings.config import AgentSettings, load
from nodetriage.checks.model.settings import ConfigError

HOSTS = """\
[agent]
heartbeat_s = 5
[checks.word]
limit = 4

[[hosts]]
nodes = "gpu-[1-64]"
agent.heartbeat_s = 10
[hosts.checks.word]
limit = 5
every_s = 7
[hosts.profile]
name = "hgx-h100"

[[hosts]]
nodes = "gpu-[60-70]"
checks.word.limit = 6
"""


def load_for(file: Path, node: str = "") -> AgentSettings:
    from trial_checks import ALL

    return load(file, ALL, node)


@pytest.fixture
def file(tmp_path: Path, trial: Path) -> Path:
    path = tmp_path / "agent.toml"
    path.write_text(HOSTS)
    return path


def word(settings: AgentSettings) -> tuple[int, float]:
    check = settings.checks["word"].check
    return check.policy.limit, check.every_s


@pytest.mark.parametrize(
    ("node", "heartbeat_s", "expected"),
    [("login1", 5, (4, 0.5)), ("gpu-1", 10, (5, 7)), ("gpu-60", 10, (6, 7)), ("gpu-70", 5, (6, 0.5))],
)
def test_a_node_gets_the_tables_that_name_it_the_later_one_winning(
    file: Path, node: str, heartbeat_s: float, expected: tuple[int, float]
) -> None:
    settings = load_for(file, node)

    assert settings.agent.heartbeat_s == heartbeat_s
    assert word(settings) == expected


def test_a_later_file_wins_over_an_earlier_files_tables_for_some_nodes(file: Path) -> None:
    (file.parent / "conf.d").mkdir()
    (file.parent / "conf.d/90-site.toml").write_text("[checks.word]\nlimit = 9\n")

    assert word(load_for(file, "gpu-1")) == (9, 7)


def test_the_nodes_name_is_the_one_that_the_settings_give(file: Path) -> None:
    file.write_text(HOSTS.replace("[agent]\n", '[agent]\nnode = "gpu-60"\n'))

    assert word(load_for(file)) == (6, 7)


def test_each_setting_says_where_it_is_from(file: Path) -> None:
    sources = load_for(file, "gpu-60").sources

    assert sources["checks.word.limit"] == f"{file}: hosts[1]"
    assert sources["checks.word.every_s"] == f"{file}: hosts[0]"
    assert "checks.word.timeout_s" not in sources


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[[hosts]]\nnodes = 'n[1-2]'\n[hosts.agnt]\n", "hosts[0]: agnt: unknown key"),
        ("[[hosts]]\nnodes = 'elsewhere'\nchecks.word.limit = 'x'\n", "hosts[0]: checks.word.limit: expected a whole"),
        ("[[hosts]]\nagent.heartbeat_s = 1\n", "hosts[0]: nodes: expected node names"),
        ("[[hosts]]\nnodes = 'n[1'\n", "hosts[0]: nodes: expected node names"),
        ("[[hosts]]\nnodes = 'n1'\nagent.node = 'x'\n", "hosts[0]: agent.node: the name chooses the [[hosts]] tables"),
        ("[hosts]\nnodes = 'n1'\n", "hosts: expected tables [[hosts]]"),
        ("hosts = [1]\n", "hosts: expected tables [[hosts]]"),
    ],
)
def test_a_wrong_table_is_refused_on_every_node(tmp_path: Path, trial: Path, text: str, says: str) -> None:
    (tmp_path / "agent.toml").write_text(text)

    with pytest.raises(ConfigError) as refused:
        load_for(tmp_path / "agent.toml", "n9")

    assert says in str(refused.value)
    assert "\n" not in str(refused.value)
