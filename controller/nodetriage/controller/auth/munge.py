"""munge: a node is what a root process with the cluster's key says it is, from one of that node's addresses.

The listener speaks TLS with a certificate of this process's own making. Each side's credential names it, so nobody in
between can use one; docs/identity.md says what that is worth, and what it is not.
"""

import asyncio
import datetime
import ipaddress
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import grpc

from nodetriage.controller.auth.addresses import NodeAddresses
from nodetriage.controller.auth.certificate import Role, fingerprint, self_signed
from nodetriage.controller.auth.identity import Context, Identity, unauthenticated
from nodetriage.controller.auth.identity_settings import IdentitySettings
from nodetriage.controller.refused import Refused
from nodetriage.service.address import peer_host
from nodetriage.service.claim import AGENT, CONTROLLER, METADATA_KEY, SERVER_NAME, TTL_S, Claim, parse
from nodetriage.service.munge import BadCredential, Credential, Munge, MungeError

T = TypeVar("T")

_ASK_LIMIT_S = 5.0
_THREADS = 8  # that wait for munged


class MungeAuthenticator:
    """Belongs to one event loop. Raises MungeError where libmunge is missing."""

    knows_all = False
    ends: datetime.datetime | None = None  # its certificate is made anew at each start

    def __init__(self, settings: IdentitySettings, addresses: NodeAddresses, ask_limit_s: float = _ASK_LIMIT_S) -> None:
        self._settings, self._addresses, self._ask_limit_s = settings, addresses, ask_limit_s
        self._munge = Munge(settings.munge_socket)
        self._pair = self_signed(SERVER_NAME, datetime.datetime.now(datetime.UTC))
        self._certificate = fingerprint(self._pair.certificate)
        self._threads = ThreadPoolExecutor(_THREADS, "munge")
        self._nonces: dict[str, float] = {}

    def credentials(self) -> grpc.ServerCredentials:
        return grpc.ssl_server_credentials([(self._pair.key_pem, self._pair.certificate_pem)])

    async def identify(self, context: Context) -> Identity:
        """Raises Refused, with UNAVAILABLE where munged on this machine is the cause."""
        given = dict(context.invocation_metadata() or ()).get(METADATA_KEY)
        if not isinstance(given, str):
            raise unauthenticated("no munge credential: set [identity] kind = munge on the node")
        try:
            credential = await self._ask(self._munge.decode, given)
            claim = self._claimed(credential)
            await self._is_at_home(claim.node, credential, context.peer())
            ours = Claim(CONTROLLER, claim.node, self._certificate, claim.nonce)
            answer = await self._ask(self._munge.encode, ours.encoded(), TTL_S)
        except BadCredential as error:
            raise unauthenticated(f"munge: {error}") from error
        except (MungeError, TimeoutError) as error:
            why = str(error) or f"munged on the controller's machine did not answer within {self._ask_limit_s:g} s"
            raise Refused(grpc.StatusCode.UNAVAILABLE, f"munge: {why}") from error
        return Identity(claim.node, "munge", Role.NODE, answer=((METADATA_KEY, answer),))

    def _claimed(self, credential: Credential) -> Claim:
        """The credential's claim, if the agent's user made it now and for this connection. Raises Refused."""
        own = self._settings
        claim = parse(credential.payload)
        if claim is None or claim.side != AGENT:
            raise unauthenticated("munge: the credential was not made by an agent for a controller")
        if credential.uid != own.agent_uid:
            raise unauthenticated(f"munge: made by uid {credential.uid} for {claim.node}, expected {own.agent_uid}")
        if not -own.munge_max_age_s <= credential.age_s <= own.munge_max_age_s:
            age = f"{credential.age_s} s old, expected at most {own.munge_max_age_s}"
            raise unauthenticated(f"munge: {claim.node}'s credential is {age}: compare the clocks")
        if claim.certificate != self._certificate:
            raise unauthenticated(f"munge: {claim.node}'s credential is for another connection or controller")
        self._once(claim)
        return claim

    def _once(self, claim: Claim) -> None:
        """Refuses a credential that came before. munged remembers them too, but not across its restart."""
        now_s = asyncio.get_running_loop().time()
        kept_s = 2 * self._settings.munge_max_age_s
        while self._nonces and next(iter(self._nonces.values())) < now_s - kept_s:  # oldest first
            del self._nonces[next(iter(self._nonces))]
        if claim.nonce in self._nonces:
            raise unauthenticated(f"munge: replayed credential of {claim.node}")
        self._nonces[claim.nonce] = now_s

    async def _is_at_home(self, node: str, credential: Credential, peer: str) -> None:
        """Refuses a connection or a credential from elsewhere than the node. Loopback as origin says nothing."""
        known = await self._addresses.of(node)
        source = ipaddress.ip_address(peer_host(peer))
        shown = f"is {', '.join(sorted(map(str, known)))}" if known else "has no known address"
        if source not in known:
            raise unauthenticated(f"munge: {node} called from {source}, but it {shown}")
        if credential.origin not in known and not credential.origin.is_loopback:
            raise unauthenticated(f"munge: {node}'s credential was made on {credential.origin}, but it {shown}")

    async def _ask(self, call: Callable[..., T], *arguments: object) -> T:
        async with asyncio.timeout(self._ask_limit_s):
            return await asyncio.get_running_loop().run_in_executor(self._threads, call, *arguments)
