"""The agent as a process: connects timers, descriptors, signals, spool and stream. Decides nothing."""

import asyncio
import contextlib
import signal
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import structlog

from nodetriage.agent import heartbeat, requests
from nodetriage.agent.check_scheduler import CheckScheduler
from nodetriage.agent.control_socket import ControlSocket
from nodetriage.agent.core import self_check
from nodetriage.agent.core.record_queue import RecordQueue
from nodetriage.agent.core.verdict import Change, Kind
from nodetriage.agent.delivery import event
from nodetriage.agent.delivery.identity import Identify, identify_by
from nodetriage.agent.delivery.spool import Spool
from nodetriage.agent.delivery.stream import Node, Stream
from nodetriage.agent.kept import Kept
from nodetriage.agent.machine import slurm_jobs
from nodetriage.agent.machine.boot import boot_id, boottime_s
from nodetriage.agent.machine.host import Host
from nodetriage.agent.settings import config
from nodetriage.agent.settings.config import AgentSettings
from nodetriage.agent.settings.expected import with_profile
from nodetriage.agent.slurm import hooks
from nodetriage.agent.slurm.hook_word import authority_from
from nodetriage.agent.traffic import Traffic
from nodetriage.agent.waiting import node_timer
from nodetriage.agent.watchers import KernelLogWatcher, Watchers
from nodetriage.agent.workers import memory, worker
from nodetriage.agent.workers.pool import WorkerPool, setup_from
from nodetriage.checks.model import Scalar, Severity
from nodetriage.checks.model.settings import ConfigError
from nodetriage.service.notify import Notify
from nodetriage.service.version import VERSION
from nodetriage.v1 import health_pb2 as pb

TICK_S = 60.0  # at the same moments as checks
SAVE_S = 300.0  # between two saves of the state, where nothing changed
SUMMARY_S = 300.0
STOP_LIMIT_S = 2.0  # for the last commit


