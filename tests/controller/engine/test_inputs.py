"""What an event's evidence says that nodes share."""

import pytest

from nodetriage.controller.engine import node_events
from nodetriage.v1 import health_pb2 as pb


def event(**evidence: str | int) -> pb.Event:
    values = {k: pb.Value(text=v) if isinstance(v, str) else pb.Value(whole=v) for k, v in evidence.items()}
    return pb.Event(evidence=values)


@pytest.mark.parametrize(
    ("evidence", "places"),
    [
        ({"source": "fs1:/home", "fstype": "nfs4"}, ("mount source fs1:/home",)),
        ({"switch": "leaf3", "rack": "r7"}, ("switch leaf3", "rack r7")),
        ({"driver": "570.86"}, ("driver 570.86",)),
        ({"cluster": "8d3c", "clique": 32766}, ("cluster 8d3c", "clique 8d3c/32766")),
        ({"clique": 32766}, ()),
        ({"source": "", "driver": 0}, ()),
        ({}, ()),
    ],
)
def test_places_come_from_the_evidence(evidence: dict[str, str | int], places: tuple[str, ...]) -> None:
    assert node_events._places(event(**evidence).evidence) == places


def test_a_long_text_is_cut() -> None:
    (place,) = node_events._places(event(source="x" * 10_000).evidence)
    assert len(place) < 250
