"""The documentation is complete and true: what is not in it, or not as it says, fails here."""

import os
import re
import subprocess
from pathlib import Path

import kernel_lines
import pytest
import reference
from terminal import on_a_terminal

from nodetriage.checks import document
from nodetriage.checks.model.faults import faults
from nodetriage.checks.registry import ALL

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def page(name: str) -> str:
    return (ROOT / name).read_text()


@pytest.mark.parametrize("path", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_link_within_the_project_leads_somewhere(path: Path) -> None:
    targets = re.findall(r"\]\((?!https?:|#)([^)#]+)[^)]*\)", path.read_text())

    assert [t for t in targets if not (path.parent / t).exists()] == []


def test_the_first_page_shows_what_its_command_prints() -> None:
    assert page("README.md") == reference.first_page(), "run make docs"


def test_the_commands_of_the_first_page_run_as_printed_in_a_fresh_copy(tmp_path: Path) -> None:
    files = subprocess.run(["git", "ls-files", "-zco", "--exclude-standard"], cwd=ROOT, check=True, capture_output=True)
    pack = ["tar", "-c", "--null", "--ignore-failed-read", "--files-from=-"]
    copied = subprocess.run(pack, cwd=ROOT, input=files.stdout, check=True, capture_output=True)
    subprocess.run(["tar", "-x"], cwd=tmp_path, input=copied.stdout, check=True)
    # The stamp tells `make setup` that nothing is left to install; else it would install the copy into our .venv.
    sums = ["sha256sum", "requirements.lock", "pyproject.toml", "scripts/setup.sh"]
    wanted = subprocess.run(sums, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    assert (ROOT / ".venv/nodetriage.stamp").read_text() == wanted, "run make setup"
    (tmp_path / ".venv").symlink_to(ROOT / ".venv")

    screen = page("README.md").partition("\n## ")[0]
    commands = re.findall(r"^    \$ (.*)$", screen, re.MULTILINE)
    assert commands[0] == "make setup"
    assert commands[1].startswith(".venv/bin/nodetriage check ")
    for command in commands:
        shell = ["sh", "-c", f"{command} 2>{tmp_path}/stderr || test $? -ne 127 || echo there is no such command"]
        printed = on_a_terminal(shell, 80, {"PATH": os.environ["PATH"], "NO_COLOR": "1"}, tmp_path)
        assert all(f"    {line}".rstrip() in screen.splitlines() for line in printed.splitlines()), printed


@pytest.mark.parametrize("check", ALL, ids=lambda c: c.name)
def test_every_check_has_its_section_which_names_its_faults(check) -> None:
    section = re.search(rf"^## `?{check.name}`?\n(.*?)(?=^## |\Z)", page("docs/checks.md"), re.MULTILINE | re.DOTALL)

    assert section, f"docs/checks.md has no section {check.name}"
    assert [f for f in check.faults if f not in section[1]] == []


@pytest.mark.parametrize("check", ALL, ids=lambda c: c.name)
def test_every_check_says_where_and_how_often_it_runs(check) -> None:
    line = re.search(rf"^## {check.name}\n\n\*(.*)\*$", page("docs/checks.md"), re.MULTILINE)

    assert line, f"docs/checks.md does not begin the section {check.name} with worker and period"
    assert line[1].startswith(f"worker `{check.worker}` · every {check.every_s:g} s")
    assert ("at once" in line[1]) == bool(check.kernel_pattern or check.kernel_wakes or check.wakes_on)
    assert ("two runs must agree" in line[1]) == (check.raise_after == 2)
    assert "in the prolog" in line[1] or not check.in_prolog


def test_the_page_about_coverage_names_each_check_once_with_the_gravest_of_its_faults() -> None:
    cells = [line.split("|") for line in table_of("docs/coverage.md")]
    rows = [(*re.findall(r"`(\w+)`", cell[3]), cell[4].strip()) for cell in cells]
    named = [name for row in rows for name in row[:-1] if name != "reach"]
    assert sorted(named) == sorted(check.name for check in ALL)
    usual = {check.name: [faults()[f].severity for f in check.faults if f in faults()] for check in ALL}
    for *names, gravest in rows:
        worst = [severity for name in names for severity in usual.get(name, ())]
        assert gravest == (max(worst).name.lower() if worst else "as set"), names


def table_of(path: str) -> list[str]:
    """The rows of a page's only table, without its head."""
    return [line for line in page(path).splitlines() if line.startswith("| ")][1:]


def test_the_page_of_kernel_lines_is_what_the_tables_say() -> None:
    assert page("docs/kernel-lines.md") == kernel_lines.page(), "run make docs"


def test_every_fault_is_described() -> None:
    text = page("docs/faults.md")

    assert [code for code in faults() if f"`{code}`" not in text] == []


def test_the_pages_about_settings_and_faults_are_what_the_code_says() -> None:
    assert page("docs/settings.md") == reference.settings_page(), "run make docs"
    assert page("docs/faults.md") == document.page(), "run make docs"


@pytest.mark.parametrize("program", ["nodetriage", "nodetriagectl"])
def test_every_verb_and_option_is_in_the_page_about_commands(program: str) -> None:
    text = page("docs/commands.md")

    for verb in reference.verbs(program):
        name = " ".join(verb)
        section = re.search(rf"^### `{name}`\n(.*?)(?=^##|\Z)", text, re.MULTILINE | re.DOTALL)
        assert section, f"docs/commands.md has no section {name}: run make docs"
        options = set(re.findall(r"--[a-z][a-z-]+", reference.help_of(*verb)))
        assert [o for o in options if o not in section[1]] == []


def test_each_decision_has_a_number_of_its_own_and_its_title_says_it() -> None:
    decisions = sorted((ROOT / "docs/decisions").glob("*.md"))
    numbers = [int(page.name[:4]) for page in decisions]

    assert len(numbers) == len(set(numbers))
    assert [int(page.read_text().split(".")[0].lstrip("# ")) for page in decisions] == numbers


def test_each_line_of_the_threat_model_names_a_test_that_exists() -> None:
    section = page("docs/operate.md").split("## Threat model\n")[1].split("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ")][1:]
    tests = [re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", row) for row in rows]

    assert len(rows) >= 28
    assert [row for row, named in zip(rows, tests, strict=True) if not named] == []
    missing = [(f, n) for named in tests for f, n in named if not re.search(rf"def {n}\(", page(f))]
    assert missing == []
