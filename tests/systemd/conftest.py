"""Packages, made once, and machines to install them on."""

from collections.abc import Callable, Iterator
from pathlib import Path

import debian_tree
import pytest
from machine import Machine, Network
from package_build import build

NewMachine = Callable[..., Machine]


@pytest.fixture(scope="session")
def tree() -> Path:
    """What all machines boot."""
    return debian_tree.tree()


@pytest.fixture(scope="session")
def agent_packages(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two folders with nodetriage's .deb and .rpm: a first revision, and a second one to upgrade to."""
    folders = tmp_path_factory.mktemp("first"), tmp_path_factory.mktemp("second")
    for revision, folder in enumerate(folders, 1):
        build(folder, "--revision", str(revision), package="nodetriage")
    return folders


@pytest.fixture(scope="session")
def controller_package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with nodetriage-controller's .deb."""
    folder = tmp_path_factory.mktemp("controller")
    build(folder, package="nodetriage-controller", formats="deb")
    return folder


@pytest.fixture(scope="session")
def analysis_package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with nodetriage-analysis's .deb, which is large, so it is made once and alone."""
    folder = tmp_path_factory.mktemp("analysis")
    build(folder, package="nodetriage-analysis", formats="deb")
    return folder


@pytest.fixture
def new_machine(tree: Path, tmp_path: Path) -> Iterator[NewMachine]:
    """Boots machines, and ends them after the test."""
    running: list[Machine] = []

    def new(name: str, *options: str, network: Network | None = None, address: str = "") -> Machine:
        machine = Machine(tree, tmp_path, name, options, network=network, address=address)
        running.append(machine)
        return machine

    yield new
    for machine in running:
        machine.stop()
