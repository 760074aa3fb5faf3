"""A controller that only listens: it welcomes agents, acknowledges everything, and keeps when each message came."""

import itertools
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc

from nodetriage.v1 import health_pb2 as pb
from nodetriage.v1 import health_pb2_grpc


class Listener(health_pb2_grpc.NodeHealthServicer):
    """`heartbeats` are (monotonic seconds, message); `events` in the order of their coming."""

    def __init__(self, socket: Path) -> None:
        self.address = f"unix:{socket}"
        self.heartbeats: list[tuple[float, pb.Heartbeat]] = []
        self.events: list[pb.Event] = []
        self._server = grpc.server(ThreadPoolExecutor(4))
        health_pb2_grpc.add_NodeHealthServicer_to_server(self, self._server)
        self._server.add_insecure_port(self.address)
        self._server.start()

    def Connect(self, messages: Iterator[pb.AgentMessage], _: grpc.ServicerContext) -> Iterator[pb.ControllerMessage]:
        for message in messages:
            body = message.WhichOneof("body")
            if body == "hello":
                yield pb.ControllerMessage(welcome=pb.Welcome(controller_version="0.1.0"))
            elif body == "heartbeat":
                self.heartbeats.append((time.monotonic(), message.heartbeat))
            elif body == "events":
                self.events.extend(message.events.events)
                ranges = [
                    pb.SeqRange(boot_id=e.boot_id, first_seq=e.seq, last_seq=e.seq) for e in message.events.events
                ]
                yield pb.ControllerMessage(ack=pb.Ack(ranges=ranges))

    def longest_gap_s(self, since_s: float) -> float:
        """Between two heartbeats, or the last one and now."""
        times = [since_s, *(at for at, _ in self.heartbeats if at > since_s), time.monotonic()]
        return max(later - earlier for earlier, later in itertools.pairwise(times))

    def close(self) -> None:
        self._server.stop(0).wait()
