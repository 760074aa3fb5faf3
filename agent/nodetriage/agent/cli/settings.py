"""Which settings a verb uses."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nodetriage.agent.settings.config import AgentSettings
    from nodetriage.checks.model import Check

DEFAULT_CONFIG = Path("/etc/nodetriage/agent.toml")


def load(
    config: Path | None, checks: "Sequence[Check[Any, Any]]", live: bool = True, ignore: Sequence[str] = ()
) -> "AgentSettings":
    """From the named file; else, on the live machine, from the default file if it exists. Raises ConfigError.

    `ignore` names tables to leave out.
    """
    from nodetriage.agent.settings import config as settings

    if config is None and not (live and DEFAULT_CONFIG.exists()):
        return settings.defaults(checks)
    return settings.load(config or DEFAULT_CONFIG, checks, ignore=ignore)


def chosen(names: Sequence[str], settings: "AgentSettings") -> "list[Check[Any, Any]]":
    """The checks with these names, in the order of the catalogue; without names, the enabled ones."""
    from nodetriage.checks.model.settings import ConfigError

    for name in names:
        if name not in settings.checks:
            raise ConfigError(f"check {name}: unknown; known checks: {', '.join(settings.checks)}")
    if not names:
        return list(settings.enabled)
    return [found.check for name, found in settings.checks.items() if name in names]
