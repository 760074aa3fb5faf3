"""One agent's stream: the messages to it, and the commands that wait for its answer."""

import asyncio
from typing import Any

import grpc

from nodetriage.controller.refused import Refused
from nodetriage.v1 import health_pb2

_THE_WORD = health_pb2.ControllerMessage()  # stands in the outbox for the newest word to the hooks


class Session:
    """The state of one stream; the event loop owns it. A node has at most one: a newer stream ends the older."""

    def __init__(self, node: str, boot_id: str, peer: str) -> None:
        self.node, self.boot_id, self.peer = node, boot_id, peer
        self._outbox: asyncio.Queue[health_pb2.ControllerMessage | None] = asyncio.Queue()
        self._word: health_pb2.ControllerMessage | None = None  # to the hooks, on its way out
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._commands: dict[str, asyncio.Future[health_pb2.CommandResult]] = {}

    def send(self, message: health_pb2.ControllerMessage) -> None:
        self._outbox.put_nowait(message)

    def send_word(self, word: health_pb2.ControllerMessage) -> None:
        """The newest word to the node's hooks; one that an agent has not read yet is replaced."""
        if self._word is None:
            self._outbox.put_nowait(_THE_WORD)
        self._word = word

    def end(self, why: Refused) -> None:
        """Makes `ended` raise `why`, and with it the stream."""
        if not self._ended.done():
            self._ended.set_exception(why)

    async def ended(self) -> None:
        """Never returns; raises the reason given to `end`."""
        await self._ended

    async def send_all(self, context: "grpc.aio.ServicerContext[Any, Any]") -> None:
        """Writes the outbox to the stream until `close`. Nothing else writes to the stream."""
        while (message := await self._outbox.get()) is not None:
            if message is _THE_WORD and self._word is not None:
                message, self._word = self._word, None
            await context.write(message)

    async def command(self, command: health_pb2.Command, timeout_s: float) -> health_pb2.CommandResult:
        """Sends a command and waits for its result. Raises TimeoutError, or Refused where the stream ends first."""
        answer: asyncio.Future[health_pb2.CommandResult] = asyncio.get_running_loop().create_future()
        self._commands[command.id] = answer
        self.send(health_pb2.ControllerMessage(command=command))
        try:
            async with asyncio.timeout(timeout_s):
                return await answer
        finally:
            del self._commands[command.id]

    def answered(self, result: health_pb2.CommandResult) -> None:
        """Drops a result that no caller waits for: the events show what the command did."""
        if (answer := self._commands.get(result.id)) and not answer.done():
            answer.set_result(result)

    def close(self) -> None:
        """Call it once, when the stream is no longer read. `send_all` still writes what the outbox holds."""
        self._outbox.put_nowait(None)
        if not self._ended.cancel() and not self._ended.cancelled():
            self._ended.exception()  # retrieves it, so that asyncio logs nothing
        for answer in self._commands.values():
            if not answer.done():
                answer.set_exception(Refused(grpc.StatusCode.UNAVAILABLE, f"{self.node}: its stream ended"))
