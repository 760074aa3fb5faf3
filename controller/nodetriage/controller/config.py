"""The controller's settings: frozen values from controller.toml and controller.d/*.toml. Unknown keys are errors."""

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from nodetriage.checks.model.settings import ConfigError, load_toml, replace_from
from nodetriage.controller.auth.identity_settings import IdentitySettings
from nodetriage.controller.auth.pki_settings import PkiSettings
from nodetriage.controller.metrics_settings import MetricsSettings
from nodetriage.controller.rpc.peer_limits import AdmissionSettings
from nodetriage.controller.scheduler import NoScheduler, Scheduler
from nodetriage.controller.settings.lemon_study import LemonStudySettings
from nodetriage.controller.settings.policy_file import load_policy, shipped_policy
from nodetriage.controller.settings.retention import RetentionSettings
from nodetriage.controller.settings.rules import Policy
from nodetriage.controller.slurm import topology
from nodetriage.controller.store.database import has_password, sqlite_url, with_password

if TYPE_CHECKING:
    from nodetriage.controller.slurm.rest import Slurmrestd

DEFAULT_CONFIG = Path("/etc/nodetriage/controller.toml")


@dataclass(frozen=True, slots=True)
class Controller:
    """[controller]"""

    listen: str = "127.0.0.1:7443"  # where agents connect: HOST:PORT or unix:PATH
    state_dir: Path = Path("/var/lib/nodetriage-controller")  # folder of the history; each controller has its own
    run_dir: Path | None = None  # folder of operator.sock, which takes nodetriagectl's orders; none: state_dir
    topology: Path | None = (
        None  # file that says what nodes share; none: topology.toml beside controller.toml, if it exists
    )
    database: str = ""  # postgresql://HOST/NAME; empty: history.sqlite in state_dir
    database_password_file: Path | None = None  # holds the password alone; mode 0600, owned by the controller's user
    heartbeat_every_s: float = 5.0  # every agent's period; 0 leaves each agent to its own setting
    idle_heartbeats: float = 4.0  # a node without a job has a period that is so many times longer, at least 1
    expected_nodes: str = ""  # a node set, n[1-100]: nodes that should report though the scheduler does not list them
    missed_heartbeats: int = 6  # so many in a row make a node silent; two and a half of a node without a job

    def __post_init__(self) -> None:
        if not 0 <= self.heartbeat_every_s <= 3600:
            raise ValueError(f"heartbeat_every_s: expected 0 to 3600, got {self.heartbeat_every_s:g}")
        if not 1 <= self.idle_heartbeats <= 100:
            raise ValueError(f"idle_heartbeats: expected 1 to 100, got {self.idle_heartbeats:g}")
        if self.missed_heartbeats < 1:
            raise ValueError(f"missed_heartbeats: expected at least 1, got {self.missed_heartbeats}")

    @property
    def idle_heartbeat_every_s(self) -> float:
        """Of a node without a job; 0 where each agent has its own period, which then does not depend on jobs."""
        return self.heartbeat_every_s * self.idle_heartbeats


@dataclass(frozen=True, slots=True)
class SchedulerSettings:
    """[scheduler]"""

    kind: Literal["none", "slurm"] = "slurm"
    slurm_conf: str = ""  # path, if it is not the default of Slurm's commands
    timeout_s: float = 10.0  # how long one Slurm command may take
    scan_every_s: float = 60.0  # how often the controller reads all nodes; it also does so after each action
    max_calls_per_s: float = 20.0  # commands and REST calls together; further calls wait
    rest: str = ""  # slurmrestd that drains nodes: unix:/PATH, http://HOST:PORT (loopback) or https://HOST:PORT
    rest_user: str = "root"  # the user whose token it is
    rest_token_file: Path | None = (
        None  # file of a JWT, read for each call; none: slurmrestd knows the controller by its Unix socket
    )

    def __post_init__(self) -> None:
        for name in ("timeout_s", "scan_every_s", "max_calls_per_s"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name}: expected more than 0, got {getattr(self, name):g}")
        self.new_rest()

    def new_rest(self) -> "Slurmrestd | None":
        """Raises ValueError where `rest` is no address."""
        if not self.rest:
            return None
        from nodetriage.controller.slurm.rest import RestSettings, Slurmrestd

        return Slurmrestd(RestSettings(self.rest, self.rest_user, self.rest_token_file, self.timeout_s))


@dataclass(frozen=True, slots=True)
class PolicyFile:
    """[policy]"""

    file: Path | None = None  # none: policy.toml beside controller.toml, else the policy of the package


