"""Replaces the names of machines, serial numbers and addresses in a text, and keeps its shape.

The same name gives the same pseudonym everywhere, so relations stay visible. The key keeps others
from finding a name by trying all names.
"""

import hashlib
import hmac
import re
from collections.abc import Iterable

_UUID = re.compile(r"\b[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}\b")
_GUID = re.compile(r"\b[0-9a-fA-F]{4}(?::[0-9a-fA-F]{4}){3,7}\b")  # of a port or node, and GIDs
_MAC = re.compile(r"\b[0-9a-fA-F]{2}(?::[0-9a-fA-F]{2}){5,19}\b")  # 20 bytes: an IPoIB interface
_IPV4 = re.compile(r"(?<![\d.])(?:\d{1,3}\.){3}\d{1,3}(?![\d.])(?=[:,@/\s\"']|$)")
_SERIAL = re.compile(
    r"((?:serial[ _-]?(?:number|no)?|\bsn|sas address|\bwwn)[\"']?\s*[:=]\s*[\"']?\s*)([A-Za-z0-9][\w.-]*)",
    re.IGNORECASE,
)
_SERVER = re.compile(r"(?<![\w./-])([A-Za-z][\w.-]*|\[[0-9a-fA-F:]+\])(?=:/)")
_SECRET_FILE = re.compile(r"serial|asset_tag|machine-id|hostname", re.IGNORECASE)
_MOUNTS = re.compile(r"/(?:mountinfo|mounts|fstab)$")


class Redactor:
    """`names` are the host names of the machine."""

    def __init__(self, key: bytes, names: Iterable[str] = ()) -> None:
        self._key = key
        whole = sorted({name for name in names if len(name) > 1}, key=len, reverse=True)
        self._names = re.compile(r"(?<![\w-])(?:" + "|".join(map(re.escape, whole)) + r")(?![\w-])") if whole else None

    def text(self, text: str, path: str = "") -> str:
        """`path` says what the text is: a file for a serial number contains nothing else."""
        if _SECRET_FILE.search(path.rpartition("/")[2]):
            return self._shaped(text)
        text = _SERIAL.sub(lambda found: found[1] + self._shaped(found[2]), text)
        for pattern in (_UUID, _GUID, _MAC):
            text = pattern.sub(lambda found: self._shaped(found[0], hexadecimal=True), text)
        text = _IPV4.sub(lambda found: self._ipv4(found[0]), text)
        if _MOUNTS.search(path):
            text = _SERVER.sub(lambda found: f"server-{self._digest(found[1])[:6]}", text)
        if self._names is not None:
            text = self._names.sub(lambda found: f"node-{self._digest(found[0].partition('.')[0])[:6]}", text)
        return text

    def _digest(self, value: str) -> str:
        return hmac.new(self._key, value.lower().encode(), hashlib.sha256).hexdigest()

    def _ipv4(self, value: str) -> str:
        if value.startswith(("127.", "0.")):
            return value
        digest = self._digest(value)
        return ".".join(["10", *(str(int(digest[i : i + 2], 16)) for i in (0, 2, 4))])

    def _shaped(self, value: str, hexadecimal: bool = False) -> str:
        """Digits become digits, letters letters, and the rest stays. A value of zeros only stays too."""
        if not value.strip("0:-. \n"):
            return value
        digest = self._digest(value) * (len(value) // 64 + 1)
        return "".join(self._like(old, int(new, 16), hexadecimal) for old, new in zip(value, digest, strict=False))

    @staticmethod
    def _like(old: str, nibble: int, hexadecimal: bool) -> str:
        if hexadecimal and old in "0123456789abcdefABCDEF":
            return f"{nibble:x}"
        if old.isdecimal():
            return str(nibble % 10)
        if old.isalpha():
            return chr((ord("A") if old.isupper() else ord("a")) + nibble)
        return old
