"""The tables of an empty database, of one that revisions made, and of schema.py are the same; others are refused."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Engine, inspect, text

from nodetriage.checks.model.settings import ConfigError
from nodetriage.controller.cli import main
from nodetriage.controller.store import folder_lock, migrate, schema
from nodetriage.controller.store.database import WrongRevision, create_tables, has_tables, open_database, revision


@pytest.fixture
def engine(database_url: str) -> Engine:
    return open_database(database_url)


def difference(engine: Engine) -> object:
    with engine.connect() as connection:
        return compare_metadata(MigrationContext.configure(connection, opts={"compare_type": True}), schema.metadata)


def indexes(engine: Engine) -> dict[str, object]:
    look = inspect(engine)
    return {t: sorted(str(i["name"]) for i in look.get_indexes(t)) for t in schema.metadata.tables}


def test_revisions_lead_to_the_very_tables_of_the_schema(engine: Engine) -> None:
    with engine.connect() as connection:
        assert ScriptDirectory.from_config(migrate.configured(connection)).get_current_head() == schema.REVISION
    assert migrate.upgrade(engine) == ("", schema.REVISION)
    assert difference(engine) == []
    by_revisions = indexes(engine)
    schema.metadata.drop_all(engine)
    schema.alembic_version.drop(engine)
    create_tables(engine)
    assert difference(engine) == []
    assert indexes(engine) == by_revisions
    assert migrate.upgrade(engine) == (schema.REVISION, schema.REVISION)
    engine.dispose()


def test_a_database_of_another_revision_is_refused_with_what_to_run(engine: Engine) -> None:
    create_tables(engine)
    create_tables(engine)
    with engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(WrongRevision, match=r"at revision 9999, .*needs \d+: run `nodetriagectl database upgrade`"):
        create_tables(engine)
    with pytest.raises(ConfigError, match="9999, which this nodetriage does not know"):
        migrate.upgrade(engine)
    schema.alembic_version.drop(engine)
    for refused in (create_tables, migrate.upgrade):
        with pytest.raises(ConfigError, match="revision"):
            refused(engine)
    engine.dispose()


def test_an_upgrade_that_fails_half_way_leaves_the_tables_as_they_were(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "migrations"
    (folder / "versions").mkdir(parents=True)
    (folder / "env.py").write_text((migrate.FOLDER / "env.py").read_text())
    body = "def upgrade():\n    op.create_table('half', sa.Column('id', sa.Integer))\n    raise RuntimeError('half')\n"
    head = "import sqlalchemy as sa\nfrom alembic import op\nrevision = 'r1'\ndown_revision = None\n"
    (folder / "versions/r1.py").write_text(head + body)
    monkeypatch.setattr(migrate, "FOLDER", folder)
    with pytest.raises(RuntimeError, match="half"):
        migrate.upgrade(engine)
    with engine.connect() as connection:
        assert revision(connection) == ""
        assert not has_tables(connection)
        if engine.dialect.name == "postgresql":
            assert not inspect(connection).has_table("half")
    engine.dispose()


def test_the_command_upgrades_and_tells_the_revision(
    sqlite_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = tmp_path / "controller.toml"
    settings.write_text(f'[controller]\nstate_dir = "{tmp_path}"\n')
    assert main.main(["database", "current", "--config", str(settings)]) == main.UNKNOWN
    assert main.main(["database", "upgrade", "--config", str(settings)]) == 0
    assert main.main(["database", "current", "--config", str(settings)]) == 0
    said = capsys.readouterr()
    assert (
        said.out
        == f"upgraded from empty to {schema.REVISION}\n{schema.REVISION} (this nodetriage needs {schema.REVISION})\n"
    )
    assert "no database yet" in said.err


def test_the_tables_of_a_sqlite_are_not_upgraded_under_a_controller(
    sqlite_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = tmp_path / "controller.toml"
    settings.write_text(f'[controller]\nstate_dir = "{tmp_path}"\n')
    upgrade = ["database", "upgrade", "--config", str(settings)]
    with folder_lock.only_one(tmp_path):
        assert main.main(upgrade) == main.BAD_CONFIGURATION
        assert f"in use by another controller (pid {os.getpid()}): stop that one first" in capsys.readouterr().err
        engine = open_database(sqlite_url)
        with engine.connect() as connection:
            assert not has_tables(connection)
        engine.dispose()
    assert main.main(upgrade) == 0
    with folder_lock.only_one(tmp_path):
        pass  # the upgrade keeps no lock


def test_a_controller_on_a_database_of_another_revision_says_so_and_ends(tmp_path: Path) -> None:
    settings = tmp_path / "controller.toml"
    settings.write_text(
        f'[controller]\nlisten = "unix:{tmp_path}/c"\nstate_dir = "{tmp_path}"\n[scheduler]\nkind = "none"\n'
    )
    engine = open_database(f"sqlite:///{tmp_path}/history.sqlite")
    create_tables(engine)
    with engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    engine.dispose()
    ctl = Path(sys.executable).parent / "nodetriagectl"
    done = subprocess.run([ctl, "controller", "--config", settings], capture_output=True, text=True, timeout=60)
    assert done.returncode == main.BAD_CONFIGURATION
    assert done.stderr.count("9999") == 1
    assert "nodetriagectl database upgrade" in done.stderr
