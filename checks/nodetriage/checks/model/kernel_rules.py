"""Rules for kernel lines as data, and the table that finds the one that a line fits without trying them all.

A rule's expression is compiled, and refused where a user could satisfy it, when the first line comes near it: a node
that logs nothing unusual never pays for hundreds of rules. The tests compile all of them.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from operator import itemgetter

from nodetriage.checks.model.kernel_line import KernelPattern, kernel_pattern
from nodetriage.checks.model.severity import Severity

PCI = r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]"
_NETDEV = r"(?: (?:[\w.@-]{1,15}|\(unnamed net_device\))(?: \(\w{1,20}\))?)?"
# What dev_printk (drivers/base/core.c) puts before a driver's text, by the bus or class of the device.
PREFIXES = {
    "": "",
    # A network driver adds its interface (netdev_printk), with its state where it is not registered.
    "pci": rf"[a-z][\w-]{{0,30}} (?P<device>{PCI}){_NETDEV}: ",
    # mlx5_err and mlx5_warn name the function first; amdgpu puts its own name, and from 6.8 the event's number, before.
    "mlx5": rf"mlx5_core (?P<device>{PCI}){_NETDEV}: (?:\w{{1,60}}:\d{{1,6}}:\(pid \d{{1,10}}\): )?",
    "amdgpu": rf"amdgpu (?P<device>{PCI}): (?:amdgpu: )?(?:\{{\d{{1,10}}\}} ?)?",
    # The block layer names its function up to 5.15.
    "block": r"(?:(?:blk_update_request|print_req_error|end_request): )?",
    "disk": r"(?P<device>(?:nvme\d|sd[a-z]|md|dm-\d|vd[a-z]|xvd)[\w-]{0,24}): ",
    "nvme": r"nvme (?P<device>nvme\d{1,4}(?:c\d{1,4})?(?:n\d{1,4})?): ",
    "scsi": r"(?:sd|sr|st|scsi|ses|ch) (?P<host>\d{1,5}:\d{1,3}:\d{1,5}:\d{1,20}): (?:\[(?P<device>[\w-]{1,32})\] )?",
    "ata": r"(?P<device>ata\d{1,3}(?:\.\d\d)?): ",
    "netdev": r"(?P<device>[\w.-]{1,15}): ",
    "infiniband": r"infiniband (?P<device>[\w.-]{1,60}): ",
    "platform": r"(?P<driver>[a-z][\w-]{1,30}) (?P<device>[\w.:-]{1,40}): ",
}
_KEY = 3  # characters of a rule's literal beginning by which the table files it
_META = frozenset(".^$*+?{}[]\\|()")


@dataclass(frozen=True, slots=True)
class KernelRule:
    """What one line of one driver says. The first rule of a table that fits a line has it.

    `text` is a regular expression from the record's start, or from behind the device prefix that `prefix` names (a key
    of PREFIXES). `component` is a name, or a template with the expression's groups in it (`\\g<device>`).
    `examples` are lines as the kernel prints them, one for each wording: the tests forge every one of them.
    `never` are lines that look like it, which the rule must not fit.
    """

    name: str  # unique over all tables: "aer.recovery_failed"
    text: str
    fault: str  # code of faults.toml; "" for a line that only belongs to a block or to the rule before it
    severity: Severity
    examples: tuple[str, ...]
    component: str
    prefix: str = ""
    state: str = "event"  # event, corrected, recovered, lasting (until a reset or a reboot), info
    source: str = ""  # kernel file (and function)
    versions: str = "all"  # of the kernels whose source was read
    never: tuple[str, ...] = ()

    @property
    def expression(self) -> str:
        return PREFIXES[self.prefix] + self.text

    @property
    def pattern(self) -> KernelPattern:
        """Raises ForgeablePattern where a user could make the kernel print a line that fits."""
        return kernel_pattern(self.expression)


@dataclass(frozen=True, slots=True)
class Fit:
    """A rule, and how it fits a line."""

    rule: KernelRule
    found: "re.Match[str]"

    @property
    def component(self) -> str:
        return self.found.expand(self.rule.component)[:80]


_Entry = tuple[int, str, KernelRule]  # place in the table, literal beginning, rule
_Index = dict[str, list[_Entry]]  # by the first _KEY characters of the beginning; "" where it is shorter


class KernelRules:
    """An ordered set of rules with an index: device prefix, then the first characters behind it."""

    def __init__(self, rules: Iterable[KernelRule]) -> None:
        self.rules = tuple(rules)
        self._by_name = {rule.name: rule for rule in self.rules}
        by_prefix: dict[str, _Index] = {}
        for number, rule in enumerate(self.rules):
            group = by_prefix.setdefault(rule.prefix, {})
            for start in beginnings(rule.text):
                group.setdefault(start[:_KEY] if len(start) >= _KEY else "", []).append((number, start, rule))
        self._plain = by_prefix.pop("", {})
        self._loose = self._plain.get("", [])
        prefixed = [(re.compile(PREFIXES[name]), group) for name, group in by_prefix.items()]
        self._optional = [one for one in prefixed if one[0].match("")]
        self._prefixed = [one for one in prefixed if not one[0].match("")]
        # One match rules out all prefixes for most lines.
        any_prefix = "|".join(prefix.pattern for prefix, _ in self._prefixed)
        self._any_prefix = re.compile(re.sub(r"\(\?P<\w+>", "(?:", any_prefix)) if self._prefixed else None
        self._compiled: dict[str, KernelPattern] = {}

    def __add__(self, other: "KernelRules") -> "KernelRules":
        return KernelRules((*self.rules, *other.rules))

    def __getitem__(self, name: str) -> KernelRule:
        """The rule of that name. Raises KeyError."""
        return self._by_name[name]

    @property
    def faults(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(rule.fault for rule in self.rules if rule.fault))

    @property
    def expressions(self) -> tuple[str, ...]:
        return tuple(rule.expression for rule in self.rules)

    def match(self, text: str) -> Fit | None:
        """The first rule that fits the record; None for every record of no concern."""
        near = [one for one in self._plain.get(text[:_KEY], ()) if text.startswith(one[1])]
        if self._loose:
            near += [one for one in self._loose if text.startswith(one[1])]
        if self._optional:
            near += _behind(self._optional, text)
        if self._any_prefix is not None and self._any_prefix.match(text):
            near += _behind(self._prefixed, text)
        if len(near) > 1:
            near.sort(key=itemgetter(0))
        for _, _, rule in near:
            pattern = self._compiled.get(rule.name)
            if pattern is None:
                pattern = self._compiled[rule.name] = rule.pattern
            if found := pattern.match(text):
                return Fit(rule, found)
        return None


def _behind(prefixed: Iterable[tuple["re.Pattern[str]", _Index]], text: str) -> list[_Entry]:
    """The rules whose device prefix the record has, and behind it their literal beginning."""
    found: list[_Entry] = []
    for prefix, group in prefixed:
        if fits := prefix.match(text):
            at = fits.end()
            near = (*group.get(text[at : at + _KEY], ()), *group.get("", ()))
            found += [one for one in near if text.startswith(one[1], at)]
    return found


def beginnings(expression: str) -> tuple[str, ...]:
    """The literal texts with which all that the expression matches begins; ("",) where that cannot be seen at once.

    It sees through a first group of plain alternatives, as in `(?:NMI )?watchdog: `.
    """
    if expression.startswith("(?:"):
        inside, closed, rest = expression[3:].partition(")")
        options = [_literal(option) for option in inside.split("|")]
        if not closed or any(not whole for _, whole in options) or "(" in inside:
            return ("",)
        texts = [text for text, _ in options]
        if rest.startswith("?"):
            texts, rest = [*texts, ""], rest[1:]
        elif rest[:1] in ("*", "+", "{"):
            return ("",)
        return tuple(text + more for text in texts for more in beginnings(rest))
    return (_literal(expression)[0],)


def _literal(expression: str) -> tuple[str, bool]:
    """The literal characters at the start, and whether that is all of the expression."""
    out, at = "", 0
    while at < len(expression):
        character, width = expression[at], 1
        if character == "\\" and at + 1 < len(expression) and not expression[at + 1].isalnum():
            character, width = expression[at + 1], 2
        elif character in _META:
            return out, False
        if expression[at + width : at + width + 1] in ("?", "*", "{"):
            return out, False
        if expression[at + width : at + width + 1] == "+":
            return out + character, False
        out, at = out + character, at + width
    return out, True


def matcher(lines: "str | KernelRules") -> "KernelPattern | KernelRules":
    """What tells whether a record concerns a check: its `match` gives None where it does not.

    Raises ForgeablePattern for an expression that a user could satisfy.
    """
    return kernel_pattern(lines) if isinstance(lines, str) else lines