class Daemon:
    """Belongs to one event loop; is made and run once."""

    def __init__(self, settings: AgentSettings, catalogue: str, identify: Identify, unusable: str = "") -> None:
        self._settings = settings
        self._catalogue = catalogue
        self._unusable = unusable  # what is wrong with the settings about the controller
        self._boot_id = boot_id()
        self._log = structlog.get_logger()
        self._notify = Notify()
        self._timer = node_timer()
        self._stopping = asyncio.Event()
        self._reload = asyncio.Event()
        agent = settings.agent
        self.node = Node(config.node_name(agent.node), self._boot_id, VERSION, settings.profile.name)
        self._spool = Spool(agent.state_dir, self._boot_id, settings.spool.max_mib << 20, self._judge_self)
        self._workers = WorkerPool(setup_from(settings), catalogue, self._free)
        self._stream = Stream(
            () if unusable else settings.controller.addresses,
            self.node,
            self._spool,
            heartbeat=self._heartbeat,
            heartbeat_s=agent.heartbeat_s,
            command=self._command,
            has_job=self._has_job,
            hook_word=lambda word, by: self._hooks.take_word(authority_from(word, by, self._boot_id, boottime_s())),
            identify=identify,
            timer=self._timer,
            idle_why=f"works alone: {unusable}" if unusable else "no controller is set",
        )
        self._traffic = Traffic(self._workers.run, self._timer)
        self._heartbeats = heartbeat.Heartbeats(self._spool, self._workers, self._traffic, self._boot_id)
        self._control_socket = ControlSocket(agent.socket, self._answer)
        self._record_queue: RecordQueue | None = None
        self._kernel_log: KernelLogWatcher | None = None
        self._scheduler: CheckScheduler
        self._watchers: Watchers
        self._hooks: hooks.Hooks

    async def run(self) -> int:
        self._spool.open()
        kept = Kept(self._spool, self._boot_id)
        self._resume(kept)
        self._record([Change(Kind.AGENT_STARTED, "", evidence={"version": self.node.version})], {})
        self._scheduler.drop_disabled()
        own, run_dir, alone = (
            self._settings.hooks,
            self._settings.agent.run_dir,
            not (self._stream.addresses or self._unusable),
        )
        self._hooks = hooks.Hooks(own, self._scheduler, self._record, boottime_s, run_dir, kept.hooks(), alone=alone)
        self._hooks.on_begin = self._stream.beat
        try:
            await self._control_socket.start()
        except OSError as error:
            self._log.error("no control socket", path=str(self._settings.agent.socket), why=error.strerror)
        if self._unusable:
            self._log.error("the controller's settings cannot be used; the agent works alone", why=self._unusable)
        self._listen()
        self._judge_self()  # before the first check: a log that cannot be read must not look like a quiet one
        self._scheduler.start()
        parts = (self._stream.run(), self._traffic.run(), self._tick(), self._reloads())
        tasks = [asyncio.create_task(part) for part in parts]
        self._notify.ready("started")
        self._log.info("agent started", node=self.node.name, boot_id=self._boot_id, checks=len(self._scheduler.checks))
        memory.freeze()
        stop = asyncio.create_task(self._stopping.wait())
        await asyncio.wait([stop, *tasks], return_when=asyncio.FIRST_COMPLETED)
        ended = [t for t in tasks if t.done() and t.exception()]
        await self._stop([stop, *tasks])
        for task in ended:
            task.result()  # a defect of the agent: the traceback is logged, and systemd starts the agent again
        return 0

    def _resume(self, kept: Kept) -> None:
        """Goes on where an earlier run of the agent in this boot ended."""
        settings = self._settings
        self._record_queue = kept.record_queue(settings)
        grace_s = settings.agent.boot_grace_s if settings.agent.root == Path("/") else 0.0
        self._scheduler = CheckScheduler(
            settings.enabled,
            self._workers,
            self._record_queue,
            kept.verdict(),
            kept.memories(),
            self._record,
            boottime_s,
            grace_s,
            self._timer,
        )

    def _listen(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stopping.set)
        loop.add_signal_handler(signal.SIGHUP, self._reload.set)
        if self._record_queue:
            kernel_log = self._settings.kernel_log
            believe, wake = kernel_log.accept_user_records, self._scheduler.wake
            self._kernel_log = KernelLogWatcher(kernel_log.path, believe, self._record_queue, wake, self._judge_self)
            self._kernel_log.start()
        self._watchers = Watchers(worker.catalogue(self._catalogue), self._scheduler.wake_source)
        self._watchers.start()
        if why := self._watchers.trouble:
            self._log.warning("device or link events are not followed; checks find changes at their next run", why=why)

    async def _stop(self, tasks: list[asyncio.Task[Any]]) -> None:
        self._notify.stopping()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._control_socket.close()
        await self._scheduler.stop()
        self._watchers.stop()
        if self._kernel_log:
            self._kernel_log.stop()
        await self._workers.close()
        self._record([Change(Kind.AGENT_STOPPED, "")], self._scheduler.kept())
        committed = self._spool.close(STOP_LIMIT_S)
        self._log.info("agent stopped", unsent_events=self._spool.depth, on_disk=committed)

    async def _tick(self) -> None:
        """Periodic duties: the watchdog, the self-check, saving the state, one log line with a summary."""
        saved_s = logged_s = time.monotonic()
        tick_s = min(TICK_S, self._notify.watchdog_s / 3 or TICK_S)
        runs = 0
        while True:
            self._notify.alive()
            self._judge_self()
            self._hooks.take_notes()
            now_s = time.monotonic()
            if now_s - saved_s >= SAVE_S:
                self._spool.append((), self._scheduler.kept())
                saved_s = now_s
            if now_s - logged_s >= SUMMARY_S:
                status = heartbeat.summary(self._scheduler, self._spool, self._stream.state)
                self._log.info("checks ran", runs=self._scheduler.runs - runs, status=status)
                self._notify.status(status)
                logged_s, runs = now_s, self._scheduler.runs
            await asyncio.sleep(self._timer.until_next_s(tick_s, time.monotonic()))

    def _judge_self(self) -> None:
        source = self._kernel_log
        overruns, lost = source.take_losses() if source else (0, 0)
        if source and source.trouble:
            self._scheduler.follow_no_log()
        unjudged = self._record_queue.take_lost() if self._record_queue else {}
        seen = self_check.SelfCheck(self._spool.trouble, source.trouble if source else "", overruns, lost, unjudged)
        self._scheduler.judge_self(self_check.result(seen))

    def _record(self, changes: Iterable[Change], keep: Mapping[str, bytes]) -> None:
        """Changes become numbered events, stored in one transaction with the state that goes with them."""
        at = event.Moment(time.time_ns() // 1000, int(boottime_s() * 1e6))
        events = [event.make(change, self._boot_id, at) for change in changes]
        for change in changes:
            heartbeat.log_change(self._log, change)
        if keep:
            keep = {**keep, "memories_boot_id": msgspec.json.encode(self._boot_id)}
        self._spool.append(events, keep)
        while self._spool.has_dropped:
            dropped = self._spool.take_dropped()
            evidence: dict[str, Scalar] = {"routine": dropped.routine, "faults": dropped.faults, "why": "spool full"}
            lost = Change(Kind.LOST, "", severity=Severity.WARNING, evidence=evidence)
            self._spool.append([event.make(lost, self._boot_id, at)])
            self._log.warning("the spool is full; events dropped", **evidence)

    def _free(self, device_class: str) -> None:
        self._log.info("an abandoned worker has ended", device_class=device_class)
        self._scheduler.wake_class(device_class)

    def _heartbeat(self, whole: bool, every_s: float) -> pb.Heartbeat:
        return self._heartbeats.make(self._scheduler, whole, boottime_s(), every_s)

    def _has_job(self) -> bool:
        return self._hooks.has_job or slurm_jobs.has_job(self._settings.agent.root)

    async def _command(self, command: pb.Command) -> pb.CommandResult:
        return await requests.execute(self._scheduler, self._workers, command)

    async def _answer(self, request: dict[str, Any]) -> dict[str, Any] | str:
        """Answers one request on the control socket."""
        if (verb := request.get("ask")) in hooks.VERBS:
            return await self._hooks.answer(verb, request)
        if request.get("ask") == "run":
            return await requests.run(self._scheduler, self._workers, request.get("checks"))
        if request.get("ask") == "status":
            return self._status()
        return {"error": f"unknown request {request.get('ask')!r}; known: run, status, {', '.join(hooks.VERBS)}"}

    def _status(self) -> dict[str, Any]:
        source = self._kernel_log
        return {
            **heartbeat.status(self._scheduler, self._workers, boottime_s()),
            "hooks": self._hooks.status(),
            "node": self.node.name,
            "boot_id": self._boot_id,
            "version": self.node.version,
            "spool": {"events": self._spool.depth, "trouble": self._spool.trouble, "next_seq": self._spool.next_seq},
            "controller": {"connected": self._stream.connected, "state": self._stream.state},
            "kernel_log": {
                "followed": bool(source and not source.trouble),
                "trouble": source.trouble if source else "",
                "newest_seq": source.newest_seq if source else -1,
            },
        }

    async def _reloads(self) -> None:
        while True:
            await self._reload.wait()
            self._reload.clear()
            self._notify.reloading()
            with contextlib.suppress(IndexError):
                await self._reload_from(self._settings.files[0])
            self._notify.ready("running")

    async def _reload_from(self, path: Path) -> None:
        """A wrong file changes nothing."""
        try:
            new = config.load(path, worker.catalogue(self._catalogue))
            new = await asyncio.to_thread(with_profile, new, Host(new.agent.root))  # it may run a program
            identify_by(new)  # so that a file that fails at the next start fails now
        except ConfigError as error:
            self._log.error("settings not reloaded; the old ones stay in force", why=str(error))
            return
        fixed = ("agent", "controller", "identity", "kernel_log", "profile", "spool")
        later = [name for name in fixed if getattr(new, name) != getattr(self._settings, name)]
        self._settings = new
        self._workers.configure(setup_from(new))
        self._hooks.use(new.hooks)
        await self._scheduler.use(new.enabled)
        self._log.info("settings reloaded", checks=len(new.enabled), only_after_restart=later)
