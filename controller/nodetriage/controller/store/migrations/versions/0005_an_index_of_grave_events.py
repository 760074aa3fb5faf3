"""An index of grave events."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    grave = sa.text("severity >= 3")
    op.create_index("ix_events_grave", "events", ["at_us", "severity"], sqlite_where=grave, postgresql_where=grave)
