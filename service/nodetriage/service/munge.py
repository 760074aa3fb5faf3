"""libmunge: credentials that only a process on a machine with the cluster's key can make. munge(3), munge_ctx(3).

Calls block until munged answers: keep them off the event loop. No error text contains a credential.
"""

import ctypes
import functools
import ipaddress
from dataclasses import dataclass
from typing import Any

_SUCCESS, _EXPIRED, _REWOUND, _REPLAYED = 0, 15, 16, 17  # munge_err_t of munge.h
_SOCKET, _TIMEOUT = 6, 7
_TTL, _ADDR4, _ENCODE_TIME, _DECODE_TIME, _SOCKET_NAME = 4, 5, 6, 7, 8  # munge_opt_t
CREDENTIAL_LIMIT_BYTES = 4096  # ours are near 300


class MungeError(Exception):
    """munged is not installed, does not run, or does not answer."""


class BadCredential(MungeError):
    """munged rejects the credential."""


@dataclass(frozen=True, slots=True)
class Credential:
    """What munged confirms. `origin` is the encoding host by its own idea; `age_s` uses both hosts' clocks."""

    payload: bytes
    uid: int
    gid: int
    origin: ipaddress.IPv4Address
    age_s: int
    ttl_s: int


@functools.cache
def _library() -> ctypes.CDLL:
    try:
        library = ctypes.CDLL("libmunge.so.2")
    except OSError as error:
        raise MungeError("libmunge.so.2 cannot be loaded: install munge (Debian: libmunge2)") from error
    library.munge_ctx_create.restype = ctypes.c_void_p
    library.munge_ctx_create.argtypes = []
    library.munge_ctx_destroy.restype = None
    library.munge_ctx_destroy.argtypes = [ctypes.c_void_p]
    pointer, c_int = ctypes.c_void_p, ctypes.c_int
    library.munge_encode.argtypes = [ctypes.POINTER(ctypes.c_void_p), pointer, ctypes.c_char_p, c_int]
    library.munge_decode.argtypes = [ctypes.c_char_p, pointer, pointer, pointer, pointer, pointer]
    library.munge_strerror.restype = ctypes.c_char_p
    library.munge_strerror.argtypes = [c_int]
    return library


@functools.cache
def _free() -> Any:
    free = ctypes.CDLL(None).free
    free.argtypes, free.restype = [ctypes.c_void_p], None
    return free


class _Context:
    """One munge_ctx_t, and the errors of the calls with it."""

    def __init__(self, socket: str) -> None:
        self.library = _library()
        self._pointer: int | None = self.library.munge_ctx_create()
        if not self._pointer:
            raise MungeError("libmunge: out of memory")
        if socket:
            self.set(_SOCKET_NAME, ctypes.c_char_p(socket.encode()))

    def __enter__(self) -> "_Context":
        return self

    def __exit__(self, *_: object) -> None:
        self.library.munge_ctx_destroy(self.pointer)

    @property
    def pointer(self) -> ctypes.c_void_p:
        return ctypes.c_void_p(self._pointer)

    def set(self, option: int, value: Any) -> None:
        self.check(self.library.munge_ctx_set(self.pointer, ctypes.c_int(option), value))

    def get(self, option: int, into: Any) -> Any:
        self.check(self.library.munge_ctx_get(self.pointer, ctypes.c_int(option), ctypes.byref(into)))
        return into.value

    def check(self, status: int) -> None:
        if status == _SUCCESS:
            return
        text = self.library.munge_strerror(status).decode(errors="replace")
        if status in (_SOCKET, _TIMEOUT):
            raise MungeError(f"munged does not answer: {text}")
        raise BadCredential(text.lower())


class Munge:
    """munged behind `socket` (empty: libmunge's own default). Safe to use from several threads.

    Raises MungeError where libmunge is not installed. Calls raise it where munged does not run.
    """

    def __init__(self, socket: str = "") -> None:
        _library()
        self._socket = socket

    def encode(self, payload: bytes, ttl_s: int) -> str:
        """A credential of this process's uid around `payload`. Raises MungeError."""
        with _Context(self._socket) as context:
            context.set(_TTL, ctypes.c_int(ttl_s))
            made = ctypes.c_void_p()
            context.check(context.library.munge_encode(ctypes.byref(made), context.pointer, payload, len(payload)))
            try:
                return ctypes.string_at(made.value or 0).decode("ascii")
            finally:
                _free()(made)

    def decode(self, credential: str) -> Credential:
        """The content of a credential. Raises BadCredential (forged, expired, replayed, for others) or MungeError."""
        if len(credential) > CREDENTIAL_LIMIT_BYTES or not credential.isascii() or "\0" in credential:
            raise BadCredential("not a munge credential")
        with _Context(self._socket) as context:
            payload, size = ctypes.c_void_p(), ctypes.c_int()
            uid, gid = ctypes.c_uint(), ctypes.c_uint()
            out = [ctypes.byref(value) for value in (payload, size, uid, gid)]
            try:
                context.check(context.library.munge_decode(credential.encode(), context.pointer, *out))
                data = ctypes.string_at(payload.value, size.value) if payload.value else b""
            finally:
                _free()(payload)  # also set where the credential is expired or replayed
            address = (ctypes.c_ubyte * 4)()
            status = context.library.munge_ctx_get(context.pointer, ctypes.c_int(_ADDR4), ctypes.byref(address))
            context.check(status)
            made, now = (context.get(option, ctypes.c_long()) for option in (_ENCODE_TIME, _DECODE_TIME))
            ttl_s = context.get(_TTL, ctypes.c_int())
        return Credential(data, uid.value, gid.value, ipaddress.IPv4Address(bytes(address)), now - made, ttl_s)
