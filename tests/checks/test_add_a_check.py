"""docs/add-a-check.md, followed word by word in a copy of the project."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

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
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    for name in subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines():
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
    return copy_of_the_project(tmp_path / "project")


def python(copy: Path, *arguments: str) -> str:
    roots = (str(copy / component) for component in ("agent", "analysis", "checks", "controller", "proto"))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(roots), "PYTHONPYCACHEPREFIX": str(copy / ".pyc")}
    ran = subprocess.run(
        [sys.executable, *arguments], cwd=copy, capture_output=True, text=True, env=environment, timeout=100
    )
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-3000:]
    return ran.stdout


def test_five_edits_make_a_check_that_passes_the_project_s_own_tests(copy: Path) -> None:
    edits = steps()
    assert len(edits) == 5
    for name, blocks in edits.items():
        for language, text in blocks:
            apply(copy / name, language, text)

    (copy / "docs/faults.md").write_text(python(copy, "-m", "nodetriage.checks.document"))
    python(copy, "-m", "ruff", "check", "checks", "tests/checks/host/test_kernel_taint.py")
    python(copy, "-m", "ruff", "format", "--check", "checks", "tests/checks/host/test_kernel_taint.py")
    pytest_ = ("-m", "pytest", "-q", "-p", "no:cacheprovider")
    machines = ("tests/test_hosts.py", "-k", "cpu-only or xid79")  # two of them: the others say the same of the page
    python(copy, *pytest_, *machines, "--update-golden")
    python(copy, *pytest_, *machines)
    python(copy, *pytest_, "tests/checks/test_all_checks.py", "tests/checks/host/test_kernel_taint.py")
    python(copy, *pytest_, "tests/test_docs.py", "-k", "every_check_has_its_section or every_fault_is_described")
    assert "kernel_taint" in python(copy, "-m", "nodetriage.agent.cli.main", "check", "--root", "tests/hosts/cpu-only")


def test_the_fault_of_a_new_check_is_in_shadow_until_its_entry_says_trusted(copy: Path) -> None:
    for name, blocks in steps().items():
        for language, text in blocks:
            apply(copy / name, language, text)
    ask = ("-m", "nodetriage.controller", "policy", "explain", "kernel_saw_machine_check")
    program = "from nodetriage.checks.model.faults import is_trusted; print(is_trusted('kernel_saw_machine_check'))"

    told = json.loads(python(copy, *ask, "--severity", "critical", "--json"))
    assert told["action"] == "shadow"
    assert "faults.toml does not trust it" in "\n".join(told["steps"])
    assert python(copy, "-c", program) == "False\n"

    apply(copy / "checks/nodetriage/checks/model/faults.toml", "toml", "trusted = true\n")
    assert json.loads(python(copy, *ask, "--severity", "critical", "--json"))["action"] == "drain_and_requeue"
    assert python(copy, "-c", program) == "True\n"


@pytest.mark.parametrize(
    "forgotten", ["checks/nodetriage/checks/registry.py", "checks/nodetriage/checks/model/faults.toml"]
)
def test_a_forgotten_edit_is_told_by_a_test(copy: Path, forgotten: str) -> None:
    for name, blocks in steps().items():
        for language, text in blocks if name != forgotten else ():
            apply(copy / name, language, text)

    with pytest.raises(AssertionError, match="kernel_"):
        python(copy, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/checks/test_all_checks.py")
