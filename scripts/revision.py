"""Writes a new revision of the controller's tables: what schema.py has that the newest revision has not.

python scripts/revision.py 0002 words for its head
"""

import sys

from alembic import command
from sqlalchemy import create_engine

from nodetriage.controller.store import migrate

number, *words = sys.argv[1:]
with create_engine("sqlite://").connect() as connection:
    config = migrate.configured(connection)
    command.upgrade(config, "head")
    command.revision(config, " ".join(words), autogenerate=True, rev_id=number)
