"""The section [admission]: what peers may take from the controller."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AdmissionSettings:
    """[admission]. A node above its rate is slowed down, not refused."""

    max_agents: int = 20_000  # agents that are connected at once
    max_watchers: int = 100  # calls of Watch at once
    max_connections: int = 25_000  # at once, those included that have not proved yet who they are
    max_streams_per_host: int = 64  # at once from one address; the controller's own machine has no such limit
    streams_per_min_per_host: int = 120  # attempts from one address, served or not; the same exception
    max_message_bytes: int = 1024 * 1024
    max_events_per_batch: int = 1_000
    events_per_s_per_node: float = 1_000.0  # sustained; the controller reads a faster node more slowly
    burst_events_per_node: int = 5_000  # at once, before the rate counts
    bytes_per_s_per_node: float = 1024.0 * 1024.0  # sustained, all messages together; a faster node is read more slowly
    burst_bytes_per_node: int = 8 * 1024 * 1024  # at once, before the rate counts
    mib_per_day_per_node: float = 64.0  # of events on the disk; over it only major and critical ones are stored
    handshake_within_s: float = 20.0  # after connecting, for TLS and HTTP/2; many nodes may come back at once
    hello_within_s: float = 10.0  # after the stream is opened
    idle_connection_s: float = 60.0  # without a stream, before the controller closes it

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if getattr(self, name) <= 0:
                raise ValueError(f"{name}: expected more than 0, got {getattr(self, name)}")
