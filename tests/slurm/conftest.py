"""The tests of this folder run on both versions of Slurm: this machine's own, and 24.11 in a Debian 13 tree."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import debian13
import pytest
from controller_once import Controller
from debian13 import DEBIAN13, THIS_MACHINE
from slurm_cluster import SlurmCluster, missing
from slurm_rest_daemon import jwt_conf

from nodetriage.controller.slurm.client import Slurm
from nodetriage.controller.store.database import create_tables, open_database

# With one leaf alone a switch would be the whole fleet.
TOPOLOGY = "SwitchName=leaf1 Nodes=n[1-2]\nSwitchName=leaf2 Nodes=n[3-5]\nSwitchName=spine Switches=leaf[1-2]\n"
MORE_CONF = "RebootProgram=/bin/true\nPrologFlags=Alloc\nProlog=@DIR@/prolog\n"
ClusterOf = Callable[..., SlurmCluster]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whoever comes first waits for a cluster, on Debian 13 perhaps for the tree as well."""
    for item in items:
        params = getattr(getattr(item, "callspec", None), "params", {})
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.timeout(900 if params.get("slurm_version") == DEBIAN13 else 400))


@pytest.fixture(params=[THIS_MACHINE, DEBIAN13])
def slurm_version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="session")
def _new_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterOf]:
    """Starts a cluster of a version, with settings of the caller's own; all end with the session."""
    if reason := missing():
        pytest.skip(reason)
    with contextlib.ExitStack() as stack:

        def new(version: str, *, tokens: bool = False, **settings: object) -> SlurmCluster:
            root = debian13.tree() if version == DEBIAN13 else None
            folder = stack.enter_context(debian13.folder_in(root)) if root else tmp_path_factory.mktemp("slurm")
            conf = str(settings.pop("extra_conf", "")) + (jwt_conf(folder) if tokens else "")
            cluster = SlurmCluster(folder, root=root, extra_conf=conf, **settings)  # type: ignore[arg-type]
            stack.callback(cluster.stop)
            return cluster

        yield new


@pytest.fixture(scope="session")
def _shared_clusters(_new_cluster: ClusterOf) -> Callable[[str], SlurmCluster]:
    running: dict[str, SlurmCluster] = {}

    def of(version: str) -> SlurmCluster:
        if version not in running:
            settings = {"topology": TOPOLOGY, "extra_conf": MORE_CONF, "nodes": 5, "slurmd_timeout_s": 12}
            running[version] = _new_cluster(version, tokens=version == DEBIAN13, **settings)
            # A prolog that fails where the test says so.
            prolog = running[version].directory / "prolog"
            prolog.write_text(f'#!/bin/sh\ntest ! -e "{prolog.parent}/prolog-fails-$SLURMD_NODENAME"\n')
            prolog.chmod(0o755)
        return running[version]

    return of


@pytest.fixture
def slurm_cluster(_shared_clusters: Callable[[str], SlurmCluster], slurm_version: str) -> SlurmCluster:
    """Five idle nodes, n1 to n5, of one cluster a version for the whole run; no jobs, drains or reservations."""
    cluster = _shared_clusters(slurm_version)
    cluster.reset()
    return cluster


@pytest.fixture
def cluster_of(_new_cluster: ClusterOf, slurm_version: str) -> ClusterOf:
    """Starts a cluster of its own, of the version that the test runs on."""
    return lambda **settings: _new_cluster(slurm_version, **settings)


@pytest.fixture
def slurm(slurm_cluster: SlurmCluster) -> Slurm:
    return Slurm(environment=slurm_cluster.env)


@pytest.fixture
def controller(slurm_cluster: SlurmCluster, tmp_path: Path) -> Iterator[Controller]:
    engine = open_database(f"sqlite:///{tmp_path}/history.sqlite")
    create_tables(engine)
    yield Controller(tmp_path / "history.sqlite", engine, slurm_cluster)
    engine.dispose()
