"""What ipmitool(1) prints about sensors and the event log of the BMC (IPMI 2.0, chapters 31, 32 and 42), as values.

A BMC gets one question at a time, and gets it again when it answers that it is busy.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from nodetriage.checks.model import Host, Unavailable

BMC = "bmc"  # the name of the BMC itself as a component
ASK_TIMEOUT_S = 60.0  # a slow BMC takes seconds for each sensor; without an answer ipmitool waits 20 s
_TRIES = 3
_BUSY = "Node busy"  # completion code 0xc0 (IPMI 2.0, table 5-2): ask again
_NO_BMC = "Could not open device"  # there is no BMC, or no driver for it
_NO_SESSION = "Unable to establish"  # a BMC over the network does not answer
_STAMP = "%m/%d/%y %H:%M:%S %Z"

# Records without a date, whose text the operating system wrote (a panic's) or the maker: no sensor and no event.
_UNDATED = ("OEM record", "Linux kernel panic")


class Silent(Exception):
    """The BMC gave no answer; the text has the question."""


@dataclass(frozen=True, slots=True)
class Sensor:
    """A line of `ipmitool sdr type`. `status` is ok, ns (no reading), nc, cr or nr, or these with a side (lcr, unc)."""

    name: str
    status: str
    entity: str  # its id and instance, such as 10.1 for the first power supply
    text: str  # a reading with its unit, or the asserted states of a discrete sensor

    @property
    def states(self) -> tuple[str, ...]:
        return tuple(state.strip() for state in self.text.split(",") if state.strip())

    @property
    def read(self) -> bool:
        """Whether it has a reading. A sensor without one is not healthy, but unknown."""
        return self.status != "ns" and self.text not in ("No Reading", "Disabled", "")


@dataclass(frozen=True, slots=True)
class LogEntry:
    """A line of `ipmitool sel elist`. `at_s` is by the BMC's clock, seconds since 1970; -1 where that was not set."""

    record: int
    at_s: float
    sensor: str  # type and name
    event: str
    asserted: bool


def ask(host: Host, *arguments: str) -> str:
    """What `ipmitool ARGUMENTS` prints.

    Raises Unavailable where there is no ipmitool or no BMC to be found, Silent where the BMC does not answer,
    ValueError where it refuses.
    """
    question = " ".join(arguments)
    for _ in range(_TRIES):
        try:
            program = host.run(("ipmitool", *arguments), ASK_TIMEOUT_S / _TRIES)
        except TimeoutError as error:
            raise Silent(f"ipmitool {question}: {error}") from error
        if _BUSY not in program.stderr:
            break
    if program.status == 0 or (program.stdout.strip() and _BUSY not in program.stderr):
        return program.stdout
    said = program.stderr.strip().splitlines() or ["no message"]
    if _NO_BMC in said[0]:
        raise Unavailable(f"no BMC: {said[0][:200]}")
    if any(_NO_SESSION in line for line in said):
        raise Silent(f"ipmitool {question}: {said[-1][:200]}")
    raise ValueError(f"ipmitool {question}: status {program.status}: {said[-1][:200]}")


def sensors(text: str) -> tuple[Sensor, ...]:
    """The lines of `ipmitool sdr type TYPE`. Raises ValueError for a line of another form."""
    found = []
    for line in text.splitlines():
        fields = [field.strip() for field in line.split("|", 4)]
        if not line.strip():
            continue
        if len(fields) != 5 or not fields[0]:
            raise ValueError(f"ipmitool sdr: expected NAME | ID | STATUS | ENTITY | READING, got {line[:80]!r}")
        found.append(Sensor(fields[0], fields[2], fields[3], fields[4]))
    return tuple(found)


def log_entries(text: str) -> tuple[LogEntry, ...]:
    """The lines of `ipmitool sel elist`, oldest first. Raises ValueError for a line of another form."""
    found = []
    for line in text.splitlines():
        fields = [field.strip() for field in line.split("|")]
        if not line.strip() or line.startswith("SEL has no entries"):
            continue
        try:
            record = int(fields[0], 16)
            if fields[1].startswith(_UNDATED):
                found.append(LogEntry(record, -1.0, fields[1], "", asserted=True))
                continue
            sensor, event = fields[3], fields[4]
        except (IndexError, ValueError):
            raise ValueError(f"ipmitool sel: expected ID | DATE | TIME | SENSOR | EVENT, got {line[:80]!r}") from None
        found.append(LogEntry(record, stamp(fields[1:3]), sensor, event, "Deasserted" not in fields[5:]))
    return tuple(found)


def stamp(words: Iterable[str]) -> float:
    """A date and a time of the BMC's clock as seconds since 1970; -1 where they are none, such as "Pre-Init"."""
    text = " ".join(words).strip()
    for known in (text, f"{text} UTC"):
        try:
            return datetime.strptime(known, _STAMP).replace(tzinfo=UTC).timestamp()
        except ValueError:
            continue
    return -1.0
