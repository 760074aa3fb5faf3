"""A real Slurm of several nodes on this machine, all under one folder: munged, slurmctld and a slurmd a node.

Debian's slurmd is built so that several run on one host (`slurmd -N NAME`). Needs root and the packages slurmctld,
slurmd, slurm-client, munge; with `accounting=True` also slurmdbd, slurm-wlm-mysql-plugin, mariadb-server.
"""

import contextlib
import os
import random
import re
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import slurm_accounting
from debian13 import entering
from slurm_processes import kill_job_processes
from slurm_wait import wait_until

__all__ = ["SlurmCluster", "free_ports", "missing", "wait_until"]

HERE = Path(__file__).resolve().parent
LIMIT_S = 90.0  # for what takes a second or two where the machine does nothing else
PROGRAMS = ("munged", "slurmctld", "slurmd", "scontrol", "sbatch", "setpriv")


def missing(accounting: bool = False) -> str:
    """What keeps a cluster, or one with `accounting`, from being started here; empty if nothing does."""
    if os.geteuid() != 0:
        return "a Slurm cluster needs root"
    absent = [p for p in (*PROGRAMS, *(slurm_accounting.PROGRAMS if accounting else ())) if shutil.which(p) is None]
    return f"a Slurm cluster needs {', '.join(absent)}" if absent else ""


