"""The agent's settings: frozen values, decoded strictly from agent.toml and conf.d/*.toml."""

import dataclasses
import os
import socket
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from nodetriage.agent.reach.settings import ReachSettings
from nodetriage.agent.reach.settings import check_of as reach_check
from nodetriage.agent.redfish_settings import RedfishSettings
from nodetriage.agent.settings import commands, layers
from nodetriage.agent.settings.layers import Layer
from nodetriage.agent.site_commands import SiteCommand, check_of
from nodetriage.checks.model import Check
from nodetriage.checks.model.settings import ConfigError, leaf_keys, merged, replace_from


@dataclass(frozen=True, slots=True)
class Agent:
    """[agent]"""

    node: str = ""  # this node's name in the scheduler; empty: SLURMD_NODENAME, else the short host name
    state_dir: Path = Path("/var/lib/nodetriage")  # unsent events and the state; each agent needs its own
    run_dir: Path = Path("/run/nodetriage")  # the control socket, agent.sock
    heartbeat_s: float = 5.0  # time between heartbeats, unless the controller asks for another
    root: Path = Path("/")  # for trials: a recorded machine's folder instead of this machine
    boot_grace_s: float = 300.0  # this long after boot, a missing GPU is unknown and not a fault

    def __post_init__(self) -> None:
        if not 0.05 <= self.heartbeat_s <= 3600:
            raise ValueError(f"heartbeat_s: expected 0.05 to 3600, got {self.heartbeat_s:g}")

    @property
    def socket(self) -> Path:
        return self.run_dir / "agent.sock"


@dataclass(frozen=True, slots=True)
class Controller:
    """[controller]"""

    addresses: tuple[str, ...] = ()  # host:port or unix:/path, tried in turn; empty: no controller


@dataclass(frozen=True, slots=True)
class IdentitySettings:
    """[identity]"""

    kind: Literal["none", "tls", "munge"] = "none"  # how this node proves its identity; none: plaintext
    ca: Path = Path("/etc/nodetriage/ca.crt")  # tls: authorities of controllers, one or more in PEM
    certificate: Path = Path("/etc/nodetriage/node.crt")  # tls: its DNS name must be the node's name
    key: Path = Path("/etc/nodetriage/node.key")  # tls: the file's mode must be 0600
    controller_name: str = ""  # tls: the name in the controller's certificate; empty: the address's host
    munge_socket: str = ""  # munge: munged's socket; empty: libmunge's default
    controller_uid: int = 0  # munge: the uid of the controller's process


@dataclass(frozen=True, slots=True)
class KernelLogSettings:
    """[kernel_log]"""

    path: Path = Path("/dev/kmsg")  # the device, or a pty, FIFO or file to replay
    accept_user_records: bool = False  # for trials: also believe records that programs wrote


@dataclass(frozen=True, slots=True)
class Profile:
    """[profile]"""

    name: str = ""  # the hardware to expect: a profile's name or a file.toml; empty: chosen by the machine


@dataclass(frozen=True, slots=True)
class SpoolSettings:
    """[spool]"""

    max_mib: int = 16  # most room for events that no controller has acknowledged

    def __post_init__(self) -> None:
        if self.max_mib < 1:
            raise ValueError(f"max_mib: expected at least 1, got {self.max_mib}")


@dataclass(frozen=True, slots=True)
class ProgramSettings:
    """[programs]: how to call the programs that checks run, first word and arguments"""

    # A BMC over the network: ["ipmitool", "-I", "lanplus", "-H", "bmc", "-U", "monitor", "-f", "/etc/nodetriage/bmc"]
    ipmitool: tuple[str, ...] = ("ipmitool",)
    nvme: tuple[str, ...] = ("nvme",)
    smartctl: tuple[str, ...] = ("smartctl",)
    systemctl: tuple[str, ...] = ("systemctl",)

    def __post_init__(self) -> None:
        for name in ("ipmitool", "nvme", "smartctl", "systemctl"):
            if not getattr(self, name):
                raise ValueError(f"{name}: expected the program's name and its arguments, got an empty list")

    def by_name(self) -> dict[str, tuple[str, ...]]:
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}


CHEAP = "cheap"  # in a hook's list: every check that is marked as cheap enough
COMMANDS = "commands"  # in a hook's list: every [checks.command.NAME]


