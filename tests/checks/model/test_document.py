"""The page about faults, as it is made from the tables."""

from nodetriage.checks.document import page
from nodetriage.checks.model.faults import faults
from nodetriage.checks.readers.nvidia_log import catalogue


def test_the_page_has_every_fault_and_every_xid() -> None:
    text = page()

    assert [code for code in faults() if f"\n### `{code}`\n" not in text] == []
    assert [code for code in catalogue() if f"\n| {code} | " not in text] == []


def test_the_page_says_how_each_kind_of_fault_ends() -> None:
    text = page()

    for words in ("ends when it is gone", "ends at reboot", "ends after 24 h"):
        assert words in text
