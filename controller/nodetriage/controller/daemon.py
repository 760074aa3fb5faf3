"""The controller as a process: starts, reloads and stops its lock, store, service and reconciler."""

import asyncio
import contextlib
import resource
import signal
import time
from collections.abc import Callable, Coroutine
from math import inf
from pathlib import Path
from time import monotonic
from typing import Any

import structlog
from prometheus_client import CollectorRegistry

from nodetriage.checks.model.settings import ConfigError
from nodetriage.controller import config, metrics
from nodetriage.controller.agent_watch import AgentWatch
from nodetriage.controller.authenticators import new_authenticator
from nodetriage.controller.config import ControllerSettings
from nodetriage.controller.engine import check_reports, pruning
from nodetriage.controller.engine.lemon_study import LemonStudy
from nodetriage.controller.engine.reconciler import Reconciler
from nodetriage.controller.leader import Leadership, leading
from nodetriage.controller.policy.agents import coverage
from nodetriage.controller.rpc.last_seen import LastSeen
from nodetriage.controller.rpc.operator import OperatorListener, OperatorService
from nodetriage.controller.rpc.server import NodeHealthServer, ServerSettings
from nodetriage.controller.settings.rules import Policy
from nodetriage.controller.store import folder_lock
from nodetriage.controller.store.database import open_database
from nodetriage.controller.store.store import StoreError
from nodetriage.service import log
from nodetriage.service.notify import Notify
from nodetriage.service.version import VERSION

_log = structlog.get_logger("controller")

SAVE_SEEN_EVERY_S = 1.0
SAVE_SEEN_ROWS = 500  # at a time
ALIVE_EVERY_S = 5.0
LOG_LIMIT_S = 1.0  # for the last log lines, when the process ends


def run(path: Path) -> int:
    """Runs until SIGTERM or SIGINT. Raises ConfigError for settings, StoreError for the database."""
    settings = config.load(path)
    settings.load_policy()
    settings.load_topology()
    _ = settings.expected_nodes
    _allow_connections()
    lines = log.set_up()
    try:
        with folder_lock.only_one(settings.controller.state_dir):
            return asyncio.run(_lead(path, settings, lambda: lines.drain(LOG_LIMIT_S)))
    finally:
        lines.drain(LOG_LIMIT_S)


async def _lead(path: Path, settings: ControllerSettings, last_words: Callable[[], None]) -> int:
    """Waits while another controller on the same PostgreSQL leads, then runs."""
    async with leading(settings.database_url, Notify(), last_words) as leadership:
        return await Daemon(path, settings, leadership).run()


