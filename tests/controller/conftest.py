"""Databases to test against: a SQLite file, and a real PostgreSQL."""

from pathlib import Path

import pytest
from postgres import postgres_server, postgres_url

__all__ = ["postgres_server", "postgres_url"]


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'history.sqlite'}"


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest) -> str:
    name = "sqlite_url" if request.param == "sqlite" else "postgres_url"
    return str(request.getfixturevalue(name))
