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
    text,
)

# The revision of the tables below: the newest in migrations/versions.
REVISION = "0005"

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

# Every node whose agent ever connected, as it last described itself.
nodes = Table(
    "nodes",
    metadata,
    Column("node", String, primary_key=True),  # the scheduler's name
    Column("boot_id", String, nullable=False),
    Column("agent_version", String, nullable=False),
    Column("profile", String, nullable=False),
    Column("first_seen_us", BigInteger, nullable=False),  # unix microseconds, UTC; so are all *_us below
    Column("last_seen_us", BigInteger, nullable=False),
    Column("heartbeat_us", BigInteger),  # when the heartbeat of the next column came; written every SAVE_EVERY_S
    Column("heartbeat", LargeBinary),  # the whole nodetriage.v1.Heartbeat
)

GRAVE = text("severity >= 3")  # major and critical

# The nodes' events. `id` is the cursor of Watch and of the policy: it only grows.
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
    Column("component", String, nullable=False),
    Column("fault", String, nullable=False),
    Column("severity", Integer, nullable=False),
    Column("message", LargeBinary, nullable=False),  # the whole nodetriage.v1.Event
    UniqueConstraint("node", "boot_id", "seq"),
    Index(None, "at_us"),
    Index(None, "fault", "at_us"),
    # Of the few that may begin an incident: `incidents` looks at their nodes alone.
    Index("ix_events_grave", "at_us", "severity", sqlite_where=GRAVE, postgresql_where=GRAVE),
    sqlite_autoincrement=True,  # no cursor comes twice, not even after old events were deleted
)

# Events that could not be stored as they were, and why: at most poison.IN_ALL rows.
poison = Table(
    "poison",
    metadata,
    Column("id", Id, primary_key=True, autoincrement=True),
    Column("node", String, nullable=False),
    Column("boot_id", String, nullable=False),
    Column("seq", BigInteger, nullable=False),
    Column("received_us", BigInteger, nullable=False),
    Column("size", BigInteger, nullable=False),  # bytes of the whole message
    Column("why", String, nullable=False),
    Column("head", LargeBinary, nullable=False),  # the first poison.KEPT_BYTES of the message
    Index(None, "node", "id"),
    sqlite_autoincrement=True,
)

# The policy's state: what `policy.step` works on, written in the transaction of the step that changed it.
reconciler = Table(
    "reconciler",
    metadata,
    Column("id", Integer, primary_key=True),  # 1: there is one
    Column("cursor", BigInteger, nullable=False),  # events.id of the last event that was evaluated
    Column("document", LargeBinary, nullable=False),  # JSON of the fleet-wide rest
)

# All other inputs of the policy, in order, for a replay: inputs.py says what each kind holds.
inputs = Table(
    "inputs",
    metadata,
    Column("id", Id, primary_key=True, autoincrement=True),
    Column("at_us", BigInteger, nullable=False),  # the step's `now`
    # kind: events, overtook, seen, tick, done, command, contact, failed, checks, lemons, ahead, policy, snapshot
    Column("kind", String, nullable=False),
    Column("document", LargeBinary, nullable=False),  # JSON; of a snapshot compressed
    Index(None, "kind", "at_us"),
    sqlite_autoincrement=True,
)

# Operators' orders, and the answers.
operator_log = Table(
    "operator_log",
    metadata,
    Column("id", Id, primary_key=True, autoincrement=True),
    Column("at_us", BigInteger, nullable=False),
    Column("actor", String, nullable=False),
    Column("verb", String, nullable=False),
    Column("node", String, nullable=False),
    Column("reason", String, nullable=False),
    Column("done", Integer, nullable=False),  # 0: refused
    Column("answer", String, nullable=False),
    sqlite_autoincrement=True,
)

# Planned stops: a class of their own, never counted as failures.
maintenance = Table(
    "maintenance",
    metadata,
    Column("node", String, primary_key=True),
    Column("since_us", BigInteger, primary_key=True),
    Column("until_us", BigInteger),
    Column("actor", String, nullable=False),
    Column("reason", String, nullable=False),
    Column("source", String, nullable=False),  # operator, scheduler
)

node_states = Table(
    "node_states",
    metadata,
    Column("node", String, primary_key=True),
    Column("state", String, nullable=False),  # BurnIn, Healthy, Suspect, Drained, Repair, Lemon, Retired
    Column("since_us", BigInteger, nullable=False),
    Column("drain", String, nullable=False),  # "", wanted, asked, done, returning
    Column("theirs", Integer, nullable=False),  # 1: drained under someone else's reason
    Column("queued_reason", String, nullable=False),  # which drain limit holds the drain
    Column("incident", String, nullable=False),
    Column("document", LargeBinary, nullable=False),  # JSON of state.NodeFacts
)

