"""[lemons] of controller.toml: how often the history is studied for lemons, and from what."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class LemonStudySettings:
    """[lemons]"""

    every_s: float = 21600.0  # how often the history is studied; 0: never
    limit_s: float = 900.0  # how long one study may take
    jobs: Path | None = None  # the site's job history, kept up to date: sacct -P, sacct --json or Parquet

    def __post_init__(self) -> None:
        if self.every_s < 0 or 0 < self.every_s < 60 or self.limit_s <= 0:
            raise ValueError("expected every_s of 0 or at least 60, and limit_s above 0")
