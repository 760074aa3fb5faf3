"""The section [metrics]: apart from metrics.py, which loads Prometheus's client."""

from dataclasses import dataclass

from nodetriage.service.address import is_local


@dataclass(frozen=True, slots=True)
class MetricsSettings:
    """[metrics]"""

    listen: str = ""  # HOST:PORT on this machine that Prometheus scrapes, as 127.0.0.1:7444; empty: no metrics

    def __post_init__(self) -> None:
        if self.listen and not (is_local(self.listen) and self.listen.rpartition(":")[2].isdecimal()):
            raise ValueError(f"listen: expected a port of this machine, as 127.0.0.1:7444, got {self.listen!r}")
