from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class EventKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    EVENT_KIND_UNSPECIFIED: _ClassVar[EventKind]
    EVENT_KIND_RAISED: _ClassVar[EventKind]
    EVENT_KIND_CHANGED: _ClassVar[EventKind]
    EVENT_KIND_REPEATED: _ClassVar[EventKind]
    EVENT_KIND_CLEARED: _ClassVar[EventKind]
    EVENT_KIND_OUTCOME: _ClassVar[EventKind]
    EVENT_KIND_AGENT_STARTED: _ClassVar[EventKind]
    EVENT_KIND_AGENT_STOPPED: _ClassVar[EventKind]
    EVENT_KIND_LOST: _ClassVar[EventKind]

class Severity(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SEVERITY_UNSPECIFIED: _ClassVar[Severity]
    SEVERITY_INFO: _ClassVar[Severity]
    SEVERITY_WARNING: _ClassVar[Severity]
    SEVERITY_MAJOR: _ClassVar[Severity]
    SEVERITY_CRITICAL: _ClassVar[Severity]

class Outcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    OUTCOME_UNSPECIFIED: _ClassVar[Outcome]
    OUTCOME_OK: _ClassVar[Outcome]
    OUTCOME_FINDINGS: _ClassVar[Outcome]
    OUTCOME_SKIPPED: _ClassVar[Outcome]
    OUTCOME_BROKEN: _ClassVar[Outcome]
    OUTCOME_HUNG: _ClassVar[Outcome]

class HookMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    HOOK_MODE_UNSPECIFIED: _ClassVar[HookMode]
    HOOK_MODE_OBSERVE: _ClassVar[HookMode]
    HOOK_MODE_RECOMMEND: _ClassVar[HookMode]
    HOOK_MODE_ENFORCE: _ClassVar[HookMode]
EVENT_KIND_UNSPECIFIED: EventKind
EVENT_KIND_RAISED: EventKind
EVENT_KIND_CHANGED: EventKind
EVENT_KIND_REPEATED: EventKind
EVENT_KIND_CLEARED: EventKind
EVENT_KIND_OUTCOME: EventKind
EVENT_KIND_AGENT_STARTED: EventKind
EVENT_KIND_AGENT_STOPPED: EventKind
EVENT_KIND_LOST: EventKind
SEVERITY_UNSPECIFIED: Severity
SEVERITY_INFO: Severity
SEVERITY_WARNING: Severity
SEVERITY_MAJOR: Severity
SEVERITY_CRITICAL: Severity
OUTCOME_UNSPECIFIED: Outcome
OUTCOME_OK: Outcome
OUTCOME_FINDINGS: Outcome
OUTCOME_SKIPPED: Outcome
OUTCOME_BROKEN: Outcome
OUTCOME_HUNG: Outcome
HOOK_MODE_UNSPECIFIED: HookMode
HOOK_MODE_OBSERVE: HookMode
HOOK_MODE_RECOMMEND: HookMode
HOOK_MODE_ENFORCE: HookMode

class AgentMessage(_message.Message):
    __slots__ = ("hello", "events", "heartbeat", "result")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    events: EventBatch
    heartbeat: Heartbeat
    result: CommandResult
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., events: _Optional[_Union[EventBatch, _Mapping]] = ..., heartbeat: _Optional[_Union[Heartbeat, _Mapping]] = ..., result: _Optional[_Union[CommandResult, _Mapping]] = ...) -> None: ...

class ControllerMessage(_message.Message):
    __slots__ = ("welcome", "ack", "command", "hooks", "open_set")
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    ACK_FIELD_NUMBER: _ClassVar[int]
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    HOOKS_FIELD_NUMBER: _ClassVar[int]
    OPEN_SET_FIELD_NUMBER: _ClassVar[int]
    welcome: Welcome
    ack: Ack
    command: Command
    hooks: HookAuthority
    open_set: OpenSetWanted
    def __init__(self, welcome: _Optional[_Union[Welcome, _Mapping]] = ..., ack: _Optional[_Union[Ack, _Mapping]] = ..., command: _Optional[_Union[Command, _Mapping]] = ..., hooks: _Optional[_Union[HookAuthority, _Mapping]] = ..., open_set: _Optional[_Union[OpenSetWanted, _Mapping]] = ...) -> None: ...

