"""The tree of a Redfish service, read by its links: makers name their systems, chassis and logs as they like."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from nodetriage.checks.model import Host, Unavailable

ROOT = "/redfish/v1"
_STRUCTURE_S = 3600.0  # how long a collection counts as unchanged
_GETS_MAX = 40  # in one run: a BMC serves one request at a time
_MEMBERS_MAX = 16
_TEXT_LEN = 200
_NAME = re.compile(r"[A-Za-z0-9._~%:@-]{1,100}")

T = TypeVar("T")
Resource = Mapping[str, Any]


class Service:
    """One run's requests. A resource that the service does not have is empty."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._left = _GETS_MAX

    def get(self, path: str, keep_s: float = 0.0) -> Resource:
        """Raises Unavailable, OSError and ValueError as Host.redfish; ValueError for what is no JSON object."""
        if not path or self._left <= 0:
            return {}
        self._left -= 1
        try:
            text = self._host.redfish(path, keep_s)
        except FileNotFoundError:
            return {}
        try:
            found = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"redfish {path}: expected JSON, got {text[:80]!r}") from error
        if not isinstance(found, dict):
            raise ValueError(f"redfish {path}: expected a JSON object, got {text[:80]!r}")
        return found

    def structure(self, path: str) -> Resource:
        """A resource that changes only when hardware does."""
        return self.get(path, _STRUCTURE_S)

    def members(self, path: str) -> list[str]:
        """The paths of a collection's direct members; the DGX H100's collections list resources of others too."""
        listed = self.structure(path).get("Members")
        paths = (link(m) for m in listed) if isinstance(listed, list) else iter(())
        prefix = path.rstrip("/") + "/"
        return [p for p in paths if p.startswith(prefix) and _NAME.fullmatch(p.removeprefix(prefix))][:_MEMBERS_MAX]


def instead(read: Callable[[Host], T], host: Host, missing: Unavailable) -> T:
    """What Redfish has where ipmitool has nothing; raises `missing` where the site names no Redfish service either."""
    try:
        return read(host)
    except Unavailable:
        raise missing from None


def link(resource: Any) -> str:
    """The path that a resource links to; empty where it is no link."""
    path = resource.get("@odata.id") if isinstance(resource, dict) else None
    return path.rstrip("/") if isinstance(path, str) and path.startswith(ROOT) and len(path) <= 1000 else ""


def within(resource: Any, *keys: str) -> Any:
    """What lies below these keys; None where one of them is not there."""
    for key in keys:
        resource = resource.get(key) if isinstance(resource, dict) else None
    return resource


def text(resource: Any, *keys: str) -> str:
    """A string below these keys, printable and bounded; empty where there is none."""
    found = within(resource, *keys)
    return "".join(c if c.isprintable() else " " for c in found[:_TEXT_LEN]) if isinstance(found, str) else ""


def objects(resource: Any, *keys: str) -> Iterator[Resource]:
    """The objects of a list below these keys, at most 64."""
    found = within(resource, *keys)
    yield from (one for one in (found if isinstance(found, list) else [])[:64] if isinstance(one, dict))


def name_of(path: str) -> str:
    """The last part of a path, which names the part: GPU_SXM_1, PSU0."""
    return path.rstrip("/").rpartition("/")[2][:_TEXT_LEN]
