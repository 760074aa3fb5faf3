"""Options for gRPC's core: how many connections, how long a silent one stays, how large a message may be."""

from typing import Any

from nodetriage.controller.rpc.peer_limits import AdmissionSettings


def channel_options(limits: AdmissionSettings) -> list[tuple[str, Any]]:
    """Core enforces these before any code of ours runs; docs/identity.md explains them."""
    return [
        ("grpc.so_reuseport", 0),  # with it a second controller would share the port and no error would say so
        ("grpc.max_receive_message_length", core_message_bytes(limits)),
        ("grpc.max_metadata_size", 16 * 1024),
        ("grpc.max_allowed_incoming_connections", limits.max_connections),
        ("grpc.server_handshake_timeout_ms", round(limits.handshake_within_s * 1000)),
        ("grpc.max_connection_idle_ms", round(limits.idle_connection_s * 1000)),
        ("grpc.keepalive_time_ms", 30_000),  # finds peers that are gone without closing
        ("grpc.keepalive_timeout_ms", 10_000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", 5_000),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.http2.max_ping_strikes", 2),  # core closes a peer at its third ping that comes within 5 s
        ("grpc.max_concurrent_streams", 16),  # of one connection
    ]


def core_message_bytes(limits: AdmissionSettings) -> int:
    """More than our own limit: a refusal by core looks like a peer that is gone, and has no reason to log."""
    return max(16 << 20, 2 * limits.max_message_bytes)
