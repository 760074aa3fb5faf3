"""Cables that lose bits or run hot, as the adapters of NVIDIA say.

Asks mlxlink for the module and the bit error rates of each port that is up, rarely and only while no job runs: the
firmware answers, which also moves the jobs' data.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from nodetriage.checks.model import Check, Finding, Host, Scalar, Severity, Unavailable
from nodetriage.checks.readers.ib_port import hcas
from nodetriage.checks.readers.sysfs import error_line, optional_text
from nodetriage.checks.readers.tools.mlxlink import Cable, ask

_PATIENCE = 2  # adapters that may time out before the others are no longer asked
# Control groups that slurmd makes for a job (cgroup.conf(5)), in version 2 and 1.
_JOBS = ("/sys/fs/cgroup/system.slice/*slurmstepd.scope/job_*", "/sys/fs/cgroup/*/slurm*/uid_*/job_*")


@dataclass(frozen=True, slots=True)
class Policy:
    """Bit error rates and temperatures from which a cable is worth a look."""

    effective_ber: float = 1e-12  # after error correction
    raw_ber: float = 1e-5  # before it
    hot_c: float = 80.0  # where the module does not say its own limit
    severity: Severity = Severity.WARNING


def read(host: Host) -> tuple[Cable, ...]:
    """Raises Unavailable without such adapters or mlxlink, and while a job runs."""
    adapters = [hca for hca in hcas(host) if hca.name.startswith("mlx5") or _is_mlx5(host, hca.device)]
    known = [hca for hca in adapters if hca.pci]
    if not known:
        raise Unavailable("no adapter of mlx5 in /sys/class/infiniband")
    if any(host.glob(pattern) for pattern in _JOBS):
        raise Unavailable("a job runs: cables are looked at when the node is idle")
    found: list[Cable] = []
    for hca in known:
        late = sum(cable.error.endswith("did not answer in its time") for cable in found)
        found.append(_asked(host, Cable(hca.pci, hca.name)) if late < _PATIENCE else _not_asked(hca.pci, hca.name))
    return tuple(found)


def _is_mlx5(host: Host, device: str) -> bool:
    return "DRIVER=mlx5_core" in optional_text(host, f"{device}/uevent").splitlines()


def _not_asked(pci: str, hca: str) -> Cable:
    return Cable(pci, hca, error="not asked: other adapters did not answer")


def _asked(host: Host, cable: Cable) -> Cable:
    try:
        return ask(host, cable.pci, cable.hca)
    except TimeoutError:
        return replace(cable, error=f"{cable.hca} did not answer in its time")
    except (OSError, ValueError, OverflowError) as error:
        return replace(cable, error=error_line(error, cable.hca))


def judge(now: tuple[Cable, ...], before: tuple[Cable, ...] | None, policy: Policy) -> Iterator[Finding]:
    """Raises Unavailable where no adapter gave an answer. A cable whose link is down is the business of ib_link."""
    if now and all(cable.error for cable in now):
        raise Unavailable(f"mlxlink gives no answer: {now[0].error}")
    for cable in now:
        if cable.error or not cable.state.lower().startswith("active"):
            continue
        facts: dict[str, Scalar] = {
            "hca": cable.hca, "speed": cable.speed, "width": cable.width, "fec": cable.fec, "advice": cable.advice,
        }  # fmt: skip
        rates = {"effective_ber": cable.effective_ber, "raw_ber": cable.raw_ber}
        over = [n for n, rate in rates.items() if rate is not None and rate >= getattr(policy, n)]
        if over:
            told = {name: rate for name, rate in rates.items() if rate is not None}
            yield Finding(cable.pci, "cable_errors", policy.severity, {**facts, **told, "over": " ".join(over)})
        limit_c = cable.temperature_limit_c if cable.temperature_limit_c is not None else policy.hot_c
        if cable.temperature_c is not None and cable.temperature_c >= limit_c:
            heat = {"temperature_c": cable.temperature_c, "limit_c": limit_c}
            yield Finding(cable.pci, "cable_hot", policy.severity, {**facts, **heat})


CHECK = Check(
    name="nic_cables",
    read=read,
    judge=judge,
    policy=Policy(),
    faults=("cable_errors", "cable_hot"),
    worker="bmc",  # a tool of seconds must not hold back ib_link
    every_s=21_600,
    timeout_s=60,
)
