"""Which events of a boot, as agent and controller tell each other."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SeqRange:
    """Events `first` to `last` of one boot, both included."""

    boot_id: str
    first: int
    last: int
