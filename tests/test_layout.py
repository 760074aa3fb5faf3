"""The project is laid out and packaged as docs/decisions/0001-layout.md says."""

import ast
import importlib.util
import re
import subprocess
import sys
import tomllib
import zipfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[1]
ROOTS = ("agent", "analysis", "checks", "controller", "proto", "service")
CODE = (*ROOTS, "bench", "packaging", "scripts", "systemd", "tests")
DEVICES = ("bmc", "fabric", "gpu", "host", "pcie", "storage")
MADE = re.compile(r"_pb2|/migrations/versions/")  # files that a generator wrote
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def built(*options: str, source: Path, into: Path) -> Path:
    """The file that hatchling makes of the tree at `source`."""
    command = [sys.executable, "-m", "hatchling", "build", *options, "-d", str(into)]
    subprocess.run(command, cwd=source, check=True, capture_output=True)
    (file,) = into.iterdir()
    return file


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built("-t", "sdist", source=ROOT, into=tmp_path_factory.mktemp("sdist"))


@pytest.fixture(scope="module")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from the sdist, as an index's users build it."""
    unpacked = tmp_path_factory.mktemp("unpacked")
    subprocess.run(["tar", "-xzf", sdist, "-C", unpacked], check=True)
    (source,) = unpacked.iterdir()
    return built("-t", "wheel", source=source, into=tmp_path_factory.mktemp("wheel"))


def sources() -> set[str]:
    """Every file of the roots that git would keep, by its path in a wheel."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", *ROOTS]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\n")
    return {str(PurePosixPath(*PurePosixPath(p).parts[1:])) for p in listed if p and (ROOT / p).exists()}


def product_code() -> Iterator[tuple[str, str]]:
    """Path and text of every Python file of the product that a person wrote."""
    for root in ROOTS:
        for path in sorted((ROOT / root).rglob("*.py")):
            if not MADE.search(name := path.relative_to(ROOT).as_posix()):
                yield name, path.read_text()


def functions(text: str) -> Iterator[tuple[str, int]]:
    """Name and number of lines of every function, with its nested ones."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, (node.end_lineno or node.lineno) - node.lineno + 1


def test_no_folder_of_code_holds_more_than_twenty_files() -> None:
    sources = [p for root in CODE for p in (ROOT / root).rglob("*") if p.suffix in (".py", ".toml", ".sh", ".c")]
    count = Counter(p.parent.relative_to(ROOT).as_posix() for p in sources if "hosts" not in p.parts)

    assert {folder: files for folder, files in count.items() if files > 20} == {}


def test_no_file_is_longer_than_300_lines_and_no_check_than_120() -> None:
    lengths = {name: len(text.splitlines()) for name, text in product_code()}
    limits = {name: 120 if PurePosixPath(name).parent.name in DEVICES else 300 for name in lengths}

    assert {name: length for name, length in lengths.items() if length > limits[name]} == {}


def test_no_function_is_longer_than_40_lines() -> None:
    found = {f"{name}: {function}": lines for name, text in product_code() for function, lines in functions(text)}

    assert {function: lines for function, lines in found.items() if lines > 40} == {}


@pytest.mark.parametrize("path", sorted((ROOT / "bench").rglob("*.py")), ids=lambda p: p.name)
def test_what_a_benchmark_imports_from_the_product_is_there(path: Path) -> None:
    imports = [n for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.ImportFrom) and n.module]
    ours = [(n.module, a.name) for n in imports if n.module and n.module.startswith("nodetriage.") for a in n.names]
    absent = [
        f"{module}.{name}"
        for module, name in ours
        if not hasattr(importlib.import_module(module), name) and not importlib.util.find_spec(f"{module}.{name}")
    ]

    assert absent == []


BOUNDARIES = {  # one part fails, the others go on
    "agent/nodetriage/agent/workers/forkserver.py": "a worker",
    "agent/nodetriage/agent/workers/handle.py": "the loop that serves those who wait for a worker",
    "agent/nodetriage/agent/workers/run.py": "a check in its worker",
    "checks/nodetriage/checks/registry.py": "a third party's module",
    "controller/nodetriage/controller/engine/executor.py": "the executor's loop",
    "controller/nodetriage/controller/engine/guarded_step.py": "the reconciler's loop",
    "controller/nodetriage/controller/rpc/ingest.py": "an RPC handler",
    "controller/nodetriage/controller/store/store.py": "the store's writer",
}
THREADS = {
    "agent/nodetriage/agent/delivery/writer.py": "writes the spool: the disk may freeze",
    "agent/nodetriage/agent/cli/capture.py": "says what a command does that hangs",
    "controller/nodetriage/controller/store/store.py": "writes the database",
    "controller/nodetriage/controller/store/write_queue.py": "hands the writer what waits",
    "service/nodetriage/service/log.py": "writes the log: the journal may freeze",
}


