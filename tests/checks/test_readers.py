"""Readers tell what the machine says; what it is worth is the business of checks and rules."""

import ast
from pathlib import Path

import pytest

from nodetriage.checks import readers

READERS = sorted(path for path in Path(readers.__path__[0]).glob("*.py") if path.name != "__init__.py")
WHAT_JUDGES = {"Check", "Finding", "Outcome", "Severity"}
# The driver's lines are read and explained by one table, whose rows carry a severity.
EXPLAINS = {"nvidia_log": {"Severity"}}


@pytest.mark.parametrize("path", READERS, ids=lambda path: path.stem)
def test_a_reader_judges_nothing(path: Path) -> None:
    names = {node.id for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Name)}

    assert names & WHAT_JUDGES == EXPLAINS.get(path.stem, set())


@pytest.mark.parametrize("path", READERS, ids=lambda path: path.stem)
def test_a_reader_and_each_of_its_public_functions_says_what_it_reads(path: Path) -> None:
    module = ast.parse(path.read_text())
    public = [n for n in module.body if isinstance(n, ast.FunctionDef | ast.ClassDef) and not n.name.startswith("_")]

    assert ast.get_docstring(module)
    assert [node.name for node in public if not ast.get_docstring(node)] == []
    assert public