def _allow_connections() -> None:
    """Raises the limit of open files: each connection is one. The soft limit of 1024 is for users of select(2)."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


class Daemon:
    """Connects the parts; decides nothing."""

    def __init__(self, path: Path, settings: ControllerSettings, leadership: Leadership | None = None) -> None:
        self._path, self._settings = path, settings
        self._notify = Notify()
        self._stop = asyncio.Event()
        self._registry = CollectorRegistry()
        self._store = metrics.MeteredStore(open_database(settings.database_url), metrics.Meters(self._registry))
        self._store.fence = leadership.fence if leadership else None
        self._last_seen = LastSeen(monotonic())
        serving = ServerSettings(
            settings.controller.listen,
            VERSION,
            settings.controller.heartbeat_every_s,
            settings.controller.idle_heartbeat_every_s,
            settings.admission,
            check_reports.known_names(),
        )
        self._server = NodeHealthServer(
            self._store, self._last_seen, serving, new_authenticator(settings), settings.identity.deny
        )
        self._policy = settings.load_policy()
        self._reconciler = Reconciler(
            self._store,
            settings.new_scheduler(leadership.may_act if leadership else None),
            self._policy,
            scan_s=settings.scheduler.scan_every_s,
            places=settings.load_topology(),
        )
        self._reconciler.on_state = self._server.hooks.update
        self._agents = AgentWatch(settings, self._store, self._reconciler, self._server)
        self._lemons = LemonStudy(settings.lemons, settings.database_url, self._reconciler.post)
        orders = OperatorService(self._reconciler, self._server.command, self._store)
        self._operators = OperatorListener(settings.run_dir, orders)
        self._server.operators = OperatorService(
            self._reconciler, self._server.command, self._store, self._server.gate.operator
        )

    async def run(self) -> int:
        """0 after SIGTERM or SIGINT, 1 where a part failed (systemd then restarts the controller)."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        loop.add_signal_handler(signal.SIGHUP, self.reload)
        metrics_stack = contextlib.AsyncExitStack()
        try:
            await self._store.open()
            self._store.on_events(lambda _: self._reconciler.notify())
            self._store.on_urgent = self._reconciler.overtaking.hear
            await self._server.start()
            await self._operators.start()
            await self._serve_metrics(metrics_stack)
            self._log_mode(self._settings, self._policy)
            self._notify.ready(f"listening on {self._settings.controller.listen}")
            return await self._until_stopped(
                self._reconciler.run(),
                self._save_seen(),
                self._agents.run(),
                self._stay_alive(),
                self._server.hooks.renew(),
                self._lemons.run(),
                pruning.prune(self._store, self._settings.retention, lambda: self._reconciler.state),
            )
        finally:
            self._notify.stopping()
            await metrics_stack.aclose()
            await self._operators.stop()
            await self._server.stop()
            with contextlib.suppress(StoreError):
                await self._store.record_seen(self._last_seen.take_unsaved(inf))
            await self._store.close()

    async def _serve_metrics(self, stack: contextlib.AsyncExitStack) -> None:
        if listen := self._settings.metrics.listen:
            await stack.enter_async_context(metrics.serving(self._registry, listen, self._facts))

    async def _facts(self) -> metrics.Facts:
        """For a scrape."""
        state, known = self._reconciler.state, self._agents.presences.known
        held_s, maintenance_s = metrics.waits_s(state, self._reconciler.now())
        return metrics.Facts(
            version=VERSION,
            connected=len(self._server.connected()),
            presences=coverage.counts(known),
            unlisted=coverage.unlisted(known),
            held_s=held_s,
            maintenance_s=maintenance_s,
            certificates_s=self._server.gate.certificates_s(self._reconciler.now()),
            refused=self._server.gate.refusals.total,
            set_aside=self._store.set_aside_events,
            broken_invariants=self._reconciler.broken_invariants,
            state=state,
            actions=await self._store.read(lambda c: metrics.count_actions(c, time.time_ns() // 1000)),
        )

    def reload(self) -> None:
        """Takes over policy and identity.deny. Logs what is wrong or needs a restart, which changes nothing."""
        self._notify.reloading()
        try:
            new = config.load(self._path)
            policy = new.load_policy()
        except ConfigError as error:
            _log.error("reload refused, settings unchanged", why=str(error))
        else:
            self._reconciler.set_policy(policy)
            denied = self._server.gate.deny(new.identity.deny)
            restart = config.needs_restart(self._settings, new)
            self._log_mode(new, policy)
            _log.info(
                "policy loaded again", file=str(new.policy.file or "shipped"), needs_restart=restart, denied=denied
            )
        self._notify.ready(f"listening on {self._settings.controller.listen}")

    def _log_mode(self, settings: ControllerSettings, policy: Policy) -> None:
        mode, why = settings.why_mode(policy)
        _log.info("policy in force", mode=mode, why=why)

    async def _until_stopped(self, *parts: Coroutine[Any, Any, None]) -> int:
        stopped = asyncio.ensure_future(self._stop.wait())
        tasks = [asyncio.ensure_future(part) for part in parts]
        done, _ = await asyncio.wait([stopped, *tasks], return_when=asyncio.FIRST_COMPLETED)
        for task in (stopped, *tasks):
            task.cancel()
        await asyncio.gather(stopped, *tasks, return_exceptions=True)
        failed = [task for task in done if task is not stopped]
        for task in failed:
            _log.critical("a part of the controller ended", exc_info=task.exception())
        return 1 if failed else 0

    async def _save_seen(self) -> None:
        """Writes heartbeats to the database in batches, not one by one."""
        while True:
            await asyncio.sleep(SAVE_SEEN_EVERY_S)
            unsaved = self._last_seen.take_unsaved(monotonic(), SAVE_SEEN_ROWS)
            try:
                await self._store.record_seen(unsaved)
            except StoreError as error:
                _log.error("last seen not stored", why=str(error))

    async def _stay_alive(self) -> None:
        every_s = self._notify.watchdog_s / 3 or ALIVE_EVERY_S
        while True:
            self._notify.alive(f"{len(self._server.connected())} agents connected")
            await asyncio.sleep(every_s)
