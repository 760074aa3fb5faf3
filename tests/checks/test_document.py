"""docs/faults.md is what the tables say."""

from pathlib import Path

from nodetriage.checks.document import page
from nodetriage.checks.faults import faults
from nodetriage.checks.xid import catalogue

PAGE = Path(__file__).parents[2] / "docs/faults.md"


def test_the_page_of_faults_is_up_to_date() -> None:
    assert PAGE.read_text() == page(), "run: python -m nodetriage.checks.document > docs/faults.md"


def test_the_page_has_every_fault_and_every_xid() -> None:
    text = page()

    assert [code for code in faults() if f"\n### `{code}`\n" not in text] == []
    assert [code for code in catalogue() if f"\n| {code} | " not in text] == []
