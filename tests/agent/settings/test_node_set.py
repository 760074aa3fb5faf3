"""Sets of nodes, in Slurm's notation."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodetriage.agent.settings.node_set import matches


@pytest.mark.parametrize(
    ("nodes", "name"),
    [
        ("gpu-1", "gpu-1"),
        ("gpu-[1-64]", "gpu-64"),
        ("gpu-h100-[1-64,70]", "gpu-h100-70"),
        ("a1,gpu[01-12]", "gpu07"),
        ("rack[1-2]-gpu[1-8]", "rack2-gpu8"),
        ("login*", "login-eu-1"),
        ("gpu[1-9]-*", "gpu3-b"),
        ("gpu?", "gpu1"),
        (" a , b ", "b"),
    ],
)
def test_a_name_in_the_set_matches(nodes: str, name: str) -> None:
    assert matches(nodes, name)


@pytest.mark.parametrize(
    ("nodes", "name"),
    [
        ("gpu-1", "gpu-11"),
        ("gpu-[1-64]", "gpu-65"),
        ("gpu-[1-64]", "gpu-064"),
        ("gpu[01-12]", "gpu7"),
        ("gpu[1-9]", "gpu"),
        ("gpu.[1-9]", "gpux1"),
        ("gpu[1-9]", "GPU1"),
        ("rack[1-2]-gpu[1-8]", "rack3-gpu1"),
    ],
)
def test_a_name_outside_the_set_does_not(nodes: str, name: str) -> None:
    assert not matches(nodes, name)


@pytest.mark.parametrize(
    "nodes", ["", "a,", "gpu[1-", "gpu1-3]", "gpu[]", "gpu[a-b]", "gpu[9-1]", "gpu[[1]]", "g[1],,h"]
)
def test_what_is_no_set_is_refused(nodes: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        matches(nodes, "gpu1")


@given(first=st.integers(0, 300), size=st.integers(0, 300), number=st.integers(0, 700))
def test_a_range_holds_just_its_numbers(first: int, size: int, number: int) -> None:
    assert matches(f"n[{first}-{first + size}]", f"n{number}") == (first <= number <= first + size)


@given(st.text(max_size=30), st.text(max_size=10))
def test_any_text_is_a_set_or_is_refused(nodes: str, name: str) -> None:
    with contextlib.suppress(ValueError):
        matches(nodes, name)
