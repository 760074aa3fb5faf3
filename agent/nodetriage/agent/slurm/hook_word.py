"""The controller's word to the hooks, from the wire."""

import time
from collections.abc import Iterable

from nodetriage.agent.slurm.hook_authority import Authority, NamedFinding
from nodetriage.v1 import health_pb2 as pb

MOST = 1000  # entries of a list
TEXT_LIMIT = 300
LONGEST_VALID_S = 3600.0


def authority_from(word: pb.HookAuthority, brought_by: str, boot_id: str, now_s: float) -> Authority:
    """Bounded; a mode that this version does not know is observe."""
    modes = {pb.HOOK_MODE_ENFORCE: "enforce", pb.HOOK_MODE_RECOMMEND: "recommend"}
    return Authority(
        version=word.version,
        mode=modes.get(word.mode, "observe"),  # type: ignore[arg-type] # one of the three
        valid_s=min(word.valid_ms / 1000, LONGEST_VALID_S),
        brought_by=brought_by,
        boot_id=boot_id,
        received_s=now_s,
        received_unix_s=int(time.time()),
        breaker_why=word.breaker_why[:TEXT_LIMIT],
        shared_faults=_texts(word.shared_faults),
        excluded_faults=_texts(word.excluded_faults),
        excluded_checks=_texts(word.excluded_checks),
        incident_faults=_texts(word.incident_faults),
        granted=_findings(word.granted),
        held=_findings(word.held),
    )


def _texts(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(text[:TEXT_LIMIT] for text, _ in zip(texts, range(MOST), strict=False))


def _findings(findings: Iterable[pb.HookFinding]) -> tuple[NamedFinding, ...]:
    return tuple(
        NamedFinding(f.component[:TEXT_LIMIT], f.fault[:TEXT_LIMIT], f.incident[:TEXT_LIMIT], f.why[:TEXT_LIMIT])
        for f, _ in zip(findings, range(MOST), strict=False)
    )