@dataclass(frozen=True, slots=True)
class HookSettings:
    """[hooks]"""

    mode: Literal["observe", "enforce"] = "observe"  # where no controller is set; else the controller's policy decides
    deadline_s: float = 1.0  # a hook answers within this time; a job never waits longer
    fresh_s: float = 600.0  # a finding that no run has seen for longer refuses no job
    never_refuse: tuple[str, ...] = ()  # shell patterns of fault codes that never refuse a job
    trusted: tuple[str, ...] = ()  # faults that may refuse though faults.toml does not know or does not trust them
    stale_after: float = 2.0  # a check's result counts for this many of its periods (every_s)
    reuse_s: float = 1.0  # a hook uses a result that is younger, instead of a run of its own
    prolog_checks: tuple[str, ...] = (CHEAP, COMMANDS)  # run before each job: names of checks, cheap, commands
    epilog_checks: tuple[str, ...] = (CHEAP, "gpu_processes", "after_job")  # run after each job: likewise

    def __post_init__(self) -> None:
        if not 0.05 <= self.deadline_s <= 60:
            raise ValueError(f"deadline_s: expected 0.05 to 60, got {self.deadline_s:g}")
        if self.stale_after < 1 or self.fresh_s < 1:
            raise ValueError("expected stale_after and fresh_s of at least 1")


@dataclass(frozen=True, slots=True)
class Sections:
    """All tables of the file except [checks]."""

    agent: Agent = Agent()
    controller: Controller = Controller()
    identity: IdentitySettings = IdentitySettings()
    kernel_log: KernelLogSettings = KernelLogSettings()
    profile: Profile = Profile()
    spool: SpoolSettings = SpoolSettings()
    hooks: HookSettings = HookSettings()
    programs: ProgramSettings = ProgramSettings()
    redfish: RedfishSettings = field(default_factory=RedfishSettings)


