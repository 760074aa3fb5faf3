"""The section [retention]: how long the history is kept."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RetentionSettings:
    """[retention]. What is older is deleted, a little at a time; 0 keeps everything."""

    keep_days: float = 400.0  # events, actions that are done, and the jobs that were on a node: a year of reports
    keep_inputs_days: float = 90.0  # what a replay of the policy reads
    every_s: float = 3600.0  # how often the controller looks for what is too old

    def __post_init__(self) -> None:
        for name in ("keep_days", "keep_inputs_days"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name}: expected 0 (everything is kept) or more, got {getattr(self, name):g}")
        if self.every_s <= 0:
            raise ValueError(f"every_s: expected more than 0, got {self.every_s:g}")
