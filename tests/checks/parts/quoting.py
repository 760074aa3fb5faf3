"""What an unprivileged user does to make the kernel print text of his choice; run as a program of its own.

    python quoting.py overlay|tmpfs|segfault|interface|memory TEXT

Prints what happened; ends with 0 where the kernel was made to speak, 3 where this kernel does not allow the attempt.
"""

import ctypes
import os
import resource
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

_CLONE_NEWNS, _CLONE_NEWUSER, _CLONE_NEWNET = 0x00020000, 0x10000000, 0x40000000
_PR_SET_NAME = 15
_NOT_ALLOWED = 3
_libc = ctypes.CDLL(None, use_errno=True)


def _become_root_of_a_namespace(flags: int) -> None:
    uid, gid = os.getuid(), os.getgid()
    if _libc.unshare(_CLONE_NEWUSER | flags) != 0:
        print(f"unshare: {os.strerror(ctypes.get_errno())}")
        sys.exit(_NOT_ALLOWED)
    for name, text in (("setgroups", "deny"), ("uid_map", f"0 {uid} 1"), ("gid_map", f"0 {gid} 1")):
        Path(f"/proc/self/{name}").write_text(text)


def _mount(kind: str, options: bytes) -> None:
    """The mount fails, and the kernel says of which option."""
    _become_root_of_a_namespace(_CLONE_NEWNS)
    with tempfile.TemporaryDirectory() as folder:
        done = _libc.mount(kind.encode(), folder.encode(), kind.encode(), 0, options)
        print(f"mount: {done} {os.strerror(ctypes.get_errno())}")


def overlay(text: str) -> None:
    quoted = text.replace("\\", "\\\\").replace(":", "\\:").replace(",", "\\,")
    _mount("overlay", b"lowerdir=%s,upperdir=/u,workdir=/w" % quoted.encode())


def tmpfs(text: str) -> None:
    _mount("tmpfs", text.replace(",", ";").replace("=", "-").encode() + b"=1")


def segfault(text: str) -> None:
    """The process takes the text as its name, of which the kernel keeps 15 characters, and reads at address 0."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if (child := os.fork()) == 0:
        signal.signal(signal.SIGSEGV, signal.SIG_DFL)
        _libc.prctl(_PR_SET_NAME, text.encode(), 0, 0, 0)
        ctypes.string_at(0)
    print(f"child: {os.waitpid(child, 0)[1]}")


def interface(text: str) -> None:
    """An interface takes the text as its name, without the characters that such a name may not have."""
    _become_root_of_a_namespace(_CLONE_NEWNET)
    name = "".join("_" if c in "/:" or c.isspace() else c for c in text)[:15]
    for kind in ("dummy", "bridge", "veth"):
        if subprocess.run(["ip", "link", "add", "one", "type", kind], check=False, capture_output=True).returncode == 0:
            done = subprocess.run(
                ["ip", "link", "set", "one", "name", name], check=False, capture_output=True, text=True
            )
            print(f"{kind}: {done.returncode} {done.stderr}")
            sys.exit(done.returncode)
    sys.exit(_NOT_ALLOWED)


def memory(text: str) -> None:
    """A process of that name takes more memory than its control group may have."""
    _libc.prctl(_PR_SET_NAME, text.encode(), 0, 0, 0)
    held = [bytearray(1 << 20) for _ in range(256)]
    print(len(held))


if __name__ == "__main__":
    {"overlay": overlay, "tmpfs": tmpfs, "segfault": segfault, "interface": interface, "memory": memory}[sys.argv[1]](
        sys.argv[2]
    )