@dataclass(frozen=True, slots=True)
class Schedule:
    """The keys of [checks.NAME] that every check has. The others are the check's own policy."""

    enabled: bool = True
    every_s: float = 300.0
    timeout_s: float = 5.0
    raise_after: int = 1
    clear_after: int = 1

    def __post_init__(self) -> None:
        for name in ("every_s", "timeout_s"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name}: expected more than 0, got {getattr(self, name):g}")
        for name in ("raise_after", "clear_after"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: expected at least 1, got {getattr(self, name)}")


COMMON_KEYS = tuple(f.name for f in dataclasses.fields(Schedule))


@dataclass(frozen=True, slots=True)
class CheckSettings:
    """One check with its settings in force. `overrides` are the keys of its policy that the files set."""

    check: Check[Any, Any]
    enabled: bool = True
    overrides: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AgentSettings(Sections):
    """All settings of a running agent."""

    checks: Mapping[str, CheckSettings] = field(default_factory=dict)
    reach: ReachSettings = field(
        default_factory=ReachSettings
    )  # [checks.reach]; a check too, where it names an address
    commands: Mapping[str, SiteCommand] = field(default_factory=dict)  # [checks.command.NAME]; each is a check too
    files: tuple[Path, ...] = ()  # the files that were read, in order
    sources: Mapping[str, str] = field(default_factory=dict)  # by key: the file and table that set it

    @property
    def enabled(self) -> tuple[Check[Any, Any], ...]:
        return tuple(c.check for c in self.checks.values() if c.enabled)


def defaults(checks: Iterable[Check[Any, Any]]) -> AgentSettings:
    """The settings of an empty file."""
    return AgentSettings(checks=MappingProxyType({c.name: CheckSettings(c) for c in checks}))


def load(path: Path, checks: Iterable[Check[Any, Any]], node: str = "", ignore: Collection[str] = ()) -> AgentSettings:
    """Reads `path`, then conf.d/*.toml beside it by name; a later key wins. In each file the [[hosts]] tables for
    this node (`node`, else the name in the settings) win over the other tables; those of other nodes are only checked.

    `ignore` names tables to leave out. Raises ConfigError: one line with the file, the key, and what was expected.
    """
    files = (path, *sorted((path.parent / "conf.d").glob("*.toml")))
    read = layers.read(files, ignore)
    own, for_hosts = ([layer for layer in read if bool(layer.nodes) is there] for there in (False, True))
    settings = {c.name: CheckSettings(c) for c in checks}
    if for_hosts and not node:
        alone = Sections()
        for layer in own:
            alone, _ = _applied(alone, settings, layer)
        node = node_name(alone.agent.node)
    sections, sources = Sections(), dict[str, str]()
    own_commands, all_commands = dict[str, SiteCommand](), dict[str, SiteCommand]()
    taken = (*settings, CHEAP, COMMANDS, "reach")
    own_reach = ReachSettings()
    for layer in read:
        result = _applied(sections, settings, layer)
        with_its_reach = commands.reach_of(own_reach, layer)
        all_commands = commands.merged(all_commands, layer, taken)  # so that those of other nodes are checked too
        if layer.applies(node):
            (sections, settings), own_reach = result, with_its_reach
            own_commands = commands.merged(own_commands, layer, taken)
            sources |= dict.fromkeys(leaf_keys(layer.table), layer.where)
    settings |= {n: CheckSettings(check_of(n, c), c.enabled) for n, c in own_commands.items()}
    if own_reach.addresses:
        settings["reach"] = CheckSettings(reach_check(own_reach), own_reach.enabled)
    _check_lists(sections.hooks, settings, sources)
    parts = {f.name: getattr(sections, f.name) for f in dataclasses.fields(sections)}
    return AgentSettings(
        **parts,
        checks=MappingProxyType(settings),
        reach=own_reach,
        commands=MappingProxyType(own_commands),
        files=files,
        sources=MappingProxyType(sources),
    )


def _check_lists(hooks: HookSettings, settings: Mapping[str, CheckSettings], sources: Mapping[str, str]) -> None:
    """Raises ConfigError for a hook's list that names what is no check."""
    for key in ("prolog_checks", "epilog_checks"):
        where = sources.get(f"hooks.{key}", "")  # the default names checks that another catalogue may lack
        for name in getattr(hooks, key) if where else ():
            if name not in (*settings, CHEAP, COMMANDS):
                known = ", ".join((CHEAP, COMMANDS, *sorted(settings)))
                raise ConfigError(f"{where}: hooks.{key}: unknown check {name!r}; expected one of {known}")


def _applied(
    sections: Sections, settings: dict[str, CheckSettings], layer: Layer
) -> tuple[Sections, dict[str, CheckSettings]]:
    table = dict(layer.table)
    tuned = table.pop("checks", {})
    if not isinstance(tuned, dict):
        raise ConfigError(f"{layer.where}: checks: expected a table, got {tuned!r}")
    settings = dict(settings)
    for name, keys in commands.without(tuned).items():
        settings[name] = _tuned(settings, name, keys, layer.where)
    return replace_from(Sections, sections, table, layer.where, ""), settings


def _tuned(settings: Mapping[str, CheckSettings], name: str, keys: Any, where: str) -> CheckSettings:
    """Adds one [checks.NAME] table of one file to the settings so far."""
    key = f"checks.{name}"
    if name not in settings:
        raise ConfigError(f"{where}: {key}: unknown check; known checks: {', '.join(sorted(settings))}")
    if not isinstance(keys, dict):
        raise ConfigError(f"{where}: {key}: expected a table, got {keys!r}")
    old = settings[name]
    known = {*COMMON_KEYS, *(f.name for f in dataclasses.fields(old.check.policy))}
    for unknown in keys.keys() - known:
        raise ConfigError(f"{where}: {key}.{unknown}: unknown key; known keys: {', '.join(sorted(known))}")
    now = Schedule(old.enabled, **{k: getattr(old.check, k) for k in COMMON_KEYS if k != "enabled"})
    now = replace_from(Schedule, now, {k: v for k, v in keys.items() if k in COMMON_KEYS}, where, key)
    own = {k: v for k, v in keys.items() if k not in COMMON_KEYS}
    policy = replace_from(type(old.check.policy), old.check.policy, own, where, key)
    running = {k: getattr(now, k) for k in COMMON_KEYS if k != "enabled"}
    return CheckSettings(
        dataclasses.replace(old.check, policy=policy, **running), now.enabled, merged(old.overrides, own)
    )


def node_name(setting: str, environ: Mapping[str, str] = os.environ, host_name: str | None = None) -> str:
    """This node's name in the scheduler (Slurm's NodeName), which may differ from the host's."""
    return setting or environ.get("SLURMD_NODENAME") or (host_name or socket.gethostname()).partition(".")[0]