class OpenSetWanted(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Hello(_message.Message):
    __slots__ = ("protocol", "node", "boot_id", "agent_version", "profile", "unacked_events", "acked_seq")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    BOOT_ID_FIELD_NUMBER: _ClassVar[int]
    AGENT_VERSION_FIELD_NUMBER: _ClassVar[int]
    PROFILE_FIELD_NUMBER: _ClassVar[int]
    UNACKED_EVENTS_FIELD_NUMBER: _ClassVar[int]
    ACKED_SEQ_FIELD_NUMBER: _ClassVar[int]
    protocol: int
    node: str
    boot_id: str
    agent_version: str
    profile: str
    unacked_events: int
    acked_seq: int
    def __init__(self, protocol: _Optional[int] = ..., node: _Optional[str] = ..., boot_id: _Optional[str] = ..., agent_version: _Optional[str] = ..., profile: _Optional[str] = ..., unacked_events: _Optional[int] = ..., acked_seq: _Optional[int] = ...) -> None: ...

class Welcome(_message.Message):
    __slots__ = ("controller_version", "heartbeat_every_ms", "stored", "idle_heartbeat_every_ms")
    CONTROLLER_VERSION_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_EVERY_MS_FIELD_NUMBER: _ClassVar[int]
    STORED_FIELD_NUMBER: _ClassVar[int]
    IDLE_HEARTBEAT_EVERY_MS_FIELD_NUMBER: _ClassVar[int]
    controller_version: str
    heartbeat_every_ms: int
    stored: _containers.RepeatedCompositeFieldContainer[SeqRange]
    idle_heartbeat_every_ms: int
    def __init__(self, controller_version: _Optional[str] = ..., heartbeat_every_ms: _Optional[int] = ..., stored: _Optional[_Iterable[_Union[SeqRange, _Mapping]]] = ..., idle_heartbeat_every_ms: _Optional[int] = ...) -> None: ...

class EventBatch(_message.Message):
    __slots__ = ("events",)
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    events: _containers.RepeatedCompositeFieldContainer[Event]
    def __init__(self, events: _Optional[_Iterable[_Union[Event, _Mapping]]] = ...) -> None: ...

class Event(_message.Message):
    __slots__ = ("boot_id", "seq", "at_unix_us", "at_boot_us", "kind", "check", "component", "fault", "severity", "outcome", "evidence", "occurrences", "confidence", "of_boot", "as_of_seq")
    class EvidenceEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: Value
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[Value, _Mapping]] = ...) -> None: ...
    BOOT_ID_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    AT_UNIX_US_FIELD_NUMBER: _ClassVar[int]
    AT_BOOT_US_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    CHECK_FIELD_NUMBER: _ClassVar[int]
    COMPONENT_FIELD_NUMBER: _ClassVar[int]
    FAULT_FIELD_NUMBER: _ClassVar[int]
    SEVERITY_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    EVIDENCE_FIELD_NUMBER: _ClassVar[int]
    OCCURRENCES_FIELD_NUMBER: _ClassVar[int]
    CONFIDENCE_FIELD_NUMBER: _ClassVar[int]
    OF_BOOT_FIELD_NUMBER: _ClassVar[int]
    AS_OF_SEQ_FIELD_NUMBER: _ClassVar[int]
    boot_id: str
    seq: int
    at_unix_us: int
    at_boot_us: int
    kind: EventKind
    check: str
    component: str
    fault: str
    severity: Severity
    outcome: Outcome
    evidence: _containers.MessageMap[str, Value]
    occurrences: int
    confidence: int
    of_boot: str
    as_of_seq: int
    def __init__(self, boot_id: _Optional[str] = ..., seq: _Optional[int] = ..., at_unix_us: _Optional[int] = ..., at_boot_us: _Optional[int] = ..., kind: _Optional[_Union[EventKind, str]] = ..., check: _Optional[str] = ..., component: _Optional[str] = ..., fault: _Optional[str] = ..., severity: _Optional[_Union[Severity, str]] = ..., outcome: _Optional[_Union[Outcome, str]] = ..., evidence: _Optional[_Mapping[str, Value]] = ..., occurrences: _Optional[int] = ..., confidence: _Optional[int] = ..., of_boot: _Optional[str] = ..., as_of_seq: _Optional[int] = ...) -> None: ...