class SlurmCluster:
    """Nodes n1..nN in one partition `main`. `env` is what any Slurm command needs to reach it.

    `root`: the tree of debian13.py to run it in; `directory` is then a folder in that tree.
    """

    def __init__(
        self,
        directory: Path,
        nodes: int = 4,
        *,
        cpus: int = 16,
        gpus: int = 8,
        slurmd_timeout_s: int = 30,
        extra_conf: str = "",
        accounting: bool = False,
        topology: str = "",
        root: Path | None = None,
    ) -> None:
        self.directory = directory.resolve()
        self.nodes = tuple(f"n{i}" for i in range(1, nodes + 1))
        self.root = root
        commands = [str(root / "host-bin")] if root else []
        self.env: Mapping[str, str] = {
            **{k: v for k, v in os.environ.items() if not k.startswith(("SLURM_", "SBATCH_"))},
            "PATH": os.pathsep.join([*commands, os.environ.get("PATH", os.defpath)]),
            "SLURM_CONF": str(self.directory / "slurm.conf"),
            "MUNGE_SOCKET": str(self.directory / "munge/socket"),
        }
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}
        for component in ("munge", "state", "log", "run", "dev", *(f"spool/{n}" for n in self.nodes)):
            (self.directory / component).mkdir(parents=True, exist_ok=True)
        self._port = free_ports(nodes + 2)
        if topology:
            (self.directory / "topology.conf").write_text(topology)
            extra_conf += "TopologyPlugin=topology/tree\n"
        self._write_conf(cpus, gpus, slurmd_timeout_s, extra_conf, accounting)
        try:
            self._start(accounting)
        except BaseException:
            self.stop()
            raise

    def run(self, *argv: str, check: bool = True, timeout_s: float = 90) -> str:
        """Standard output of a Slurm command. Raises RuntimeError with its standard error."""
        done = subprocess.run(argv, env=self.env, capture_output=True, text=True, timeout=timeout_s)
        if check and done.returncode:
            raise RuntimeError(f"{' '.join(argv)}: exit {done.returncode}: {done.stderr.strip()}")
        return done.stdout

    def node(self, name: str) -> dict[str, str]:
        """`scontrol show node`, by its own keys (`State`, `Reason`, ...)."""
        return _pairs(self.run("scontrol", "show", "node", "-o", name))

    def flags(self, name: str) -> frozenset[str]:
        """A node's state and flags: {"IDLE", "DRAIN"}; a `*` is given as NOT_RESPONDING."""
        state = self.node(name)["State"]
        words = state.replace("*", "+NOT_RESPONDING").split("+")
        return frozenset(w for w in words if w)

    def job(self, job_id: int) -> dict[str, str]:
        """`scontrol show job`, by its own keys (`JobState`, `NodeList`, `Restarts`, ...)."""
        return _pairs(self.run("scontrol", "show", "job", "-o", str(job_id)))

    def submit(self, *options: str, script: str = "sleep 600") -> int:
        """The id of a new batch job."""
        out = self.run("sbatch", "--parsable", "--output=/dev/null", "--chdir=/", *options, f"--wrap={script}")
        return int(out.split(";")[0])

    def wait_job(self, job_id: int, state: str, timeout_s: float = LIMIT_S) -> dict[str, str]:
        wait_until(lambda: self.job(job_id)["JobState"] == state, timeout_s, f"job {job_id} is {state}")
        return self.job(job_id)

    def wait_flags(self, name: str, *flags: str, timeout_s: float = LIMIT_S) -> None:
        wait_until(lambda: set(flags) <= self.flags(name), timeout_s, f"{name} is {'+'.join(flags)}")

    def start_node(self, name: str, *options: str) -> None:
        """Starts a node's slurmd; the option `-b` makes Slurm believe that the node was rebooted."""
        self.daemon(f"slurmd.{name}", "slurmd", "-D", "-N", name, *options)

    def stop_node(self, name: str) -> None:
        """Ends a node's slurmd. Its jobs go on, as at a package upgrade."""
        _end(self._daemons.pop(f"slurmd.{name}"))

    def crash_node(self, name: str) -> None:
        """Kills a node's slurmd and all of its jobs' processes at once: the node is gone."""
        self._sweep(name)
        slurmd = self._daemons.pop(f"slurmd.{name}")
        slurmd.kill()
        slurmd.wait()

    @contextlib.contextmanager
    def frozen_node(self, name: str) -> Iterator[None]:
        """A node's slurmd answers nobody, as on a machine that hangs. slurmctld gives it up after SlurmdTimeout."""
        slurmd = self._daemons[f"slurmd.{name}"].pid  # of a session of its own
        os.killpg(slurmd, signal.SIGSTOP)
        try:
            yield
        finally:
            os.killpg(slurmd, signal.SIGCONT)

    def stop_controller(self) -> None:
        """slurmctld ends, as at a package upgrade; the nodes and their jobs go on."""
        _end(self._daemons.pop("slurmctld"))

    def start_controller(self) -> None:
        self.daemon("slurmctld", "slurmctld", "-D")
        wait_until(lambda: "n1" in self.run("sinfo", "-h", "-N", check=False), LIMIT_S, "slurmctld answers again")

    def reset(self) -> None:
        """Cancels all jobs and resumes all nodes, so that the next test finds the cluster idle."""
        for name in self.nodes:
            slurmd = self._daemons.get(f"slurmd.{name}")
            if slurmd is None or slurmd.poll() is not None:
                self.start_node(name)
        self.run("scancel", "--user=root", check=False)
        wait_until(lambda: not self.run("squeue", "-h"), LIMIT_S, "all jobs are gone")
        self._drop_reservations()
        wait_until(self._all_idle, LIMIT_S, "all nodes are idle")

    def _all_idle(self) -> bool:
        """Asks again for each that is not: one that only now is seen to be down needs another word."""
        busy = [name for name in self.nodes if self.flags(name) != {"IDLE"}]
        for name in busy:
            self.run("scontrol", "cancel_reboot", name, check=False)
            self.run("scontrol", "update", f"nodename={name}", "state=resume", check=False)
        return not busy

    def _drop_reservations(self) -> None:
        for name in re.findall(
            r"^ReservationName=(\S+)", self.run("scontrol", "show", "reservation", "-o"), re.MULTILINE
        ):
            self.run("scontrol", "delete", f"reservationname={name}")

    def stop(self) -> None:
        """Ends jobs and daemons, whatever state they are in. The folder stays."""
        if "slurmctld" in self._daemons:
            with contextlib.suppress(RuntimeError, OSError, subprocess.TimeoutExpired, TimeoutError):
                self.run("scancel", "--full", "--user=root", timeout_s=3)
                wait_until(lambda: not self.run("squeue", "-h", timeout_s=3), 2, "all jobs are gone")
        for name in reversed(list(self._daemons)):
            _end(self._daemons.pop(name))
        self._sweep(None)

    def _write_conf(self, cpus: int, gpus: int, slurmd_timeout_s: int, extra: str, accounting: bool) -> None:
        host = socket.gethostname().partition(".")[0]
        first, last = self._port + 1, self._port + len(self.nodes)
        values = {
            "DIR": self.directory,
            "HOST": host,
            "NODES": len(self.nodes),
            "CTLD_PORT": self._port,
            "SLURMD_PORTS": f"{first}-{last}",
            "CPUS": cpus,
            "GPUS": gpus,
            "SLURMD_TIMEOUT_S": slurmd_timeout_s,
            "ACCOUNTING": "slurmdbd" if accounting else "none",
        }
        text = (HERE / "slurm.conf.in").read_text()
        text = re.sub(r"@(\w+)@", lambda m: str(values[m[1]]), text)
        if accounting:
            # AccountingStoragePass is the munge socket of that connection: AuthInfo is not used for it.
            text += (
                f"AccountingStorageHost=127.0.0.1\nAccountingStoragePort={last + 1}\n"
                f"AccountingStoragePass={self.directory}/munge/socket\n"
            )
        (self.directory / "slurm.conf").write_text(text + extra.replace("@DIR@", str(self.directory)))
        if self.root:
            # From 23.11 on a cgroup tree is wanted unless told otherwise; 22.05 does not know the word.
            (self.directory / "cgroup.conf").write_text("CgroupPlugin=disabled\n")
        # A gres file must be a character device: links to /dev/null pass.
        for i in range(gpus):
            link = self.directory / f"dev/nvidia{i}"
            if not link.is_symlink():
                link.symlink_to("/dev/null")
        (self.directory / "gres.conf").write_text(
            f"NodeName=n[1-{len(self.nodes)}] Name=gpu Type=h100 File={self.directory}/dev/nvidia[0-{gpus - 1}]\n"
        )

    def _start(self, accounting: bool) -> None:
        munge = self.directory / "munge"
        key = munge / "key"
        key.touch(mode=0o600)
        key.write_bytes(os.urandom(1024))
        options = [f"--key-file={key}", f"--socket={munge}/socket", f"--pid-file={munge}/pid"]
        options += [f"--log-file={munge}/log", f"--seed-file={munge}/seed"]
        # --force: pytest closes its folders to other users, which munged takes amiss.
        self.daemon("munged", "munged", "--force", "--foreground", *options)
        wait_until((munge / "socket").exists, LIMIT_S, "munged listens")
        if accounting:
            slurm_accounting.start_accounting(self, self._port + len(self.nodes) + 1)
        self.daemon("slurmctld", "slurmctld", "-D")
        for name in self.nodes:
            self.start_node(name)
        # -r leaves out nodes that have not answered yet.
        idle = ("sinfo", "-h", "-r", "-N", "-t", "idle", "-o", "%N")
        what = f"all nodes are idle; the logs are in {self.directory}/log"
        wait_until(lambda: set(self.run(*idle, check=False).split()) >= set(self.nodes), LIMIT_S, what)

    def daemon(self, name: str, *argv: str, **environment: str) -> None:
        # If the test runner itself is killed, the kernel ends its daemons.
        inside = entering(self.root) if self.root else []
        with (self.directory / f"log/{name}.out").open("ab") as out:
            self._daemons[name] = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *inside, *argv],
                env={**self.env, **environment},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )

    def _sweep(self, node: str | None) -> None:
        """Kills job processes that outlive their slurmd, till none is left: one may just be starting another."""
        wait_until(lambda: not kill_job_processes(self.directory, node), 60, "the job processes are gone")


def _pairs(line: str) -> dict[str, str]:
    """`Key=value` words of one `scontrol -o` line; a value may hold blanks (Reason), a key may not.

    The first of a name counts: a reason may read "x State=IDLE", and comes after the node's own State.
    """
    found: dict[str, str] = {}
    for match in re.finditer(r"(\S+?)=(.*?)(?=\s+[A-Z][\w:/]*=|$)", line.strip()):
        found.setdefault(match[1], match[2].strip())
    return found


def free_ports(count: int) -> int:
    """The first of `count` neighbouring free ports, below the range that the kernel hands out by itself."""
    while True:
        first = random.randrange(20000, 32000 - count)
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
            for port in range(first, first + count):
                stack.enter_context(socket.socket()).bind(("127.0.0.1", port))
            return first


def _end(daemon: subprocess.Popen[bytes]) -> None:
    daemon.terminate()
    try:
        daemon.wait(10)
    except subprocess.TimeoutExpired:
        daemon.kill()
        daemon.wait()
