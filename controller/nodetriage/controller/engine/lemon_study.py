"""Studies the history for lemons now and then, in a process of its own, and hands what it finds to the policy.

The study is the package nodetriage-analysis. Where that is not installed, removals alone make a lemon.
"""

import asyncio
import importlib.util
import os
import sys
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any

import msgspec
import structlog

from nodetriage.controller.policy.fleet_state import LemonsFound, LemonVerdict
from nodetriage.controller.settings.lemon_study import LemonStudySettings
from nodetriage.controller.slurm import commands

log = structlog.get_logger(__name__)

MODULE = "nodetriage.analysis.lemons.verdicts"
NEEDS = ("nodetriage.analysis", "polars", "scipy")
FIRST_AFTER_S = 600.0  # a controller that starts has more urgent work
QUESTION = "NODETRIAGE_LEMON_STUDY"  # the variable of the environment by which the study is asked
MOST_VERDICTS, MOST_TEXT = 1000, 900


class StudyFailed(Exception):
    """The study gave no verdict; the text says why."""


class Answer(msgspec.Struct, forbid_unknown_fields=True):
    """What the study prints."""

    until: datetime
    lemons: tuple[LemonVerdict, ...]


class LemonStudy:
    """Run `run()` as a task. `database` is the controller's store, which the study only reads."""

    def __init__(
        self,
        settings: LemonStudySettings,
        database: str,
        post: Callable[[LemonsFound], Awaitable[Any]],
        command: tuple[str, ...] = (sys.executable, "-m", MODULE),
    ) -> None:
        self._settings, self._database, self._post, self._command = settings, database, post, command

    async def run(self) -> None:
        """Until cancelled."""
        if self._settings.every_s == 0:
            await asyncio.Event().wait()
        wait_s = min(FIRST_AFTER_S, self._settings.every_s)
        while True:
            await asyncio.sleep(wait_s)
            wait_s = self._settings.every_s
            try:
                await self.once()
            except StudyFailed as error:
                log.warning("history not studied for lemons", why=str(error))

    async def once(self) -> LemonsFound:
        """One study. Raises StudyFailed."""
        if missing := [name for name in NEEDS if importlib.util.find_spec(name) is None]:
            raise StudyFailed(f"{', '.join(missing)} is not installed: the package nodetriage-analysis brings it")
        jobs = str(self._settings.jobs) if self._settings.jobs else ""
        # The database's address may hold a password, and everyone on the machine can read a program's arguments.
        answer = _decoded(await self._ask(msgspec.json.encode({"database": self._database, "jobs": jobs})))
        found = LemonsFound(answer.until, tuple(_bounded(v) for v in answer.lemons[:MOST_VERDICTS]))
        log.info("history studied for lemons", lemons=len(found.verdicts), until=found.until.isoformat())
        await self._post(found)
        return found

    async def _ask(self, question: bytes) -> str:
        passed_on = {name: value for name, value in os.environ.items() if name == "HOME" or name.startswith("PG")}
        environment = {**passed_on, QUESTION: question.decode()}
        try:
            answer = await commands.run(self._command, self._settings.limit_s, environment)
        except (commands.CommandMissing, TimeoutError, OverflowError) as error:
            raise StudyFailed(str(error)) from error
        if answer.status != 0:
            raise StudyFailed(f"exit status {answer.status}: {answer.stderr.strip().rpartition(chr(10))[2][:300]}")
        return answer.stdout


def _decoded(out: str) -> Answer:
    try:
        return msgspec.json.decode(out, type=Answer)
    except msgspec.MsgspecError as error:
        raise StudyFailed(f"its answer makes no sense: {error}") from error


def _bounded(verdict: LemonVerdict) -> LemonVerdict:
    why = "".join(c if c.isprintable() else " " for c in verdict.why)
    return LemonVerdict(verdict.node[:256], verdict.chance, why[:MOST_TEXT])
