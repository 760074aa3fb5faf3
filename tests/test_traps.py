"""docs/traps.md: every test that it names exists, and no known trap is left out."""

import ast
import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
PAGE = TESTS.parent / "docs/traps.md"
ROWS = re.findall(r"^\| (\d+) \| ([PNH]) \| (.+?) \| `(.+?)::(test_\w+)` \|$", PAGE.read_text(), re.MULTILINE)


@pytest.mark.parametrize(("file", "test"), sorted({(file, test) for *_, file, test in ROWS}))
def test_a_test_that_the_page_names_exists(file: str, test: str) -> None:
    tree = ast.parse((TESTS / file).read_text())

    assert test in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_every_row_of_the_page_is_understood() -> None:
    rows = [line for line in PAGE.read_text().splitlines() if re.match(r"\| \d", line)]

    assert len(rows) == len(ROWS)


def test_no_trap_of_gpus_fabric_storage_and_host_is_left_out() -> None:
    told = {int(number) for number, *_ in ROWS} | {4, 29, 32}  # those do not come up, and the page says why

    assert set(range(1, 56)) <= told
