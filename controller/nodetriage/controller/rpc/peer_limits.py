"""How much of everything a peer may ask for."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AdmissionSettings:
    """Limits that keep one peer from harming the others. A node above its rate is slowed down, not refused."""

    max_agents: int = 20_000  # connected at once
    max_watchers: int = 100  # of the event stream, at once
    max_connections: int = 25_000  # at once, with those that have not shown yet who they are
    max_streams_per_host: int = 64  # at once, from one address; this machine itself has no such limit
    streams_per_min_per_host: int = 120  # tried, served or not; the same
    max_message_bytes: int = 1024 * 1024
    max_events_per_batch: int = 1_000
    events_per_s_per_node: float = 1_000.0  # sustained; above it the node is slowed down
    burst_events_per_node: int = 5_000  # beyond the rate, before that
    handshake_within_s: float = 20.0  # TLS and HTTP/2, of connecting; many nodes may come back at once
    hello_within_s: float = 10.0  # of opening the stream
    idle_connection_s: float = 60.0  # without any stream, before it is closed

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if getattr(self, name) <= 0:
                raise ValueError(f"{name}: expected more than 0, got {getattr(self, name)}")
