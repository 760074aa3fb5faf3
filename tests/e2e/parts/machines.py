"""Two network namespaces as two machines: a controller in one, agents in the other, a wire between them."""

import os
import shutil
import subprocess
from pathlib import Path

from fleet import TRIAL
from programs import NODETRIAGE, NODETRIAGECTL, Program
from secure import Site
from slurm_cluster import wait_until

from nodetriage.controller.auth.certificate import Role

CONTROLLER, NODE = "10.213.77.1", "10.213.77.2"
HOSTS = f"127.0.0.1 localhost\n{{controller}} ctl\n{NODE} n1\n10.213.77.3 n2\n"


def missing() -> str:
    """What keeps namespaces from being made here; empty if nothing does."""
    absent = os.geteuid() != 0 or shutil.which("ip") is None
    return "network namespaces need root and Debian's package iproute2" if absent else ""


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


class Machines:
    """Two namespaces with a wire between them. Both know the names ctl, n1 and n2."""

    def __init__(self, folder: Path, controller_as_seen: str = CONTROLLER) -> None:
        self.folder = folder
        self.controller, self.node = (f"nodetriage-{side}-{os.getpid()}" for side in ("c", "n"))
        self._programs: list[Program] = []
        (folder / "hosts").write_text(HOSTS.format(controller=controller_as_seen))
        for name in (self.controller, self.node):
            ip("netns", "add", name)
        wire = ("c0", "netns", self.controller, "type", "veth", "peer", "name", "n0", "netns", self.node)
        ip("link", "add", *wire)
        for name, device, address in ((self.controller, "c0", CONTROLLER), (self.node, "n0", NODE)):
            ip("-n", name, "address", "add", f"{address}/24", "dev", device)
            for link in ("lo", device):
                ip("-n", name, "link", "set", link, "up")

    def start(self, machine: str, name: str, *argv: str, settings: str) -> Program:
        """`argv` and `--config` with `settings`."""
        config = self.folder / f"{name}.toml"
        config.write_text(settings)
        return self.run(machine, name, *argv, "--config", str(config))

    def run(self, machine: str, name: str, *argv: str) -> Program:
        """With a host file of the two machines' own."""
        # "ip netns exec" gives the program a mount namespace of its own, too.
        script = f'mount --bind {self.folder}/hosts /etc/hosts && exec "$@"'
        enter = ("ip", "netns", "exec", machine, "sh", "-c", script, "sh")
        program = Program(self.folder / f"{name}.log", *enter, *argv)
        self._programs.append(program)
        return program

    def start_controller(self, identity: str, listen: str = f"{CONTROLLER}:7443", limits: str = "") -> Program:
        own = f'[controller]\nlisten = "{listen}"\nstate_dir = "{self.folder}/c"\n[scheduler]\nkind = "none"\n'
        return self.start(self.controller, "ctl", NODETRIAGECTL, "controller", settings=own + limits + identity)

    def start_agent(self, name: str, node: str, identity: str, log: str = "no-log") -> Program:
        folder = self.folder / name
        own = f'[agent]\nnode = "{node}"\nstate_dir = "{folder}"\nrun_dir = "{folder}"\n'
        own += f'[controller]\naddresses = ["ctl:7443"]\n[kernel_log]\npath = "{self.folder}/{log}"\n{TRIAL}'
        return self.start(self.node, name, NODETRIAGE, "agent", settings=own + identity)

    def close(self) -> None:
        for program in self._programs:
            if program.status is None:
                program.kill()
            print(f"--- {program.log.name}:\n{program.said()[-3000:]}")  # seen if the test failed
        for name in (self.controller, self.node):
            subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True)


def says(program: Program, text: str) -> None:
    wait_until(lambda: text in program.said() or program.status is not None, 90, f"{program.log.name} says {text!r}")
    assert text in program.said()


def by_tls(site: Site, node: str) -> str:
    certificate, key = site.pair(Role.NODE, node)
    ca = site.folder / "ca.crt"
    return f'[identity]\nkind = "tls"\nca = "{ca}"\ncertificate = "{certificate}"\nkey = "{key}"\n'
