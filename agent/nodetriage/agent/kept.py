"""What an earlier run of the agent left in the spool: verdict, memories of checks, position in the kernel log."""

from pathlib import Path
from typing import Any

import msgspec
import structlog

from nodetriage.agent.core import verdict
from nodetriage.agent.core.record_queue import Position, RecordQueue
from nodetriage.agent.core.verdict import Verdict
from nodetriage.agent.delivery.spool import Spool
from nodetriage.agent.settings.config import AgentSettings, KernelLogSettings
from nodetriage.agent.slurm.hook_authority import Authority, Refusals
from nodetriage.agent.slurm.hooks import HookMemory, Jobs


class Kept:
    """Reads it. What belongs to another boot is not used; what this version cannot read is logged and not used."""

    def __init__(self, spool: Spool, boot_id: str) -> None:
        self._spool = spool
        self._boot_id = boot_id

    def verdict(self) -> Verdict:
        return verdict.resumed(self._value("verdict", Verdict), self._boot_id)

    def memories(self) -> dict[str, bytes]:
        """By check, in JSON."""
        if self._value("memories_boot_id", str) != self._boot_id:
            return {}
        return self._spool.kept_under("memory:")

    def hooks(self) -> HookMemory:
        return HookMemory(
            self._value("jobs", Jobs), self._value("hook_refusals", Refusals), self._value("hook_authority", Authority)
        )

    def record_queue(self, settings: AgentSettings) -> RecordQueue | None:
        """None where the agent looks at a recorded machine: that has no log to follow, unless the settings name one."""
        if settings.agent.root != Path("/") and settings.kernel_log.path == KernelLogSettings().path:
            return None
        position = self._value("kernel_log", Position)
        if position is None or position.boot_id != self._boot_id:
            position = Position(self._boot_id)
        return RecordQueue(settings.enabled, position)

    def _value(self, key: str, kind: type[Any]) -> Any:
        if (raw := self._spool.kept(key)) is None:
            return None
        try:
            return msgspec.json.decode(raw, type=kind)
        except msgspec.MsgspecError as error:
            structlog.get_logger().warning("kept state is not readable; starting without it", key=key, why=str(error))
            return None
