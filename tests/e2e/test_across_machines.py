"""The real programs in two network namespaces, as on two machines: munge and TLS between them, plaintext never."""

import datetime
from collections.abc import Iterator
from pathlib import Path

import pytest
from machines import CONTROLLER, NODE, Machines, by_tls, missing, says
from munged import Munged
from secure import Site

from nodetriage.controller.auth.certificate import Role


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    if reason := missing():
        pytest.skip(reason)
    made = Machines(tmp_path)
    try:
        yield made
    finally:
        made.close()


def by_munge(munged: Munged) -> str:
    return f'[identity]\nkind = "munge"\nmunge_socket = "{munged.socket}"\n'


def test_munge_lets_a_node_in_from_its_own_address_alone(machines: Machines) -> None:
    ours = Munged(origin=CONTROLLER)
    its, stranger = Munged(key=ours.key, origin=NODE), Munged(origin=NODE)
    try:
        controller = machines.start_controller(by_munge(ours))
        says(controller, '"listening"')
        good = machines.start_agent("good", "n1", by_munge(its))
        says(good, '"controller connected"')
        machines.start_agent("liar", "n2", by_munge(its))
        says(controller, f"n2 called from {NODE}, but it is 10.213.77.3")
        unknown = machines.start_agent("unknown", "n1", by_munge(stranger))
        says(controller, "munge: invalid credential")
        says(unknown, "UNAUTHENTICATED: munge: invalid credential")
        assert good.status is None
        assert "agent disconnected" not in controller.said()
        for program in (controller, good, unknown):
            assert "MUNGE:" not in program.said()
    finally:
        for munged in (ours, its, stranger):
            munged.close()


def test_tls_lets_a_node_in_under_its_own_name_and_a_host_has_a_limit(machines: Machines) -> None:
    site = Site(machines.folder / "pki")
    site.pki.issue(Role.CONTROLLER, "ctl", ("ctl",), 30, datetime.datetime.now(datetime.UTC), force=True)
    limits = "[admission]\nmax_streams_per_host = 1\n"
    controller = machines.start_controller(site.toml, limits=limits)
    says(controller, '"listening"')
    liar = machines.start_agent("liar", "n1", by_tls(site, "n2"))
    says(liar, "PERMISSION_DENIED: node n2 (by certificate) may not speak for node 'n1'")
    liar.stop()
    good = machines.start_agent("good", "n1", by_tls(site, "n1"))
    says(good, '"controller connected"')
    machines.start_agent("stranger", "n1", by_tls(Site(machines.folder / "other"), "n1").replace("other/ca", "pki/ca"))
    says(controller, "CERTIFICATE_VERIFY_FAILED")
    machines.start_agent("second", "n2", by_tls(site, "n2"))
    says(controller, f"{NODE} has 1 streams already")
    assert "agent disconnected" not in controller.said()


def test_plaintext_does_not_leave_the_machine_and_both_sides_say_what_to_set(machines: Machines) -> None:
    controller, agent = machines.start_controller(""), machines.start_agent("plain", "n1", "")
    assert controller.wait() == 78
    says(agent, "the controller's settings cannot be used; the agent works alone")
    for program in (controller, agent):
        assert "plaintext" in program.said()
        assert "[identity] kind to tls (certificates from nodetriagectl pki) or munge" in program.said()
    assert agent.status is None
