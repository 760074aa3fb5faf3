"""Job history for a test cluster, as sites have it: slurmdbd and MariaDB, both in the cluster's folder."""

import subprocess
from typing import TYPE_CHECKING

from slurm_wait import wait_until

if TYPE_CHECKING:
    from slurm_cluster import SlurmCluster

PROGRAMS = ("slurmdbd", "sacct", "sacctmgr", "mariadbd", "mariadb-admin", "mariadb-install-db")


def start_accounting(cluster: "SlurmCluster", port: int) -> None:
    """slurmdbd on a MariaDB of its own; returns when it knows the cluster."""
    run, data = cluster.directory / "run", cluster.directory / "db"
    sql_socket = run / "mysql.sock"
    install = ["mariadb-install-db", "--no-defaults", f"--datadir={data}", "--user=root", "--skip-test-db"]
    subprocess.run(
        [*install, "--auth-root-authentication-method=socket", "--innodb-log-file-size=8M"],
        check=True,
        capture_output=True,
    )
    small = ["--innodb-buffer-pool-size=32M", "--innodb-log-file-size=8M", "--innodb-flush-log-at-trx-commit=0"]
    place = [f"--datadir={data}", f"--socket={sql_socket}", f"--pid-file={run}/mysqld.pid"]
    cluster.daemon("mariadbd", "mariadbd", "--no-defaults", *place, "--user=root", "--skip-networking", *small)
    ping = ["mariadb-admin", "--no-defaults", f"--socket={sql_socket}", "ping"]
    wait_until(lambda: subprocess.run(ping, capture_output=True).returncode == 0, 90, "MariaDB answers")
    conf = cluster.directory / "slurmdbd.conf"
    conf.touch(mode=0o600)
    conf.write_text(
        f"AuthType=auth/munge\nAuthInfo=socket={cluster.directory}/munge/socket\nDbdHost=localhost\n"
        f"DbdAddr=127.0.0.1\nDbdPort={port}\nSlurmUser=root\n"
        f"LogFile={cluster.directory}/log/slurmdbd.log\nPidFile={run}/slurmdbd.pid\n"
        "StorageType=accounting_storage/mysql\nStorageHost=localhost\nStorageUser=root\nStorageLoc=slurm\n"
    )
    # Its conf lies beside slurm.conf; the database's socket reaches it by the client library's own variable.
    cluster.daemon("slurmdbd", "slurmdbd", "-D", MYSQL_UNIX_PORT=str(sql_socket))
    wait_until(lambda: "nodetriage" in _clusters(cluster), 90, "slurmdbd knows the cluster")


def _clusters(cluster: "SlurmCluster") -> str:
    cluster.run("sacctmgr", "-i", "add", "cluster", "nodetriage", check=False)
    return cluster.run("sacctmgr", "-n", "list", "cluster", "format=cluster%20", check=False)
