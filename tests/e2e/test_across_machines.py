"""The real programs in two network namespaces, as on two machines: munge and TLS between them, plaintext never."""

import datetime
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from munged import Munged
from programs import NODETRIAGE, NODETRIAGECTL, Program
from secure import Site
from slurm_cluster import wait_until

from nodetriage.controller.certificate import Role

CONTROLLER, NODE = "10.213.77.1", "10.213.77.2"
HOSTS = f"127.0.0.1 localhost\n{CONTROLLER} ctl\n{NODE} n1\n10.213.77.3 n2\n"


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


class Machines:
    """Two namespaces with a wire between them. Both know the names ctl, n1 and n2."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.controller, self.node = (f"nodetriage-{side}-{os.getpid()}" for side in ("c", "n"))
        self._programs: list[Program] = []
        (folder / "hosts").write_text(HOSTS)
        for name in (self.controller, self.node):
            ip("netns", "add", name)
        wire = ("c0", "netns", self.controller, "type", "veth", "peer", "name", "n0", "netns", self.node)
        ip("link", "add", *wire)
        for name, device, address in ((self.controller, "c0", CONTROLLER), (self.node, "n0", NODE)):
            ip("-n", name, "address", "add", f"{address}/24", "dev", device)
            for link in ("lo", device):
                ip("-n", name, "link", "set", link, "up")

    def start(self, machine: str, name: str, *argv: str, settings: str) -> Program:
        """With a host file of the two machines' own; `argv` and `--config` with `settings`."""
        config = self.folder / f"{name}.toml"
        config.write_text(settings)
        # "ip netns exec" gives the program a mount namespace of its own, too.
        script = f'mount --bind {self.folder}/hosts /etc/hosts && exec "$@"'
        enter = ("ip", "netns", "exec", machine, "sh", "-c", script, "sh")
        program = Program(self.folder / f"{name}.log", *enter, *argv, "--config", str(config))
        self._programs.append(program)
        return program

    def start_controller(self, identity: str, listen: str = f"{CONTROLLER}:7443", limits: str = "") -> Program:
        own = f'[controller]\nlisten = "{listen}"\nstate_dir = "{self.folder}/c"\n[scheduler]\nkind = "none"\n'
        return self.start(self.controller, "ctl", NODETRIAGECTL, "controller", settings=own + limits + identity)

    def start_agent(self, name: str, node: str, identity: str) -> Program:
        folder = self.folder / name
        own = f'[agent]\nnode = "{node}"\nstate_dir = "{folder}"\nrun_dir = "{folder}"\n'
        own += f'[controller]\naddresses = ["ctl:7443"]\n[kernel_log]\npath = "{self.folder}/no-log"\n'
        return self.start(self.node, name, NODETRIAGE, "agent", settings=own + identity)

    def close(self) -> None:
        for program in self._programs:
            if program.status is None:
                program.kill()
            print(f"--- {program.log.name}:\n{program.said()[-3000:]}")  # seen if the test failed
        for name in (self.controller, self.node):
            subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True)


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("network namespaces need root and Debian's package iproute2")
    made = Machines(tmp_path)
    try:
        yield made
    finally:
        made.close()


def says(program: Program, text: str) -> None:
    wait_until(lambda: text in program.said() or program.status is not None, 30, f"{program.log.name} says {text!r}")
    assert text in program.said()


def by_munge(munged: Munged) -> str:
    return f'[identity]\nkind = "munge"\nmunge_socket = "{munged.socket}"\n'


def by_tls(site: Site, node: str) -> str:
    certificate, key = site.pair(Role.NODE, node)
    ca = site.folder / "ca.crt"
    return f'[identity]\nkind = "tls"\nca = "{ca}"\ncertificate = "{certificate}"\nkey = "{key}"\n'


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
    for program in (machines.start_controller(""), machines.start_agent("plain", "n1", "")):
        assert program.wait() == 78
        assert "plaintext" in program.said()
        assert "[identity] kind to tls (certificates from nodetriagectl pki) or munge" in program.said()