class Value(_message.Message):
    __slots__ = ("text", "whole", "real", "flag")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    WHOLE_FIELD_NUMBER: _ClassVar[int]
    REAL_FIELD_NUMBER: _ClassVar[int]
    FLAG_FIELD_NUMBER: _ClassVar[int]
    text: str
    whole: int
    real: float
    flag: bool
    def __init__(self, text: _Optional[str] = ..., whole: _Optional[int] = ..., real: _Optional[float] = ..., flag: _Optional[bool] = ...) -> None: ...

class SeqRange(_message.Message):
    __slots__ = ("boot_id", "first_seq", "last_seq")
    BOOT_ID_FIELD_NUMBER: _ClassVar[int]
    FIRST_SEQ_FIELD_NUMBER: _ClassVar[int]
    LAST_SEQ_FIELD_NUMBER: _ClassVar[int]
    boot_id: str
    first_seq: int
    last_seq: int
    def __init__(self, boot_id: _Optional[str] = ..., first_seq: _Optional[int] = ..., last_seq: _Optional[int] = ...) -> None: ...

class Ack(_message.Message):
    __slots__ = ("ranges",)
    RANGES_FIELD_NUMBER: _ClassVar[int]
    ranges: _containers.RepeatedCompositeFieldContainer[SeqRange]
    def __init__(self, ranges: _Optional[_Iterable[_Union[SeqRange, _Mapping]]] = ...) -> None: ...

class Heartbeat(_message.Message):
    __slots__ = ("at_unix_us", "boot_id", "checks", "abandoned_workers", "spooled_events", "ports", "partial", "open", "next_within_ms")
    AT_UNIX_US_FIELD_NUMBER: _ClassVar[int]
    BOOT_ID_FIELD_NUMBER: _ClassVar[int]
    CHECKS_FIELD_NUMBER: _ClassVar[int]
    ABANDONED_WORKERS_FIELD_NUMBER: _ClassVar[int]
    SPOOLED_EVENTS_FIELD_NUMBER: _ClassVar[int]
    PORTS_FIELD_NUMBER: _ClassVar[int]
    PARTIAL_FIELD_NUMBER: _ClassVar[int]
    OPEN_FIELD_NUMBER: _ClassVar[int]
    NEXT_WITHIN_MS_FIELD_NUMBER: _ClassVar[int]
    at_unix_us: int
    boot_id: str
    checks: _containers.RepeatedCompositeFieldContainer[CheckState]
    abandoned_workers: int
    spooled_events: int
    ports: _containers.RepeatedCompositeFieldContainer[PortTraffic]
    partial: bool
    open: OpenSet
    next_within_ms: int
    def __init__(self, at_unix_us: _Optional[int] = ..., boot_id: _Optional[str] = ..., checks: _Optional[_Iterable[_Union[CheckState, _Mapping]]] = ..., abandoned_workers: _Optional[int] = ..., spooled_events: _Optional[int] = ..., ports: _Optional[_Iterable[_Union[PortTraffic, _Mapping]]] = ..., partial: _Optional[bool] = ..., open: _Optional[_Union[OpenSet, _Mapping]] = ..., next_within_ms: _Optional[int] = ...) -> None: ...

