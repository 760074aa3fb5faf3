"""A cluster as sites have it: machines n1 to nN with munge and slurmd each, slurmctld on n1; a network of their own."""

from collections.abc import Sequence
from pathlib import Path

from kernel_log import KernelLog
from machine import Machine, Network
from slurm_cluster import wait_until

START_LIMIT_S = 120.0
KERNEL_LOG = "/dev/kernel-log"  # not /dev/kmsg: journald would read the lines away from the agent
_SLURM_CONF = """\
ClusterName=lab
SlurmctldHost=n1
SlurmUser=slurm
AuthType=auth/munge
AuthInfo=cred_expire=5
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
StateSaveLocation=/var/lib/slurm/slurmctld
SlurmdSpoolDir=/var/lib/slurm/slurmd
SlurmdParameters=config_overrides
MessageTimeout=5
Prolog=/etc/slurm/prolog.d/*
Epilog=/etc/slurm/epilog.d/*
PrologFlags=Alloc
NodeName=n[1-{nodes}] CPUs=2 RealMemory=1000 State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES State=UP
"""


class Lab:
    """`machines` by name; `kernel_logs` are what each has at KERNEL_LOG, so that a fault of one is not one of all."""

    def __init__(self, tree: Path, folder: Path, nodes: int = 3) -> None:
        self.network = Network()
        self.machines: dict[str, Machine] = {}
        self.kernel_logs: dict[str, KernelLog] = {}
        hosts = folder / "hosts"
        names = [f"n{i}" for i in range(1, nodes + 1)]
        hosts.write_text("127.0.0.1 localhost\n" + "".join(f"10.99.0.{n[1:]} {n}\n" for n in names))
        try:
            for name in names:
                self._boot(tree, folder, name, hosts)
        except BaseException:
            self.stop()
            raise

    def start_slurm(self) -> None:
        """As an administrator would, once the packages are on the machines."""
        conf = _SLURM_CONF.format(nodes=len(self.machines))
        for name, machine in self.machines.items():
            machine.write("/etc/slurm/slurm.conf", conf)
            own = "slurmctld " if name == "n1" else ""
            machine.run(
                "cp -r /usr/share/nodetriage/slurm/*.d /etc/slurm/ && mkdir -p /var/lib/slurm/slurmctld"
                f" && chown -R slurm: /var/lib/slurm && systemctl start munge {own}slurmd"
            )
        wait_until(lambda: self.states() == dict.fromkeys(self.machines, "idle"), START_LIMIT_S, "all nodes are idle")

    def states(self) -> dict[str, str]:
        """Each node's state, as sinfo names it."""
        lines = self.machines["n1"].attempt("sinfo -h -N -o '%N %T'").stdout.split()
        return dict(zip(lines[::2], lines[1::2], strict=True))

    def stop(self) -> None:
        for machine in self.machines.values():
            machine.stop()
        for kernel_log in self.kernel_logs.values():
            kernel_log.close()
        self.network.stop()

    def _boot(self, tree: Path, folder: Path, name: str, hosts: Path) -> None:
        kernel_log = self.kernel_logs[name] = KernelLog(folder / f"kmsg.{name}")
        options: Sequence[str] = (
            f"--bind={kernel_log.path.resolve()}:{KERNEL_LOG}",
            f"--bind-ro={hosts}:/etc/hosts",
            "--system-call-filter=adjtimex clock_adjtime",
        )
        address = f"10.99.0.{name[1:]}/24"
        self.machines[name] = Machine(tree, folder, name, options, network=self.network, address=address)
