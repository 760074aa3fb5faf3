"""No rule for kernel lines matches what a user makes the kernel quote: each has a forged twin in every carrier."""

import itertools
from collections.abc import Iterator

import pytest
from carriers import CARRIERS, forged
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nodetriage.agent.cli.dmesg import triage
from nodetriage.agent.cli.saved_log import entries
from nodetriage.checks.model.kernel_line import KernelPattern, kernel_pattern
from nodetriage.checks.model.kernel_rules import KernelRule, KernelRules, matcher
from nodetriage.checks.readers import nvidia_log
from nodetriage.checks.registry import ALL

TABLES = {check.name: check.kernel_pattern for check in ALL if isinstance(check.kernel_pattern, KernelRules)}
ROWS = tuple({rule.name: rule for table in TABLES.values() for rule in table.rules}.values())
EXAMPLES = (*nvidia_log.EXAMPLES, *itertools.chain.from_iterable(rule.examples for rule in ROWS))
# What the kernel says of the very thing that the field belongs to is no forgery: only that field is the user's.
TRUE = ("NVRM: Xid (PCI:0000:3b:00): 13", "EXT4-fs error (device loop9)", "Out of memory: Killed process 4711 (")


def matchers() -> Iterator[tuple[str, KernelPattern | KernelRules]]:
    """What each check judges, and what only wakes it."""
    for check in ALL:
        for lines in (check.kernel_pattern, check.kernel_wakes):
            if lines is not None:
                yield check.name, matcher(lines)


def patterns() -> Iterator[tuple[str, KernelPattern]]:
    """Every expression of every check that has no table."""
    for name, lines in matchers():
        if isinstance(lines, KernelPattern):
            yield name, lines


MATCHERS = tuple(matchers())


def is_forgery(record: str) -> bool:
    return not record.startswith(TRUE)


@pytest.mark.parametrize("table", TABLES.values(), ids=list(TABLES))
def test_every_rule_of_a_table_fits_its_examples_and_nothing_that_only_looks_like_them(table: KernelRules) -> None:
    assert len({rule.name for rule in table.rules}) == len(table.rules)
    for rule in table.rules:
        fits = [table.match(example) for example in rule.examples]
        assert rule.examples
        assert [fit.rule.name for fit in fits if fit] == [rule.name] * len(rule.examples), rule.name
        assert [line for line in rule.never if rule.pattern.match(line)] == [], rule.name


@pytest.mark.parametrize("table", TABLES.values(), ids=list(TABLES))
def test_the_index_of_a_table_finds_what_a_search_through_all_its_rules_finds(table: KernelRules) -> None:
    for line in (*EXAMPLES, *itertools.chain.from_iterable(rule.never for rule in ROWS)):
        slow = next((rule.name for rule in table.rules if rule.pattern.match(line)), None)
        fast = table.match(line)
        assert (fast.rule.name if fast else None) == slow, line


@pytest.mark.parametrize("rule", ROWS, ids=lambda r: r.name)
@settings(suppress_health_check=[HealthCheck.too_slow], max_examples=20)  # of each of hundreds of rules
@given(data=st.data())
def test_no_text_that_a_rule_of_a_table_fits_passes_for_it_in_a_quotation(rule: KernelRule, data) -> None:
    wanted = data.draw(st.from_regex(rule.expression))
    carrier = data.draw(st.sampled_from(CARRIERS))

    for record in filter(is_forgery, forged(carrier, wanted)):
        assert not rule.pattern.match(record), record


def test_every_line_of_the_driver_has_an_example_that_is_understood() -> None:
    said = [nvidia_log.parse(example) for example in nvidia_log.EXAMPLES]

    assert {line.sign for line in said if line} == {
        None, "uuid", "off_bus", "init_failed", "gsp_heartbeat", "reset_required", "driver_loaded", "found_again",
        "api_mismatch",
    }  # fmt: skip
    assert all(kernel_pattern(nvidia_log.KERNEL_PATTERN).match(example) for example in nvidia_log.EXAMPLES)


@pytest.mark.parametrize("carrier", CARRIERS)
def test_no_example_is_taken_for_the_driver_s_word_where_the_kernel_quotes_it(carrier: str) -> None:
    for record in filter(is_forgery, itertools.chain.from_iterable(forged(carrier, line) for line in EXAMPLES)):
        fooled = [name for name, lines in MATCHERS if name != "fs_mounts" and lines.match(record)]
        assert fooled == [], record
        assert nvidia_log.parse(record) is None, record


@pytest.mark.parametrize(("name", "pattern"), list(patterns()), ids=lambda v: v if isinstance(v, str) else "")
@settings(suppress_health_check=[HealthCheck.too_slow])  # a busy machine draws long expressions slowly
@given(data=st.data())
def test_no_text_that_a_rule_matches_passes_for_it_in_a_quotation(name: str, pattern: KernelPattern, data) -> None:
    wanted = data.draw(st.from_regex(pattern.expression))
    carrier = data.draw(st.sampled_from(CARRIERS))
    if carrier.startswith("nfs: server"):  # it is the server's name: that this one is away is true
        return

    for record in filter(is_forgery, forged(carrier, wanted)):
        assert not pattern.match(record), record


def test_a_user_s_line_in_a_pasted_log_is_no_fault_whatever_stands_before_it() -> None:
    prefixes = ("", "[48211.903117] ", "Apr  3 09:12:44 node01 kernel: [11272.551321] ", "4,1227,437812449932,-;")

    for prefix, carrier in itertools.product(prefixes, CARRIERS):
        for record in filter(is_forgery, forged(carrier, nvidia_log.EXAMPLES[0])):
            line = (prefix + record).replace("\n", "\\x0a" if prefix.endswith(";") else " ")
            assert triage(entries([line.encode()]), ALL).rows == (), line