class OpenSet(_message.Message):
    __slots__ = ("digest", "as_of_seq", "stated", "findings", "left_out")
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    AS_OF_SEQ_FIELD_NUMBER: _ClassVar[int]
    STATED_FIELD_NUMBER: _ClassVar[int]
    FINDINGS_FIELD_NUMBER: _ClassVar[int]
    LEFT_OUT_FIELD_NUMBER: _ClassVar[int]
    digest: bytes
    as_of_seq: int
    stated: bool
    findings: _containers.RepeatedCompositeFieldContainer[Event]
    left_out: int
    def __init__(self, digest: _Optional[bytes] = ..., as_of_seq: _Optional[int] = ..., stated: _Optional[bool] = ..., findings: _Optional[_Iterable[_Union[Event, _Mapping]]] = ..., left_out: _Optional[int] = ...) -> None: ...

class CheckState(_message.Message):
    __slots__ = ("check", "outcome", "age_ms")
    CHECK_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    AGE_MS_FIELD_NUMBER: _ClassVar[int]
    check: str
    outcome: Outcome
    age_ms: int
    def __init__(self, check: _Optional[str] = ..., outcome: _Optional[_Union[Outcome, str]] = ..., age_ms: _Optional[int] = ...) -> None: ...

class PortTraffic(_message.Message):
    __slots__ = ("port", "rx_bytes", "tx_bytes", "age_ms")
    PORT_FIELD_NUMBER: _ClassVar[int]
    RX_BYTES_FIELD_NUMBER: _ClassVar[int]
    TX_BYTES_FIELD_NUMBER: _ClassVar[int]
    AGE_MS_FIELD_NUMBER: _ClassVar[int]
    port: str
    rx_bytes: int
    tx_bytes: int
    age_ms: int
    def __init__(self, port: _Optional[str] = ..., rx_bytes: _Optional[int] = ..., tx_bytes: _Optional[int] = ..., age_ms: _Optional[int] = ...) -> None: ...

class Command(_message.Message):
    __slots__ = ("id", "run", "clear")
    ID_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    CLEAR_FIELD_NUMBER: _ClassVar[int]
    id: str
    run: RunChecks
    clear: ClearFault
    def __init__(self, id: _Optional[str] = ..., run: _Optional[_Union[RunChecks, _Mapping]] = ..., clear: _Optional[_Union[ClearFault, _Mapping]] = ...) -> None: ...

class RunChecks(_message.Message):
    __slots__ = ("checks",)
    CHECKS_FIELD_NUMBER: _ClassVar[int]
    checks: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, checks: _Optional[_Iterable[str]] = ...) -> None: ...

class ClearFault(_message.Message):
    __slots__ = ("check", "component", "fault", "actor")
    CHECK_FIELD_NUMBER: _ClassVar[int]
    COMPONENT_FIELD_NUMBER: _ClassVar[int]
    FAULT_FIELD_NUMBER: _ClassVar[int]
    ACTOR_FIELD_NUMBER: _ClassVar[int]
    check: str
    component: str
    fault: str
    actor: str
    def __init__(self, check: _Optional[str] = ..., component: _Optional[str] = ..., fault: _Optional[str] = ..., actor: _Optional[str] = ...) -> None: ...

class CommandResult(_message.Message):
    __slots__ = ("id", "done", "message")
    ID_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    id: str
    done: bool
    message: str
    def __init__(self, id: _Optional[str] = ..., done: _Optional[bool] = ..., message: _Optional[str] = ...) -> None: ...

