"""Events that are set aside, and the hooks of each node."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.create_table(
        "hook_states",
        sa.Column("node", sa.String(), nullable=False),
        sa.Column("document", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("node", name=op.f("pk_hook_states")),
    )
    op.create_table(
        "poison",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("node", sa.String(), nullable=False),
        sa.Column("boot_id", sa.String(), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("received_us", sa.BigInteger(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("why", sa.String(), nullable=False),
        sa.Column("head", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_poison")),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("poison", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_poison_node"), ["node", "id"], unique=False)
