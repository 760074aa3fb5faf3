"""The tables. One metadata for SQLite and PostgreSQL; only types and constraints that both have."""

from sqlalchemy import (
    BigInteger,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    UniqueConstraint,
)

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(column_0_label)s",
        "uq": "uq_%(table_name)s_%(column_0_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)

# SQLite counts rowids in INTEGER alone.
Id = BigInteger().with_variant(Integer, "sqlite")

# Every node that ever said hello, as it last described itself.
nodes = Table(
    "nodes",
    metadata,
    Column("node", String, primary_key=True),  # the scheduler's name
    Column("boot_id", String, nullable=False),
    Column("agent_version", String, nullable=False),
    Column("profile", String, nullable=False),
    Column("first_seen_us", BigInteger, nullable=False),  # unix microseconds, UTC; so are all *_us below
    Column("last_seen_us", BigInteger, nullable=False),
)

# What happened, as the nodes told it. `id` is the cursor of Watch and of the brain: it only grows.
events = Table(
    "events",
    metadata,
    Column("id", Id, primary_key=True, autoincrement=True),
    Column("node", String, ForeignKey("nodes.node"), nullable=False),
    Column("boot_id", String, nullable=False),
    Column("seq", BigInteger, nullable=False),
    Column("at_us", BigInteger, nullable=False),  # the node's clock
    Column("received_us", BigInteger, nullable=False),  # ours
    Column("kind", Integer, nullable=False),
    Column("check_name", String, nullable=False),
    Column("part", String, nullable=False),
    Column("fault", String, nullable=False),
    Column("severity", Integer, nullable=False),
    Column("message", LargeBinary, nullable=False),  # the whole nodetriage.v1.Event
    UniqueConstraint("node", "boot_id", "seq"),
    Index(None, "at_us"),
    Index(None, "fault", "at_us"),
    sqlite_autoincrement=True,  # a cursor is never given twice, not even after old events were deleted
)
