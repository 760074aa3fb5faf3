"""[checks.reach], and the check that it makes."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from nodetriage.agent.reach import ask
from nodetriage.checks.model import Check, Finding, Host, NotRecorded, Severity

NAME, FAULT = "reach", "reach_failed"
MOST = 16
GRACE_S = 15.0  # for names that nobody resolves


@dataclass(frozen=True, slots=True)
class ReachSettings:
    """[checks.reach]: what must answer over the network, such as an object store or a cache"""

    addresses: tuple[str, ...] = ()  # tcp://HOST:PORT, http://HOST/PATH, https://HOST/PATH; none: not looked at
    severity: Severity = Severity.WARNING  # of one that does not answer
    every_s: float = 300.0
    answer_s: float = 3.0  # how long each may take
    enabled: bool = True
    raise_after: int = 2  # how many runs in a row must find it without an answer
    clear_after: int = 1

    def __post_init__(self) -> None:
        if len(self.addresses) > MOST:
            raise ValueError(f"addresses: expected at most {MOST}, got {len(self.addresses)}")
        for address in self.addresses:
            ask.parsed(address)
        if not 0.1 <= self.answer_s <= 10 or not 10 <= self.every_s <= 86400:
            raise ValueError("expected answer_s of 0.1 to 10 and every_s of 10 to 86400")
        if self.raise_after < 1 or self.clear_after < 1:
            raise ValueError("expected raise_after and clear_after of at least 1")


@dataclass(frozen=True, slots=True)
class Asked:
    """One address, and why it did not answer ("": it did)."""

    address: str
    trouble: str


@dataclass(frozen=True, slots=True)
class NoPolicy:
    """Nothing to set: the table is read before the check is made."""


def check_of(settings: ReachSettings) -> Check[Any, Any]:
    """The check for these settings, in the worker of the site's commands."""

    def read(host: Host) -> tuple[Asked, ...]:
        if getattr(host, "is_tree", False):
            raise NotRecorded("a recording has no network")
        return tuple(Asked(a, ask.trouble(ask.parsed(a), settings.answer_s)) for a in settings.addresses)

    def judge(now: tuple[Asked, ...], before: tuple[Asked, ...] | None, policy: NoPolicy) -> Iterator[Finding]:
        for one in now:
            if one.trouble:
                yield Finding(one.address, FAULT, settings.severity, {"why": one.trouble})

    return Check(
        name=NAME,
        read=read,
        judge=judge,
        policy=NoPolicy(),
        faults=(FAULT,),
        worker="site",
        every_s=settings.every_s,
        timeout_s=len(settings.addresses) * settings.answer_s + GRACE_S,
        raise_after=settings.raise_after,
        clear_after=settings.clear_after,
    )
