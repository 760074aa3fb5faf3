"""What the clients of network file systems say of their servers: NFS, Lustre and LNet, Ceph, BeeGFS, WekaFS.

Source: fs/nfs, net/sunrpc/clnt.c, fs/lockd; Lustre 2.12-2.17 (ptlrpc, osc, ldlm, lnet); fs/ceph, net/ceph; BeeGFS 8
client_module; WekaFS by a line of its documentation. GPFS writes its log elsewhere; its deadman panic is in oops.py. `source`
is the server as the line names it: what many nodes share.
"""

from nodetriage.checks.model import Severity
from nodetriage.checks.model.kernel_rules import KernelRule, KernelRules

_HOST = r"(?P<source>[\w.:%-]{1,255})"
_TARGET = r"(?P<target>[\w.]{1,60}-(?:OST|MDT)[0-9a-f]{4}|MGC[\w.@-]{4,60}|MGS)"
_IMPORT = rf"{_TARGET}(?:-\w[\w.-]{{0,60}})?"
_NUMBER = r"(?:\d{1,3}-\d: )?"
_AT = r"\d{1,9}:\d{1,4}:\(\w{1,40}\.[ch]:\d{1,6}:\w{1,60}\(\)\) "
_PTLRPC = r"\d{1,9}:\d{1,4}:\(client\.c:\d{1,6}:ptlrpc_expire_one_request\(\)\) @@@ Request sent has "
_BEEGFS = r"beegfs: .{1,15}\(\d{1,10}\): \w{1,40} \([\w ]{1,15}\): "
_BEENODE = r"(?P<source>beegfs-\w{1,20} [\w.-]{1,64} \[ID: \d{1,6}\])"
_CEPH = r"ceph: (?:\[[0-9a-f-]{36} \d{1,20}\]: )?mds(?P<rank>\d{1,4}) "
_CLUSTER = "6f0b0d2e-1a2b-4c3d-8e4f-5a6b7c8d9e0f 74104"
_WORTH = {
    "fs_server_lost": Severity.WARNING, "fs_server_trouble": Severity.WARNING, "fs_client_evicted": Severity.MAJOR,
    "fs_data_damaged": Severity.MAJOR, "fs_client_stuck": Severity.MAJOR, "": Severity.INFO,
}  # fmt: skip


def _rule(
    name: str,
    text: str,
    fault: str,
    component: str,
    source: str,
    *examples: str,
    never: tuple[str, ...] = (),
    state: str = "",
) -> KernelRule:
    return KernelRule(
        name,
        text,
        fault,
        _WORTH[fault],
        examples,
        component,
        state=state or ("event" if fault else "recovered"),
        source=source,
        never=never,
    )


