"""The way in which this controller's settings want peers to show who they are."""

from nodetriage.checks.model.settings import ConfigError
from nodetriage.controller.config import ControllerSettings
from nodetriage.controller.identity import Proof, ThisMachine
from nodetriage.controller.munge_proof import MungeProof
from nodetriage.controller.node_addresses import NodeAddresses, no_hosts
from nodetriage.controller.slurm import Slurm
from nodetriage.controller.tls_proof import TlsProof
from nodetriage.service.address import is_unix
from nodetriage.service.munge import MungeError


def new_proof(settings: ControllerSettings) -> Proof:
    """Raises ConfigError where it could not be used. Call it within the event loop's thread."""
    own = settings.identity
    if own.kind == "none" or is_unix(settings.controller.listen):
        return ThisMachine()
    if own.kind == "tls":
        return TlsProof(own)
    scheduler = settings.new_scheduler()
    try:
        return MungeProof(own, NodeAddresses(scheduler.hosts if isinstance(scheduler, Slurm) else no_hosts))
    except MungeError as error:
        raise ConfigError(f"identity.kind: munge: {error}") from error
