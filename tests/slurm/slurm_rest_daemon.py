"""slurmrestd for a test cluster, on a Unix socket or with tokens on TCP."""

import contextlib
import os
import socket
from pathlib import Path

from slurm_cluster import SlurmCluster, free_ports
from slurm_wait import wait_until


def start_rest(cluster: SlurmCluster) -> str:
    """The address of a slurmrestd on a Unix socket, which acts as root for root."""
    socket_path = cluster.directory / "run/rest.sock"
    plugin = "openapi/slurmctld" if cluster.root else "openapi/v0.0.38"
    argv = ("slurmrestd", "-s", plugin, "-a", "rest_auth/local", f"unix:{socket_path}")
    # It refuses to run as root, unless told.
    cluster.daemon("slurmrestd", *argv, SLURMRESTD_SECURITY="disable_user_check")
    wait_until(socket_path.exists, 90, "slurmrestd listens")
    return f"unix:{socket_path}"


def start_rest_with_tokens(cluster: SlurmCluster) -> tuple[str, str]:
    """(address, token of root) of a slurmrestd on TCP; the cluster must know `jwt_conf` of its folder."""
    port = free_ports(1)
    argv = ("slurmrestd", "-s", "openapi/slurmctld", "-a", "rest_auth/jwt", f"127.0.0.1:{port}")
    nobody = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
    cluster.daemon("slurmrestd-jwt", *nobody, *argv, SLURM_JWT="daemon")
    wait_until(lambda: _listens(port), 90, "slurmrestd listens")
    return f"http://127.0.0.1:{port}", cluster.run("scontrol", "token", "lifespan=600").strip().removeprefix(
        "SLURM_JWT="
    )


def jwt_conf(directory: Path) -> str:
    """Lines of slurm.conf that let a cluster in `directory` take tokens; makes their key."""
    key = directory / "jwt.key"
    key.touch(mode=0o600)
    key.write_bytes(os.urandom(32))
    return f"AuthAltTypes=auth/jwt\nAuthAltParameters=jwt_key={key}\n"


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False