@dataclass(frozen=True, slots=True)
class ControllerSettings:
    """All settings of a controller. `policy.file` is the policy in force, or None for the shipped one."""

    controller: Controller = Controller()
    scheduler: SchedulerSettings = SchedulerSettings()
    policy: PolicyFile = PolicyFile()
    admission: AdmissionSettings = field(default_factory=AdmissionSettings)
    identity: IdentitySettings = field(default_factory=IdentitySettings)
    pki: PkiSettings = field(default_factory=PkiSettings)
    metrics: MetricsSettings = field(default_factory=MetricsSettings)
    lemons: LemonStudySettings = field(default_factory=LemonStudySettings)
    retention: RetentionSettings = field(default_factory=RetentionSettings)

    @property
    def database_url(self) -> str:
        """With the password, where a file holds it. Raises ConfigError where that file cannot be read."""
        own = self.controller
        if not own.database:
            return sqlite_url(own.state_dir)
        return with_password(own.database, own.database_password_file) if own.database_password_file else own.database

    @property
    def expected_nodes(self) -> tuple[str, ...]:
        """Raises ConfigError where they are no node set."""
        from nodetriage.controller.slurm.node_list import expand

        if (names := expand(self.controller.expected_nodes)) is None:
            named = self.controller.expected_nodes
            raise ConfigError(f"controller.expected_nodes: expected a node set as n[1-100], got {named[:80]!r}")
        return names

    @property
    def run_dir(self) -> Path:
        return self.controller.run_dir or self.controller.state_dir

    def load_topology(self) -> Mapping[str, tuple[str, ...]]:
        """Raises ConfigError."""
        return topology.load(self.controller.topology) if self.controller.topology else {}

    def load_policy(self) -> Policy:
        """Raises ConfigError."""
        return load_policy(self.policy.file) if self.policy.file else shipped_policy()

    def why_mode(self, policy: Policy) -> tuple[str, str]:
        """The mode that is in force with this policy, and why. Raises ConfigError."""
        if self.scheduler.kind == "none":
            return "observe", "[scheduler] kind is none: there is nothing to act on"
        file = self.policy.file
        if file is None:
            return str(policy.mode), "there is no policy.toml: the policy of the package is in force"
        named = "mode" in load_toml(file)
        return str(policy.mode), f"{file} {'sets it' if named else 'sets no mode'}"

    def new_scheduler(self, may_act: Callable[[], bool] | None = None) -> Scheduler:
        """`may_act` is asked before each command that changes something."""
        if self.scheduler.kind == "none":
            return NoScheduler()
        from nodetriage.controller.slurm.client import Slurm

        own = self.scheduler
        slurm = Slurm(own.slurm_conf, own.timeout_s, max_calls_per_s=own.max_calls_per_s, rest=own.new_rest())
        slurm.may_act = may_act or slurm.may_act
        return slurm


def files(path: Path) -> tuple[Path, ...]:
    """What `load` reads, in order: `path`, then controller.d/*.toml beside it (`path` with .d) by name."""
    return (path, *sorted(path.with_suffix(".d").glob("*.toml")))


def load(path: Path) -> ControllerSettings:
    """Reads all `files`; a later key wins.

    Raises ConfigError: one line with the file, the key, and what was expected.
    """
    settings = ControllerSettings()
    for file in files(path):
        try:
            table = load_toml(file)
            settings = replace_from(ControllerSettings, settings, table, str(file))
        except ValueError as error:
            raise ConfigError(f"{file}: {error}") from error
        _keep_password(file, table)
    shared = _beside(settings.controller.topology, path.parent, "topology.toml")
    controller = dataclasses.replace(settings.controller, topology=shared)
    policy = PolicyFile(_beside(settings.policy.file, path.parent, "policy.toml"))
    return dataclasses.replace(settings, controller=controller, policy=policy)


def _keep_password(file: Path, table: Mapping[str, Any]) -> None:
    """Raises ConfigError where `file` has the database's password and every user of the machine can read it."""
    if file.stat().st_mode & 0o004 and has_password(table.get("controller", {}).get("database", "")):
        raise ConfigError(
            f"{file}: controller.database: has a password, and every user can read this file: "
            f"chmod 0640 {file}, or move the password to controller.database_password_file"
        )


def _beside(named: Path | None, folder: Path, default: str) -> Path | None:
    if named is not None:
        return folder / named
    beside = folder / default
    return beside if beside.exists() else None


def needs_restart(old: ControllerSettings, new: ControllerSettings) -> list[str]:
    """The changed sections that a running controller cannot take over: all but the policy and identity.deny."""
    old = dataclasses.replace(old, identity=dataclasses.replace(old.identity, deny=new.identity.deny))
    names = [f.name for f in dataclasses.fields(ControllerSettings) if f.name not in ("policy", "pki")]
    return [name for name in names if getattr(old, name) != getattr(new, name)]
