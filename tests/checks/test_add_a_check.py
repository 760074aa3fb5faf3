"""docs/add-a-check.md, followed word by word in a copy of the project."""

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(400)  # each test runs pytest in a copy of the project

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/add-a-check.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def steps() -> dict[str, list[tuple[str, str]]]:
    """For each file of the page's numbered headings, its code blocks: language and text."""
    found: dict[str, list[tuple[str, str]]] = {}
    _, *parts = re.split(r"^## \d+\. `(.+)`\n", PAGE.read_text(), flags=re.MULTILINE)
    for name, text in zip(parts[::2], parts[1::2], strict=True):
        found[name] = BLOCK.findall(text)
    return found


def copy_of_the_project(into: Path) -> Path:
    """With the bytecode that Python made of each module: it is as old as the module, and need not be made again."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    compiled = (importlib.util.cache_from_source(name) for name in listed if name.endswith(".py"))
    for name in (*listed, *compiled):
        if (ROOT / name).is_symlink() or (ROOT / name).exists():
            (into / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, into / name, follow_symlinks=False)
    return into


def apply(file: Path, language: str, text: str) -> None:
    """A diff adds its lines after the one before them; any other block is the whole file, or goes to its end."""
    old = file.read_text() if file.exists() else ""
    if language != "diff":
        file.write_text(old + text)
        return
    anchor, *added = text.splitlines()
    assert old.count(f"\n{anchor[1:]}\n") == 1, f"{file.name} has no line {anchor[1:]!r}, or several"
    assert all(line.startswith("+") for line in added)
    file.write_text(old.replace(f"{anchor[1:]}\n", "\n".join((anchor[1:], *(line[1:] for line in added), ""))))


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The project with the page's edits, as a developer has it before `make docs` and `--update-golden`."""
    project = copy_of_the_project(tmp_path / "project")
    for name, blocks in steps().items():
        for language, text in blocks:
            (project / name).parent.mkdir(parents=True, exist_ok=True)
            apply(project / name, language, text)
    return project


def run(copy: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Python with the copy's code before the installed one."""
    sources = os.pathsep.join(str(path.parent) for path in copy.glob("*/nodetriage"))
    environment = {**os.environ, "PYTHONPATH": sources}
    return subprocess.run(
        [sys.executable, *arguments], cwd=copy, capture_output=True, text=True, env=environment, timeout=300
    )


def python(copy: Path, *arguments: str) -> str:
    ran = run(copy, *arguments)
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-3000:]
    return ran.stdout


def changed(copy: Path) -> list[str]:
    """The files that differ from the project's, without what tools keep for themselves."""
    files = (path for path in copy.rglob("*") if path.is_file() and not path.is_symlink())
    kept = [path for path in files if not {"__pycache__", ".ruff_cache", ".hypothesis"} & set(path.parts)]
    names = {str(path.relative_to(copy)): path.read_bytes() for path in kept}
    old = {name: (ROOT / name).read_bytes() for name in names if (ROOT / name).is_file()}
    return sorted(name for name, content in names.items() if old.get(name) != content)


TESTS = ("-m", "pytest", "-q", "-p", "no:cacheprovider")
# Two machines stand for all: on one the new check is ok, on the other it is skipped.
MACHINES = (*TESTS, "tests/test_hosts.py", "-k", "cpu-only or xid79 or kernel_taint or table or every_check")
PAGES = """
import sys
from pathlib import Path
sys.path.insert(0, "scripts")
import reference
from nodetriage.checks import document
Path("docs/settings.md").write_text(reference.settings_page())
Path("docs/faults.md").write_text(document.page())
"""


