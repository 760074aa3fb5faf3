"""The leader's lease."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    with op.batch_alter_table("leader", schema=None) as batch_op:
        batch_op.add_column(sa.Column("renewed_us", sa.BigInteger(), nullable=False, server_default="0"))
    with op.batch_alter_table("leader", schema=None) as batch_op:
        batch_op.alter_column("renewed_us", server_default=None)
