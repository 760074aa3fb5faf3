"""Starts the agent: takes the state directory, sets up the log, and runs the daemon until SIGTERM."""

import asyncio
import os
import sys

from nodetriage.agent import instance_lock
from nodetriage.agent.daemon import Daemon
from nodetriage.agent.delivery.connection import anonymous
from nodetriage.agent.delivery.identity import identify_by
from nodetriage.agent.settings.config import AgentSettings
from nodetriage.checks.model.settings import ConfigError
from nodetriage.service import log

CATALOGUE = "nodetriage.agent.installed_checks:CHECKS"
LOG_LIMIT_S = 0.5  # for the last log lines
EXIT_REFUSED = 1


def run(settings: AgentSettings, catalogue: str = CATALOGUE, unusable: str = "") -> int:
    """Runs until SIGTERM or SIGINT. Returns 0 after a clean stop; 1 if the state directory is in use or unusable.

    `unusable` says what is wrong with the settings about the controller. The agent then works alone: it runs checks,
    answers hooks and keeps its events, because a node without an agent would be unprotected.
    """
    try:
        identify = identify_by(settings)
    except ConfigError as error:
        identify, unusable = anonymous, unusable or str(error)
    try:
        lock_fd = instance_lock.take(settings.agent.state_dir, settings.agent.run_dir)
    except instance_lock.StateInUse as error:
        sys.stderr.write(f"nodetriage agent: {error}\n")
        return EXIT_REFUSED
    except OSError as error:
        sys.stderr.write(f"nodetriage agent: {settings.agent.state_dir}: {error.strerror or error}\n")
        return EXIT_REFUSED
    log_lines = log.set_up()
    try:
        return asyncio.run(Daemon(settings, catalogue, identify, unusable).run())
    finally:
        os.close(lock_fd)
        log_lines.drain(LOG_LIMIT_S)