def test_six_edits_make_a_check_that_passes_the_project_s_own_tests(copy: Path) -> None:
    assert len(steps()) == 6

    python(copy, "-c", PAGES)
    python(copy, "-m", "ruff", "check", "checks", "tests/checks/host/test_kernel_taint.py")
    python(copy, "-m", "ruff", "format", "--check", "checks", "tests/checks/host/test_kernel_taint.py")
    python(copy, *MACHINES, "--update-golden")
    python(copy, *MACHINES)
    python(
        copy, *TESTS, "tests/checks/test_all_checks.py", "tests/checks/host/test_kernel_taint.py", "-k", "kernel_taint"
    )
    python(copy, *TESTS, "tests/test_docs.py", "-k", "kernel_taint or every_fault_is_described or settings_and_faults")
    assert "kernel_taint" in python(copy, "-m", "nodetriage.agent.cli.main", "check", "--root", "tests/hosts/cpu-only")
    assert len(changed(copy)) <= 10, changed(copy)
    assert not [name for name in changed(copy) if name.endswith("expected.json")]


def test_a_golden_that_is_wrong_about_the_new_check_fails_in_the_copy(copy: Path) -> None:
    """The copy's own code runs there: the installed code knows nothing of the new check."""
    python(copy, *MACHINES, "--update-golden")
    table = copy / "tests/hosts/skipped.json"
    right = table.read_text()
    assert '"kernel_taint": {"no /proc/sys/kernel/tainted": ["cpu-only"' in right
    table.write_text(right.replace("no /proc/sys/kernel/tainted", "not what it says"))

    wrong = run(copy, *MACHINES)

    assert "test_a_recorded_machine_gives_what_is_expected_of_it[cpu-only]" in wrong.stdout
    assert wrong.returncode == 1


@pytest.mark.parametrize(
    ("file", "test", "complaint"),
    [
        ("tests/checks/host/test_kernel_taint.py", "tests/checks/test_all_checks.py", "write tests/checks"),
        (
            "tests/hosts/dgx-h100/proc/sys/kernel/tainted",
            "tests/test_hosts.py",
            "record a machine on which kernel_taint",
        ),
    ],
)
def test_a_check_without_its_test_or_without_a_healthy_machine_is_refused(
    copy: Path, file: str, test: str, complaint: str
) -> None:
    (copy / file).unlink()
    python(copy, *TESTS, "tests/test_hosts.py", "-k", "cpu-only", "--update-golden")

    refused = run(copy, *TESTS, test, "-k", "kernel_taint")

    assert complaint in refused.stdout
    assert refused.returncode == 1


def test_the_fault_of_a_new_check_is_in_shadow_until_its_entry_says_trusted(copy: Path) -> None:
    (copy / "enforce.toml").write_text('mode = "enforce"\n')
    policy = ("--policy", "enforce.toml")
    ask = ("-m", "nodetriage.controller", "policy", "explain", "kernel_saw_machine_check", *policy)
    refuses = (
        "from nodetriage.agent.settings.config import HookSettings;"
        "from nodetriage.agent.slurm.hook_authority import is_own_hardware;"
        "print(is_own_hardware('kernel_saw_machine_check', HookSettings()))"
    )

    told = json.loads(python(copy, *ask, "--severity", "critical", "--json"))
    assert told["action"] == "shadow"
    assert "faults.toml does not trust it" in "\n".join(told["steps"])
    assert python(copy, "-c", refuses) == "False\n"

    apply(copy / "checks/nodetriage/checks/model/faults.toml", "toml", "trusted = true\n")
    assert json.loads(python(copy, *ask, "--severity", "critical", "--json"))["action"] == "drain_and_requeue"
    assert python(copy, "-c", refuses) == "True\n"


@pytest.mark.parametrize(
    "forgotten", ["checks/nodetriage/checks/registry.py", "checks/nodetriage/checks/model/faults.toml"]
)
def test_a_forgotten_edit_is_told_by_a_test(copy: Path, forgotten: str) -> None:
    shutil.copy2(ROOT / forgotten, copy / forgotten)

    with pytest.raises(AssertionError, match="kernel_"):
        python(copy, *TESTS, "tests/checks/test_all_checks.py", "-k", "every_module or kernel_taint")