class HookAuthority(_message.Message):
    __slots__ = ("version", "valid_ms", "mode", "breaker_why", "shared_faults", "excluded_faults", "excluded_checks", "incident_faults", "granted", "held")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    VALID_MS_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    BREAKER_WHY_FIELD_NUMBER: _ClassVar[int]
    SHARED_FAULTS_FIELD_NUMBER: _ClassVar[int]
    EXCLUDED_FAULTS_FIELD_NUMBER: _ClassVar[int]
    EXCLUDED_CHECKS_FIELD_NUMBER: _ClassVar[int]
    INCIDENT_FAULTS_FIELD_NUMBER: _ClassVar[int]
    GRANTED_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    version: int
    valid_ms: int
    mode: HookMode
    breaker_why: str
    shared_faults: _containers.RepeatedScalarFieldContainer[str]
    excluded_faults: _containers.RepeatedScalarFieldContainer[str]
    excluded_checks: _containers.RepeatedScalarFieldContainer[str]
    incident_faults: _containers.RepeatedScalarFieldContainer[str]
    granted: _containers.RepeatedCompositeFieldContainer[HookFinding]
    held: _containers.RepeatedCompositeFieldContainer[HookFinding]
    def __init__(self, version: _Optional[int] = ..., valid_ms: _Optional[int] = ..., mode: _Optional[_Union[HookMode, str]] = ..., breaker_why: _Optional[str] = ..., shared_faults: _Optional[_Iterable[str]] = ..., excluded_faults: _Optional[_Iterable[str]] = ..., excluded_checks: _Optional[_Iterable[str]] = ..., incident_faults: _Optional[_Iterable[str]] = ..., granted: _Optional[_Iterable[_Union[HookFinding, _Mapping]]] = ..., held: _Optional[_Iterable[_Union[HookFinding, _Mapping]]] = ...) -> None: ...

class HookFinding(_message.Message):
    __slots__ = ("check", "component", "fault", "incident", "why")
    CHECK_FIELD_NUMBER: _ClassVar[int]
    COMPONENT_FIELD_NUMBER: _ClassVar[int]
    FAULT_FIELD_NUMBER: _ClassVar[int]
    INCIDENT_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    check: str
    component: str
    fault: str
    incident: str
    why: str
    def __init__(self, check: _Optional[str] = ..., component: _Optional[str] = ..., fault: _Optional[str] = ..., incident: _Optional[str] = ..., why: _Optional[str] = ...) -> None: ...

class WatchRequest(_message.Message):
    __slots__ = ("after_cursor", "nodes", "faults", "min_severity", "follow")
    AFTER_CURSOR_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    FAULTS_FIELD_NUMBER: _ClassVar[int]
    MIN_SEVERITY_FIELD_NUMBER: _ClassVar[int]
    FOLLOW_FIELD_NUMBER: _ClassVar[int]
    after_cursor: int
    nodes: _containers.RepeatedScalarFieldContainer[str]
    faults: _containers.RepeatedScalarFieldContainer[str]
    min_severity: Severity
    follow: bool
    def __init__(self, after_cursor: _Optional[int] = ..., nodes: _Optional[_Iterable[str]] = ..., faults: _Optional[_Iterable[str]] = ..., min_severity: _Optional[_Union[Severity, str]] = ..., follow: _Optional[bool] = ...) -> None: ...

class WatchedEvent(_message.Message):
    __slots__ = ("cursor", "node", "received_unix_us", "event")
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_UNIX_US_FIELD_NUMBER: _ClassVar[int]
    EVENT_FIELD_NUMBER: _ClassVar[int]
    cursor: int
    node: str
    received_unix_us: int
    event: Event
    def __init__(self, cursor: _Optional[int] = ..., node: _Optional[str] = ..., received_unix_us: _Optional[int] = ..., event: _Optional[_Union[Event, _Mapping]] = ...) -> None: ...

class Actor(_message.Message):
    __slots__ = ("name", "uid")
    NAME_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    name: str
    uid: int
    def __init__(self, name: _Optional[str] = ..., uid: _Optional[int] = ...) -> None: ...