RULES = KernelRules((
    _rule(
        "nfs.lost", rf"nfs: server {_HOST} not responding, (?P<how>still trying|timed out)", "fs_server_lost", r"nfs \g<source>",
        "net/sunrpc/clnt.c:rpc_check_timeout", "nfs: server fileserver01 not responding, still trying",
        "nfs: server 10.0.0.7 not responding, timed out",
    ),
    _rule("nfs.ok", rf"nfs: server {_HOST} OK$", "", r"nfs \g<source>", "net/sunrpc/clnt.c:call_decode", "nfs: server fileserver01 OK"),
    _rule(
        "nfs.lockd", rf"lockd: server {_HOST} not responding, (?P<how>still trying|timed out)", "fs_server_lost", r"nfs \g<source>",
        "net/sunrpc/clnt.c", "lockd: server fileserver01 not responding, still trying",
    ),
    _rule("nfs.lockd.ok", rf"lockd: server {_HOST} OK$", "", r"nfs \g<source>", "net/sunrpc/clnt.c", "lockd: server fileserver01 OK"),
    _rule(
        "nfs.state", rf"NFS: state manager: (?P<what>[\w ]{{1,40}}) failed on NFSv4 server {_HOST} with error (?P<error>\d{{1,6}})",
        "fs_server_trouble", r"nfs \g<source>", "fs/nfs/nfs4state.c:nfs4_state_manager",
        "NFS: state manager: check lease failed on NFSv4 server fileserver01 with error 13",
    ),
    _rule(
        "nfs.locks", rf"NFS: {_HOST}: lost \d{{1,9}} locks", "fs_server_trouble", r"nfs \g<source>", "fs/nfs/nfs4state.c",
        "NFS: fileserver01: lost 3 locks",
    ),
    _rule(
        "nfs.client_id", rf"NFS: Server {_HOST} reports our clientid is in use", "fs_server_trouble", r"nfs \g<source>",
        "fs/nfs/nfs4proc.c", "NFS: Server fileserver01 reports our clientid is in use",
    ),
    _rule(
        "nfs.file_id", rf"NFS: server {_HOST} error: fileid changed", "fs_server_trouble", r"nfs \g<source>", "fs/nfs/inode.c",
        "NFS: server fileserver01 error: fileid changed\nfsid 0:51: expected fileid 0x4ab03, got 0x4ab17",
        never=("NFS: v4 server fileserver01 does not accept raw uid/gids. Reenabling the idmapper.",),
    ),
    _rule(
        "lustre.lost", rf"Lustre: {_NUMBER}{_IMPORT}: Connection to \S{{1,80}} \(at (?P<source>[\w.@:-]{{1,80}})\) was lost",
        "fs_server_lost", r"lustre \g<target>", "ptlrpc/import.c:ptlrpc_set_import_discon",
        "Lustre: scratch-OST0003-osc-ffff9d0c4a5d6000: Connection to scratch-OST0003 (at 10.0.0.23@o2ib) was lost; in progress "
        "operations using this service will wait for recovery to complete",
        "Lustre: MGC10.0.0.21@o2ib: Connection to MGS (at 10.0.0.21@o2ib) was lost; in progress operations using this service will fail",
    ),
    _rule(
        "lustre.lost.error",
        rf"LustreError: {_NUMBER}{_IMPORT}: Connection to \S{{1,80}} \(at (?P<source>[\w.@:-]{{1,80}})\) was lost", "fs_server_lost",
        r"lustre \g<target>", "ptlrpc/import.c:ptlrpc_set_import_discon",
        "LustreError: 166-1: MGC10.0.0.21@o2ib: Connection to MGS (at 10.0.0.21@o2ib) was lost; in progress operations using this service will fail",
    ),
    _rule(
        "lustre.evicted", rf"LustreError: {_NUMBER}{_IMPORT}: This client was evicted by (?P<source>[\w.@-]{{1,80}})", "fs_client_evicted",
        r"lustre \g<target>", "ptlrpc/import.c:ptlrpc_import_recovery_state_machine",
        "LustreError: 167-0: scratch-OST0003-osc-ffff9d0c4a5d6000: This client was evicted by scratch-OST0003; in progress operations "
        "using this service will fail.",
        "LustreError: scratch-OST0003-osc-ffff9d0c4a5d6000: This client was evicted by scratch-OST0003; in progress operations using this",
    ),
    _rule(
        "lustre.restored", rf"Lustre: {_NUMBER}{_IMPORT}: Connection restored to ", "", r"lustre \g<target>",
        "ptlrpc/import.c:ptlrpc_import_recovery_state_machine",
        "Lustre: scratch-OST0003-osc-ffff9d0c4a5d6000: Connection restored to 10.0.0.23@o2ib (at 10.0.0.23@o2ib)",
    ),
    _rule(
        "lustre.expired",
        rf"Lustre: {_PTLRPC}(?P<how>timed out|failed)\b.{{1,300}}->{_IMPORT}@(?P<source>[\w.]{{1,60}}@\w{{1,20}}):", "fs_server_lost",
        r"lustre \g<target>", "ptlrpc/client.c:ptlrpc_expire_one_request",
        "Lustre: 2211:0:(client.c:2295:ptlrpc_expire_one_request()) @@@ Request sent has timed out for slow reply: [sent 1717243260/real "
        "1717243260]  req@000000001b7e9f0a x1800000000000/t0(0) o400->scratch-OST0003-osc-ffff9d0c4a5d6000@10.0.0.23@o2ib:28/4 lens 224/224",
    ),
    _rule(
        "lustre.checksum", rf"LustreError: {_NUMBER}{_IMPORT}: BAD (?P<way>READ|WRITE) CHECKSUM: (?!changed on the client after)",
        "fs_data_damaged", r"lustre \g<target>", "osc/osc_request.c",
        "LustreError: 132-0: scratch-OST0003-osc-ffff9d0c4a5d6000: BAD WRITE CHECKSUM: changed in transit before arrival at OST: from x",
        "LustreError: 133-1: scratch-OST0003-osc-ffff9d0c4a5d6000: BAD READ CHECKSUM: from 10.0.0.23@o2ib inode [0x200000402:0x5:0x0]",
        never=(
            "LustreError: 132-0: scratch-OST0003-osc-ffff9d0c4a5d6000: BAD WRITE CHECKSUM: changed on the client after we checksummed it - "
            "likely false positive due to mmap IO (bug 11742): from 10.0.0.23@o2ib",
        ),
    ),
    _rule(
        "lustre.lock",
        r"LustreError: \d{1,9}:\d{1,4}:\(ldlm_request\.c:\d{1,6}:ldlm_expired_completion_wait\(\)\) ### lock timed out .{1,80}"
        r"entering recovery for (?P<target>[\w.-]{1,80})_UUID@(?P<source>[\w.]{1,60}@\w{1,20})",
        "fs_server_lost", r"lustre \g<target>", "ldlm/ldlm_request.c",
        "LustreError: 2211:0:(ldlm_request.c:119:ldlm_expired_completion_wait()) ### lock timed out (enqueued at 1717243260, 300s ago), "
        "entering recovery for scratch-MDT0000_UUID@10.0.0.21@o2ib",
    ),
    _rule(
        "lustre.socket", r"LNet: Timeout error while (?:reading from|writing to) (?P<source>[\w.]{1,60}):\d{1,6}", "fs_server_lost",
        r"lustre \g<source>", "lnet/klnds/socklnd", "LNet: Timeout error while writing to 10.0.0.23:988. Closing socket: rc = -110",
    ),
    _rule(
        "lustre.rdma", rf"LNet(?:Error)?: {_AT}Timed out (?:RDMA with|tx for) (?P<source>[\w.]{{1,60}}@\w{{1,20}})", "fs_server_lost",
        r"lustre \g<source>", "lnet/klnds/o2iblnd/o2iblnd_cb.c:kiblnd_check_conns",
        "LNetError: 2043:0:(o2iblnd_cb.c:3442:kiblnd_check_conns()) Timed out RDMA with 10.0.0.23@o2ib (104): c: 0, oc: 0, rc: 31",
        "LNet: 2431:0:(o2iblnd_cb.c:3174:kiblnd_check_conns()) Timed out tx for 10.0.0.23@o2ib: 4030 seconds",
    ),
    _rule(
        "lustre.bug", rf"LustreError: {_AT}(?:LBUG$|ASSERTION\( )", "fs_client_stuck", "lustre client", "libcfs/debug.c:lbug_with_loc",
        "LustreError: 2211:0:(osc_cache.c:1141:osc_extent_make_ready()) LBUG",
        "LustreError: 2211:0:(osc_cache.c:1141:osc_extent_make_ready()) ASSERTION( last_oap_count > 0 ) failed: ", state="lasting",
    ),
    _rule(
        "ceph.mds", _CEPH + r"(?:hung|caps stale)$", "fs_server_lost", r"ceph mds\g<rank>", "fs/ceph/mds_client.c", "ceph: mds0 hung",
        "ceph: mds0 caps stale", f"ceph: [{_CLUSTER}]: mds0 hung",
    ),
    _rule(
        "ceph.blocked", _CEPH + r"(?:session blocklisted|session blacklisted|reconnect denied)$", "fs_client_evicted", r"ceph mds\g<rank>",
        "fs/ceph/mds_client.c", "ceph: mds0 session blocklisted", "ceph: mds0 reconnect denied", state="lasting",
    ),
    _rule(
        "ceph.ok", _CEPH + r"(?:reconnect success|caps renewed|recovery completed|came back)$", "", r"ceph mds\g<rank>", "fs/ceph/mds_client.c",
        "ceph: mds0 reconnect success", "ceph: mds0 caps renewed", "ceph: mds0 came back",
    ),
    _rule(
        "ceph.monitor", r"libceph: mon\d{1,4} (?:\(\d\))?(?P<source>[0-9a-f.:\[\]]{7,60}) session lost", "fs_server_lost", "ceph monitors",
        "net/ceph/mon_client.c", "libceph: mon1 (1)10.0.0.41:6789 session lost, hunting for new mon",
    ),
    _rule(
        "ceph.monitor.ok", r"libceph: mon\d{1,4} (?:\(\d\))?[0-9a-f.:\[\]]{7,60} session established", "", "ceph monitors",
        "net/ceph/mon_client.c", "libceph: mon0 (1)10.0.0.40:6789 session established",
    ),
    _rule(
        "ceph.osd", r"libceph: tid \d{1,20} on (?P<source>osd\d{1,6}) timeout", "fs_server_lost", r"ceph \g<source>", "net/ceph/osd_client.c",
        "libceph: tid 4711 on osd12 timeout",
    ),
    _rule(
        "ceph.full", r"libceph: cluster is full \(osdmap FULL\)", "fs_server_trouble", "ceph cluster", "net/ceph/osd_client.c",
        "libceph: cluster is full (osdmap FULL)", state="lasting",
    ),
    _rule(
        "beegfs.lost",
        _BEEGFS + r"(?:Retrying communication with node|Unable to connect to|Connect failed on all available routes|Receive failed from"
        rf"|Waiting before communication because of node state\. Node): {_BEENODE}",
        "fs_server_lost", r"beegfs \g<source>", "client_module",
        "beegfs: python3(4711): Messaging (RPC): Retrying communication with node: beegfs-storage storage03 [ID: 3]",
        "beegfs: python3(4711): readfileV2 (communication): Receive failed from: beegfs-storage storage03 [ID: 3] @ 10.0.0.33:8003",
    ),
    _rule(
        "beegfs.ok", _BEEGFS + rf"Connected: {_BEENODE}", "", r"beegfs \g<source>", "client_module",
        "beegfs: python3(4711): NodeConn (acquire stream): Connected: beegfs-storage storage03 [ID: 3]@10.0.0.33:8003 (protocol: RDMA)",
    ),
    _rule(
        "weka.lost", r"wekafsgw: FE was (?:down|lost)", "fs_server_lost", "wekafs frontend", "public reports of its client",
        "wekafsgw: FE was down",
    ),
))  # fmt: skip
