"""Fixtures that several parts share, and the rule that in CI nothing is skipped for want of something."""

import os
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import hypothesis
import pytest
from nvml_library import FakeGpus, build
from slurm_cluster import SlurmCluster, missing

ROOT = Path(__file__).resolve().parents[1]
# Recorded machines hold no tests, but /sys's links that lead back into themselves.
collect_ignore = ["hosts", "scenarios"]
# How long an example takes says more about the machine than about the code; the whole test has its timeout.
hypothesis.settings.register_profile("nodetriage", deadline=None)
hypothesis.settings.load_profile("nodetriage")

IN_CI = os.environ.get("CI", "").lower() in ("1", "true", "yes")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite the expected.json of tests/hosts")
    parser.addoption("--update-scenarios", action="store_true", help="rewrite tests/scenarios/*.txt with what came out")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """In CI a skipped test is a failed one: what it lacks belongs into tests/debian-packages.txt."""
    report = yield
    if IN_CI and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.longrepr = f"{report.nodeid}: nothing may be skipped in CI: {reason}"
    return report


@pytest.fixture(scope="session")
def hosts() -> Path:
    """The recorded machines."""
    return ROOT / "tests/hosts"


NewSlurmCluster = Callable[..., SlurmCluster]


@pytest.fixture
def new_slurm_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NewSlurmCluster]:
    """Starts clusters with settings of the test's own, and ends them after it."""
    yield from _clusters(tmp_path_factory)


@pytest.fixture(scope="session")
def _shared_slurm_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    for new in _clusters(tmp_path_factory):
        yield new(nodes=4)


@pytest.fixture
def slurm_cluster(_shared_slurm_cluster: SlurmCluster) -> SlurmCluster:
    """Four idle nodes, n1 to n4, of one cluster for the whole run; each test gets it without jobs or drains."""
    _shared_slurm_cluster.reset()
    return _shared_slurm_cluster


def _clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NewSlurmCluster]:
    if reason := missing():
        pytest.skip(reason)
    running: list[SlurmCluster] = []

    def new(**settings: object) -> SlurmCluster:
        cluster = SlurmCluster(tmp_path_factory.mktemp("slurm"), **settings)  # type: ignore[arg-type]
        running.append(cluster)
        return cluster

    try:
        yield new
    finally:
        for cluster in running:
            cluster.stop()


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Callable[[tuple[str, ...]], Path]:
    """The stand-in for NVIDIA's library, compiled once for each set of functions that the driver is to lack."""
    built: dict[tuple[str, ...], Path] = {}

    def library(missing: tuple[str, ...]) -> Path:
        if missing not in built:
            built[missing] = build(tmp_path_factory.mktemp("nvml"), missing)
        return built[missing]

    return library


@pytest.fixture
def fake_gpus(nvml_library: Callable[[tuple[str, ...]], Path], tmp_path: Path) -> Callable[..., FakeGpus]:
    """`fake_gpus(8)` is a node with eight healthy H100s, whose every answer the test can change."""
    return lambda count, missing=(): FakeGpus(nvml_library(missing), tmp_path / "nvml", count)


@pytest.fixture
def update_golden(request: pytest.FixtureRequest) -> bool:
    """Whether expected output is to be rewritten instead of compared."""
    return bool(request.config.getoption("--update-golden"))