WALL_CLOCK = {  # it may step, so nothing of the agent is decided by it
    "agent/nodetriage/agent/daemon.py": "the stamp of an event, which also has the boot clock",
    "agent/nodetriage/agent/heartbeat.py": "the stamp of a heartbeat",
    "agent/nodetriage/agent/slurm/hook_word.py": "when the controller's word came, for people",
    "agent/nodetriage/agent/slurm/hooks.py": "Slurm gives a job's start in it",
}


def catches_all(node: ast.AST) -> bool:
    """Whether it is a broad `except` that does not raise again."""
    if not isinstance(node, ast.ExceptHandler):
        return False
    broad = node.type is None or (isinstance(node.type, ast.Name) and node.type.id in ("Exception", "BaseException"))
    return broad and not any(isinstance(inner, ast.Raise) and inner.exc is None for inner in ast.walk(node))


def test_everything_is_caught_only_at_the_boundaries_that_are_listed() -> None:
    found = {name for name, text in product_code() if any(map(catches_all, ast.walk(ast.parse(text))))}

    assert found == set(BOUNDARIES)


def test_the_agent_reads_the_wall_clock_only_where_it_is_listed() -> None:
    reads = re.compile(r"\btime\.time(_ns)?\(|\bdatetime\.now\(|CLOCK_REALTIME")
    found = {name for name, text in product_code() if name.startswith("agent/") and reads.search(text)}

    assert found == set(WALL_CLOCK)


def test_threads_are_used_only_where_they_are_listed() -> None:
    found = {name for name, text in product_code() if re.search(r"^\s*(import|from) threading\b", text, re.MULTILINE)}

    assert found == set(THREADS)


def test_no_root_claims_the_namespace_for_itself() -> None:
    strays = [p for root in ROOTS for p in (ROOT / root).glob("__init__.py")]
    strays += [p for root in ROOTS for p in (ROOT / root / "nodetriage").glob("__init__.py")]

    assert strays == []


def test_every_portion_says_that_it_is_typed() -> None:
    portions = [p for root in ROOTS for p in (ROOT / root / "nodetriage").iterdir() if p.is_dir()]

    assert [p.name for p in portions if not (p / "py.typed").is_file()] == []


def test_no_test_folder_is_a_package() -> None:
    assert list((ROOT / "tests").rglob("__init__.py")) == []


def test_the_wheel_holds_every_source_file_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = {n for n in archive.namelist() if ".dist-info/" not in n}

    assert names == sources()
    assert all(n.startswith("nodetriage/") for n in names)


def test_the_wheel_brings_both_commands_and_its_licence(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (commands,) = (archive.read(n).decode() for n in names if n.endswith("entry_points.txt"))

    assert "nodetriage = nodetriage.agent.cli.main:main" in commands
    assert "nodetriagectl = nodetriage.controller.cli.main:main" in commands
    assert any(n.endswith("licenses/LICENSE") for n in names)


def test_the_lock_pins_every_requirement_by_hash_and_names_no_index() -> None:
    lock = (ROOT / "requirements.lock").read_text()
    pins = {canonicalize_name(m[1]): Version(m[2]) for m in re.finditer(r"^([\w.-]+)==(\S+)", lock, re.MULTILINE)}
    hashed = re.findall(r"^[\w.-]+==\S+[^\n]*\\\n    --hash=sha256:[0-9a-f]{64}", lock, re.MULTILINE)

    assert len(hashed) == len(pins)
    assert "://" not in lock
    for requirement in requirements():
        assert pins[canonicalize_name(requirement.name)] in requirement.specifier, str(requirement)


def test_the_lowest_grpcio_and_protobuf_allowed_can_load_the_generated_stubs() -> None:
    stubs = ROOT / "proto/nodetriage/v1"
    found = {
        "grpcio": re.search(r"GRPC_GENERATED_VERSION = '(.+)'", (stubs / "health_pb2_grpc.py").read_text()),
        "protobuf": re.search(r"# Protobuf Python Version: (.+)", (stubs / "health_pb2.py").read_text()),
    }
    for name, match in found.items():
        assert match
        (bound,) = (r for r in requirements() if r.name == name)
        assert {s.operator: s.version for s in bound.specifier}[">="] == match[1]


def requirements() -> list[Requirement]:
    """All that pyproject.toml asks for: agent, controller, analysis, development; none of our own extras."""
    project = PROJECT["project"]
    groups = [
        project["dependencies"],
        *project["optional-dependencies"].values(),
        *PROJECT["dependency-groups"].values(),
    ]
    found = [Requirement(line) for group in groups for line in group]
    return [requirement for requirement in found if requirement.name != project["name"]]
