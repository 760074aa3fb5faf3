"""What ipmitool(1) prints about the sensors of the BMC (IPMI 2.0, chapters 32 and 42), as values.

A BMC gets one question at a time, and gets it again when it answers that it is busy.
"""

import re
from collections import Counter
from dataclasses import dataclass, replace

from nodetriage.checks.model import Host, Unavailable

BMC = "bmc"  # the name of the BMC itself as a component
ASK_TIMEOUT_S = 45.0  # some BMCs need more than 20 s to read all sensor records; a busy one refuses at once
_TRIES = 3
_BUSY = "Node busy"  # completion code 0xc0 (IPMI 2.0, table 5-2): ask again
_NO_BMC = "Could not open device"  # there is no BMC, or no driver for it
# A BMC over the network that does not answer, and one on the board that hangs, starts or takes a new firmware.
_SILENT = ("Unable to establish", "Timeout", "No data available", "Unspecified error", "initialization in progress")
_UPDATING = re.compile(r"firme?ware in update mode")


_READING = re.compile(r"-?\d{1,9}(?:\.\d{1,6})?(?= |$)")
_UNREADABLE = ("No Reading", "Disabled", "Event-Only", "Not Readable", "Not Available", "na")


class Silent(Exception):
    """The BMC gave no answer; the text has the question."""


@dataclass(frozen=True, slots=True)
class Sensor:
    """A line of `ipmitool sdr type`. `status` is ok, ns (no reading), nc, cr or nr, or these with a side (lcr, unc)."""

    name: str  # with the entity behind it where several sensors have the same name, as on Dell's ("Status 10.2")
    status: str
    entity: str  # its id and instance, such as 10.1 for the first power supply
    text: str  # a reading with its unit, or the asserted states of a discrete sensor; HPE prints both
    number: str = ""

    @property
    def states(self) -> tuple[str, ...]:
        """The asserted states, without a reading."""
        parts = (state.strip() for state in self.text.split(","))
        return tuple(part for part in parts if part and not _READING.match(part))

    @property
    def value(self) -> float | None:
        """The reading; None where there is none."""
        found = _READING.match(self.text)
        return float(found[0]) if found else None

    @property
    def readable(self) -> bool:
        """Whether the BMC reads it. One that it does not read is not healthy, and not absent, but unknown."""
        return self.status != "ns" and self.text not in _UNREADABLE

    @property
    def read(self) -> bool:
        """Whether it has a reading or asserts a state."""
        return self.readable and self.text != ""


def ask(host: Host, *arguments: str) -> str:
    """What `ipmitool ARGUMENTS` prints.

    Raises Unavailable where there is no ipmitool or no BMC to be found, Silent where the BMC does not answer,
    ValueError where it refuses.
    """
    question = " ".join(arguments)
    for _ in range(_TRIES):
        try:
            program = host.run(("ipmitool", *arguments), ASK_TIMEOUT_S)
        except TimeoutError as error:
            raise Silent(f"ipmitool {question}: {error}") from error
        if _BUSY not in program.stderr:
            break
    if program.status == 0 or (program.stdout.strip() and _BUSY not in program.stderr):
        return program.stdout
    said = program.stderr.strip().splitlines() or ["no message"]
    if absent := next((line for line in said if _NO_BMC in line), ""):
        raise Unavailable(f"no BMC: {absent[:200]}")
    if any(words in line for line in said for words in _SILENT) or _UPDATING.search(program.stderr):
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
        found.append(Sensor(fields[0], fields[2], fields[3], fields[4], fields[1]))
    return _told_apart(found)


def _told_apart(found: list[Sensor]) -> tuple[Sensor, ...]:
    """A name that several sensors have gets the entity; where that is the same too, the sensor's number."""
    names = Counter(s.name for s in found)
    places = Counter((s.name, s.entity) for s in found)
    return tuple(
        s
        if names[s.name] == 1
        else replace(s, name=f"{s.name} {s.entity if places[s.name, s.entity] == 1 else s.number}")
        for s in found
    )
