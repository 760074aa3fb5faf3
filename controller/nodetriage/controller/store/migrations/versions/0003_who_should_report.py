"""Nodes that should report, and what the controller says of itself."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.create_table(
        "controller_status",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("at_us", sa.BigInteger(), nullable=False),
        sa.Column("document", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_controller_status")),
    )
    op.create_table(
        "known_nodes",
        sa.Column("node", sa.String(), nullable=False),
        sa.Column("presence", sa.String(), nullable=False),
        sa.Column("since_us", sa.BigInteger(), nullable=False),
        sa.Column("why", sa.String(), nullable=False),
        sa.Column("in_scheduler", sa.Integer(), nullable=False),
        sa.Column("slurm", sa.String(), nullable=False),
        sa.Column("reason", sa.String(), nullable=False),
        sa.Column("reason_by", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("node", name=op.f("pk_known_nodes")),
    )