# What the Slurm hooks of a node may do: a row of its own, so that one node's changes rewrite no other's.
hook_states = Table(
    "hook_states",
    metadata,
    Column("node", String, primary_key=True),
    Column("document", LargeBinary, nullable=False),  # JSON of fleet_state.HookFacts
)

job_states = Table(
    "job_states",
    metadata,
    Column("job", String, primary_key=True),
    Column("document", LargeBinary, nullable=False),  # JSON of state.JobFacts
)

transitions = Table(
    "transitions",
    metadata,
    Column("id", Id, primary_key=True, autoincrement=True),
    Column("node", String, nullable=False, index=True),
    Column("before", String, nullable=False),  # "" for a new node
    Column("after", String, nullable=False),
    Column("cause", String, nullable=False),
    Column("actor", String, nullable=False),
    Column("at_us", BigInteger, nullable=False),
    sqlite_autoincrement=True,
)

incidents = Table(
    "incidents",
    metadata,
    Column("incident", String, primary_key=True),
    Column("node", String, nullable=False, index=True),  # "" for an incident of the fleet
    Column("fault", String, nullable=False),  # of its worst finding
    Column("component", String, nullable=False),  # of the fleet's: what is shared
    Column("severity", Integer, nullable=False),
    Column("causes", String, nullable=False),  # every fault in it, comma-separated
    Column("opened_us", BigInteger, nullable=False),
    Column("drained_us", BigInteger),
    Column("closed_us", BigInteger),
)

# What was decided, before it is done. `id` names what is done: deciding it again makes no second row.
actions = Table(
    "actions",
    metadata,
    Column("id", String, primary_key=True),
    Column("kind", String, nullable=False),  # drain, requeue, release, cancel, warn, undrain, shadow
    Column("node", String, nullable=False),
    Column("incident", String, nullable=False),
    Column("fault", String, nullable=False),
    Column("component", String, nullable=False),
    Column("severity", Integer, nullable=False),
    Column("job", String, nullable=False),
    Column("restarts", Integer, nullable=False),
    Column("hold", Integer, nullable=False),
    Column("text", String, nullable=False),
    Column("status", String, nullable=False),  # pending, started, done, cancelled, shadow
    Column("outcome", String, nullable=False),  # "", done, theirs, gone, refused, cancelled
    Column("detail", String, nullable=False),  # the last error, or what the scheduler showed
    Column("attempts", Integer, nullable=False),
    Column("next_try_us", BigInteger, nullable=False),
    Column("decided_us", BigInteger, nullable=False),
    Column("started_us", BigInteger),
    Column("finished_us", BigInteger),
    Index(None, "status"),
    Index(None, "decided_us"),
)

# The jobs on a node when it was drained (`incident`), or when a critical event came ("event-CURSOR").
job_hits = Table(
    "job_hits",
    metadata,
    Column("incident", String, primary_key=True),
    Column("job", String, primary_key=True),
    Column("restarts", Integer, primary_key=True),
    Column("node", String, nullable=False),
    Column("at_us", BigInteger, nullable=False),
    Column("document", LargeBinary, nullable=False),  # JSON of scheduler.JobView
)

# Every node that should report: named by the scheduler, by an agent or by the settings.
known_nodes = Table(
    "known_nodes",
    metadata,
    Column("node", String, primary_key=True),
    Column("presence", String, nullable=False),  # heard, silent, never, refused, asleep, retired, decommissioned
    Column("since_us", BigInteger, nullable=False),
    Column("why", String, nullable=False),  # it was refused
    Column("in_scheduler", Integer, nullable=False),
    Column("slurm", String, nullable=False),  # the scheduler's state, reason and who set that, as last read
    Column("reason", String, nullable=False),
    Column("reason_by", String, nullable=False),
)

# What the controller says of itself every few seconds: a reader sees by its age whether one runs.
controller_status = Table(
    "controller_status",
    metadata,
    Column("id", Integer, primary_key=True),  # 1: there is one
    Column("at_us", BigInteger, nullable=False),
    Column("document", LargeBinary, nullable=False),  # JSON
)

# Which of several controllers on one PostgreSQL leads. A write of an older epoch is refused.
leader = Table(
    "leader",
    metadata,
    Column("id", Integer, primary_key=True),  # 1: there is one
    Column("epoch", BigInteger, nullable=False),  # grows by one with each new leader
    Column("holder", String, nullable=False),  # its host and process id
    Column("since_us", BigInteger, nullable=False),
    Column("renewed_us", BigInteger, nullable=False),  # the lease: by the database's clock
)

# The revision of these tables, as Alembic keeps it.
alembic_version = Table(
    "alembic_version",
    MetaData(),
    Column("version_num", String(32), primary_key=True),
)
