"""The way in which this controller's settings want peers to show who they are."""

from nodetriage.checks.model.settings import ConfigError
from nodetriage.controller.auth.addresses import NodeAddresses, no_hosts
from nodetriage.controller.auth.identity import Authenticator, ThisMachine
from nodetriage.controller.auth.munge import MungeAuthenticator
from nodetriage.controller.auth.tls import TlsAuthenticator
from nodetriage.controller.config import ControllerSettings
from nodetriage.controller.slurm.client import Slurm
from nodetriage.service.address import is_unix
from nodetriage.service.munge import MungeError


def new_authenticator(settings: ControllerSettings) -> Authenticator:
    """Raises ConfigError where it could not be used. Call it within the event loop's thread."""
    own = settings.identity
    if own.kind == "none" or is_unix(settings.controller.listen):
        return ThisMachine()
    if own.kind == "tls":
        return TlsAuthenticator(own)
    scheduler = settings.new_scheduler()
    try:
        return MungeAuthenticator(own, NodeAddresses(scheduler.hosts if isinstance(scheduler, Slurm) else no_hosts))
    except MungeError as error:
        raise ConfigError(f"identity.kind: munge: {error}") from error
