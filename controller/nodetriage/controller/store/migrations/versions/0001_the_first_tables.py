"""The first tables."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "actions",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("node", sa.String(), nullable=False),
        sa.Column("incident", sa.String(), nullable=False),
        sa.Column("fault", sa.String(), nullable=False),
        sa.Column("component", sa.String(), nullable=False),
        sa.Column("severity", sa.Integer(), nullable=False),
        sa.Column("job", sa.String(), nullable=False),
        sa.Column("restarts", sa.Integer(), nullable=False),
        sa.Column("hold", sa.Integer(), nullable=False),
        sa.Column("text", sa.String(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("outcome", sa.String(), nullable=False),
        sa.Column("detail", sa.String(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("next_try_us", sa.BigInteger(), nullable=False),
        sa.Column("decided_us", sa.BigInteger(), nullable=False),
        sa.Column("started_us", sa.BigInteger(), nullable=True),
        sa.Column("finished_us", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_actions")),
    )
    with op.batch_alter_table("actions", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_actions_decided_us"), ["decided_us"], unique=False)
        batch_op.create_index(batch_op.f("ix_actions_status"), ["status"], unique=False)

    op.create_table(
        "reconciler",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("cursor", sa.BigInteger(), nullable=False),
        sa.Column("document", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_reconciler")),
    )
    op.create_table(
        "incidents",
        sa.Column("incident", sa.String(), nullable=False),
        sa.Column("node", sa.String(), nullable=False),
        sa.Column("fault", sa.String(), nullable=False),
        sa.Column("component", sa.String(), nullable=False),
        sa.Column("severity", sa.Integer(), nullable=False),
        sa.Column("causes", sa.String(), nullable=False),
        sa.Column("opened_us", sa.BigInteger(), nullable=False),
        sa.Column("drained_us", sa.BigInteger(), nullable=True),
        sa.Column("closed_us", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("incident", name=op.f("pk_incidents")),
    )
    with op.batch_alter_table("incidents", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_incidents_node"), ["node"], unique=False)

    op.create_table(
        "inputs",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("at_us", sa.BigInteger(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("document", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_inputs")),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("inputs", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_inputs_kind"), ["kind", "at_us"], unique=False)

    op.create_table(
        "job_hits",
        sa.Column("incident", sa.String(), nullable=False),
        sa.Column("job", sa.String(), nullable=False),
        sa.Column("restarts", sa.Integer(), nullable=False),
        sa.Column("node", sa.String(), nullable=False),
        sa.Column("at_us", sa.BigInteger(), nullable=False),
        sa.Column("document", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("incident", "job", "restarts", name=op.f("pk_job_hits")),
    )
    op.create_table(
        "job_states",
        sa.Column("job", sa.String(), nullable=False),
        sa.Column("document", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("job", name=op.f("pk_job_states")),
    )
    op.create_table(
        "leader",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("holder", sa.String(), nullable=False),
        sa.Column("since_us", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_leader")),
    )
    op.create_table(
        "maintenance",
        sa.Column("node", sa.String(), nullable=False),
        sa.Column("since_us", sa.BigInteger(), nullable=False),
        sa.Column("until_us", sa.BigInteger(), nullable=True),
        sa.Column("actor", sa.String(), nullable=False),
        sa.Column("reason", sa.String(), nullable=False),
        sa.Column("source", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("node", "since_us", name=op.f("pk_maintenance")),
    )
    op.create_table(
        "node_states",
        sa.Column("node", sa.String(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("since_us", sa.BigInteger(), nullable=False),
        sa.Column("drain", sa.String(), nullable=False),
        sa.Column("theirs", sa.Integer(), nullable=False),
        sa.Column("queued_reason", sa.String(), nullable=False),
        sa.Column("incident", sa.String(), nullable=False),
        sa.Column("document", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("node", name=op.f("pk_node_states")),
    )
    op.create_table(
        "nodes",
        sa.Column("node", sa.String(), nullable=False),
        sa.Column("boot_id", sa.String(), nullable=False),
        sa.Column("agent_version", sa.String(), nullable=False),
        sa.Column("profile", sa.String(), nullable=False),
        sa.Column("first_seen_us", sa.BigInteger(), nullable=False),
        sa.Column("last_seen_us", sa.BigInteger(), nullable=False),
        sa.Column("heartbeat_us", sa.BigInteger(), nullable=True),
        sa.Column("heartbeat", sa.LargeBinary(), nullable=True),
        sa.PrimaryKeyConstraint("node", name=op.f("pk_nodes")),
    )
    op.create_table(
        "operator_log",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("at_us", sa.BigInteger(), nullable=False),
        sa.Column("actor", sa.String(), nullable=False),
        sa.Column("verb", sa.String(), nullable=False),
        sa.Column("node", sa.String(), nullable=False),
        sa.Column("reason", sa.String(), nullable=False),
        sa.Column("done", sa.Integer(), nullable=False),
        sa.Column("answer", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_operator_log")),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "transitions",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("node", sa.String(), nullable=False),
        sa.Column("before", sa.String(), nullable=False),
        sa.Column("after", sa.String(), nullable=False),
        sa.Column("cause", sa.String(), nullable=False),
        sa.Column("actor", sa.String(), nullable=False),
        sa.Column("at_us", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_transitions")),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("transitions", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_transitions_node"), ["node"], unique=False)

    op.create_table(
        "events",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("node", sa.String(), nullable=False),
        sa.Column("boot_id", sa.String(), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("at_us", sa.BigInteger(), nullable=False),
        sa.Column("received_us", sa.BigInteger(), nullable=False),
        sa.Column("kind", sa.Integer(), nullable=False),
        sa.Column("check_name", sa.String(), nullable=False),
        sa.Column("component", sa.String(), nullable=False),
        sa.Column("fault", sa.String(), nullable=False),
        sa.Column("severity", sa.Integer(), nullable=False),
        sa.Column("message", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["node"], ["nodes.node"], name=op.f("fk_events_node_nodes")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_events")),
        sa.UniqueConstraint("node", "boot_id", "seq", name=op.f("uq_events_node")),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("events", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_events_at_us"), ["at_us"], unique=False)
        batch_op.create_index(batch_op.f("ix_events_fault"), ["fault", "at_us"], unique=False)
