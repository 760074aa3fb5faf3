"""Reads policy.toml: the site's, or the one that comes with the package."""

from importlib import resources
from pathlib import Path

from nodetriage.checks.model.settings import load_toml, replace_from
from nodetriage.controller.settings.rules import Policy


def shipped_policy() -> Policy:
    """The policy that comes with the package."""
    with resources.as_file(resources.files("nodetriage.controller.settings") / "policy.toml") as path:
        return load_policy(path)


def load_policy(path: Path) -> Policy:
    """Raises ConfigError: one line, with the file, the key and what was expected."""
    policy = replace_from(Policy, Policy(), load_toml(path), str(path))
    assert isinstance(policy, Policy)
    return policy
