"""The page about faults, as it is made from the tables."""

from nodetriage.checks.document import DIFFERENCES, page
from nodetriage.checks.model.faults import faults
from nodetriage.checks.readers.nvidia_log import catalogue


def test_the_page_has_every_fault_and_every_xid() -> None:
    text = page()

    assert [code for code in faults() if f"\n### `{code}`\n" not in text] == []
    assert [code for code in catalogue() if f"\n| {code} | " not in text] == []


def test_the_page_gives_a_reason_for_each_severity_that_differs_from_the_requirements() -> None:
    assert {words.split()[0] for words, *_ in DIFFERENCES} == {"R18", "R23", "R28", "R30", "R34"}
    for requirement, _, codes, why in DIFFERENCES:
        assert f"| {requirement} | " in page()
        assert codes
        assert why in page()


def test_the_page_says_how_each_kind_of_fault_ends() -> None:
    text = page()

    for words in ("ends when it is gone", "ends at reboot", "ends after 24 h"):
        assert words in text
