"""A three-node Slurm for the whole folder, and a fresh fleet for each test."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import frozen
import pytest
from fleet import NO_DRAIN_LIMITS, Fleet
from listener import Listener
from postgres import postgres_server, postgres_url
from slurm_cluster import SlurmCluster, missing

__all__ = ["postgres_server", "postgres_url"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Each starts several programs and waits for them; whoever comes first waits for a cluster as well."""
    for item in items:
        if Path(__file__).parent in item.path.parents and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(400))


@pytest.fixture(scope="session")
def _three_nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    if reason := missing():
        pytest.skip(reason)
    cluster = SlurmCluster(tmp_path_factory.mktemp("slurm"), nodes=3)
    yield cluster
    cluster.stop()


@pytest.fixture
def cluster(_three_nodes: SlurmCluster) -> SlurmCluster:
    """n1, n2 and n3, idle."""
    _three_nodes.reset()
    return _three_nodes


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a short path: a Unix socket's may have 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="fleet-") as name:
        yield Path(name)


@pytest.fixture
def idle_fleet(cluster: SlurmCluster, folder: Path) -> Iterator[Fleet]:
    """A fleet that acts on `cluster`; nothing of it runs yet."""
    fleet = Fleet(folder, cluster.env, policy=NO_DRAIN_LIMITS)
    try:
        yield fleet
    finally:
        fleet.close()


@pytest.fixture
def fleet(idle_fleet: Fleet) -> Fleet:
    """A running controller that acts on `cluster`, and no agents yet."""
    idle_fleet.start_controller()
    return idle_fleet


@pytest.fixture
def lone_fleet(folder: Path) -> Iterator[Fleet]:
    """A fleet without a scheduler, for what needs none."""
    fleet = Fleet(folder, {}, settings='[scheduler]\nkind = "none"\n')
    try:
        yield fleet
    finally:
        fleet.close()


@pytest.fixture
def mount(folder: Path) -> Iterator[frozen.FreezableMount]:
    if reason := frozen.missing():
        pytest.skip(reason)
    mount = frozen.FreezableMount(folder)
    yield mount
    mount.close()


@pytest.fixture
def listener(folder: Path) -> Iterator[Listener]:
    listener = Listener(folder / "c.sock")
    yield listener
    listener.close()