class NodesRequest(_message.Message):
    __slots__ = ("actor", "nodes", "reason")
    ACTOR_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    actor: Actor
    nodes: str
    reason: str
    def __init__(self, actor: _Optional[_Union[Actor, _Mapping]] = ..., nodes: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class DrainRequest(_message.Message):
    __slots__ = ("actor", "nodes", "reason", "now")
    ACTOR_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    NOW_FIELD_NUMBER: _ClassVar[int]
    actor: Actor
    nodes: str
    reason: str
    now: bool
    def __init__(self, actor: _Optional[_Union[Actor, _Mapping]] = ..., nodes: _Optional[str] = ..., reason: _Optional[str] = ..., now: _Optional[bool] = ...) -> None: ...

class AcceptFaultRequest(_message.Message):
    __slots__ = ("actor", "nodes", "fault", "reason")
    ACTOR_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    FAULT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    actor: Actor
    nodes: str
    fault: str
    reason: str
    def __init__(self, actor: _Optional[_Union[Actor, _Mapping]] = ..., nodes: _Optional[str] = ..., fault: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class LemonRequest(_message.Message):
    __slots__ = ("actor", "nodes", "on", "reason")
    ACTOR_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    ON_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    actor: Actor
    nodes: str
    on: bool
    reason: str
    def __init__(self, actor: _Optional[_Union[Actor, _Mapping]] = ..., nodes: _Optional[str] = ..., on: _Optional[bool] = ..., reason: _Optional[str] = ...) -> None: ...

class MaintenanceRequest(_message.Message):
    __slots__ = ("actor", "nodes", "on", "reason", "until_unix_us")
    ACTOR_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    ON_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    UNTIL_UNIX_US_FIELD_NUMBER: _ClassVar[int]
    actor: Actor
    nodes: str
    on: bool
    reason: str
    until_unix_us: int
    def __init__(self, actor: _Optional[_Union[Actor, _Mapping]] = ..., nodes: _Optional[str] = ..., on: _Optional[bool] = ..., reason: _Optional[str] = ..., until_unix_us: _Optional[int] = ...) -> None: ...

class FleetRequest(_message.Message):
    __slots__ = ("actor", "reason")
    ACTOR_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    actor: Actor
    reason: str
    def __init__(self, actor: _Optional[_Union[Actor, _Mapping]] = ..., reason: _Optional[str] = ...) -> None: ...

class CloseIncidentRequest(_message.Message):
    __slots__ = ("actor", "incident", "reason")
    ACTOR_FIELD_NUMBER: _ClassVar[int]
    INCIDENT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    actor: Actor
    incident: str
    reason: str
    def __init__(self, actor: _Optional[_Union[Actor, _Mapping]] = ..., incident: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class PauseRequest(_message.Message):
    __slots__ = ("actor", "until_unix_us", "reason")
    ACTOR_FIELD_NUMBER: _ClassVar[int]
    UNTIL_UNIX_US_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    actor: Actor
    until_unix_us: int
    reason: str
    def __init__(self, actor: _Optional[_Union[Actor, _Mapping]] = ..., until_unix_us: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class ClearFaultRequest(_message.Message):
    __slots__ = ("actor", "nodes", "fault")
    ACTOR_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    FAULT_FIELD_NUMBER: _ClassVar[int]
    actor: Actor
    nodes: str
    fault: ClearFault
    def __init__(self, actor: _Optional[_Union[Actor, _Mapping]] = ..., nodes: _Optional[str] = ..., fault: _Optional[_Union[ClearFault, _Mapping]] = ...) -> None: ...

class RunChecksRequest(_message.Message):
    __slots__ = ("actor", "nodes", "run")
    ACTOR_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    actor: Actor
    nodes: str
    run: RunChecks
    def __init__(self, actor: _Optional[_Union[Actor, _Mapping]] = ..., nodes: _Optional[str] = ..., run: _Optional[_Union[RunChecks, _Mapping]] = ...) -> None: ...

class NodeReply(_message.Message):
    __slots__ = ("node", "done", "message")
    NODE_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    node: str
    done: bool
    message: str
    def __init__(self, node: _Optional[str] = ..., done: _Optional[bool] = ..., message: _Optional[str] = ...) -> None: ...

class OperatorReply(_message.Message):
    __slots__ = ("done", "message", "nodes")
    DONE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    done: bool
    message: str
    nodes: _containers.RepeatedCompositeFieldContainer[NodeReply]
    def __init__(self, done: _Optional[bool] = ..., message: _Optional[str] = ..., nodes: _Optional[_Iterable[_Union[NodeReply, _Mapping]]] = ...) -> None: ...
