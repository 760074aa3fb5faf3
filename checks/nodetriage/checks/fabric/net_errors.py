"""Network adapters that fail, as the kernel logs it: dead firmware, commands without an answer, slots, modules, heat.

Source: the kernel log, by the tables rules/kernel/mlx5.py, rdma.py and nics.py. The part is the adapter, whatever
functions it has: the PCI address of its first function. Links that go up and down are left to ib_link and eth_link.
"""

import contextlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import PurePosixPath

from nodetriage.checks.model import Check, Finding, Host
from nodetriage.checks.readers.pci import ADDRESS, address_of
from nodetriage.checks.rules.kernel import mlx5, nics, rdma
from nodetriage.checks.rules.kernel_log import (
    UNKNOWN_DEVICE,
    Event,
    KernelLogPolicy,
    Log,
    folded,
    judged,
    read_log,
    remembered,
)

RULES = mlx5.RULES + rdma.RULES + nics.RULES
# Adapters print these at each load of their driver, on machines that are well too.
_AT_LOAD = ("mlx5.power", "mlx5.init.wait")
_LOAD_S = 900.0
_NAMED = re.compile(r"[\w.-]{1,60}")


def read(host: Host) -> Log:
    log = read_log(host, RULES, devices=_names)
    return replace(log, events=tuple(folded(_placed(host, e) for e in log.events if not _is_load(e))))


def _is_load(event: Event) -> bool:
    return event.rule in _AT_LOAD and 0 <= event.at_s < _LOAD_S


def _names(host: Host) -> tuple[str, ...] | None:
    """The addresses on the bus, and the names of interfaces and RDMA devices; None where there is no PCI bus to see."""
    addresses = tuple(path.name.lower() for path in host.glob("/sys/bus/pci/devices/*"))
    names = (p.name for kind in ("net", "infiniband") for p in host.glob(f"/sys/class/{kind}/*"))
    return (*addresses, *names) if addresses else None


def _placed(host: Host, event: Event) -> Event:
    """The event on its adapter; the function or interface that the line names becomes a fact."""
    address = event.component
    if not ADDRESS.fullmatch(address) and _NAMED.fullmatch(address):
        folders = (PurePosixPath(f"/sys/class/{kind}/{address}") for kind in ("infiniband", "net"))
        address = next((found for folder in folders if (found := address_of(host, folder))), address)
    adapter = _first_function(host, address) if ADDRESS.fullmatch(address) else address
    return replace(event, component=adapter, facts={**event.facts, "device": event.component})


def _first_function(host: Host, address: str) -> str:
    """The adapter's: a virtual function belongs to the physical one that has it (`physfn`)."""
    with contextlib.suppress(OSError):  # a physical function, or no longer there
        address = host.link(f"/sys/bus/pci/devices/{address}/physfn").name.lower()
    return f"{address[:-1]}0"


def judge(now: Log, before: Log | None, policy: KernelLogPolicy) -> Iterator[Finding]:
    yield from judged(now, before, RULES, policy, _is_here)


def _is_here(component: str, names: Sequence[str]) -> bool:
    """Of an adapter that has lost its first function another still shows that it is here."""
    return component in names or any(name.startswith(component[:-1]) for name in names if ADDRESS.fullmatch(component))


CHECK = Check(
    name="net_errors",
    read=read,
    judge=judge,
    policy=KernelLogPolicy(),
    faults=(*RULES.faults, UNKNOWN_DEVICE),
    next_state=remembered,
    kernel_pattern=RULES,
)
