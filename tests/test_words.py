"""The project speaks the field's words: what once stood for them here does not come back, in code, settings or docs."""

import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
READ = (
    "agent",
    "analysis",
    "bench",
    "checks",
    "controller",
    "docs",
    "packaging",
    "proto",
    "scripts",
    "service",
    "systemd",
)
PAGES = ("README.md", "CONTRIBUTING.md", "Makefile")
GENERATED = re.compile(r"_pb2|\.svg$|/migrations/versions/")


@dataclass(frozen=True, slots=True)
class Word:
    """`pattern` is not written; `instead` is. `except_in` matches lines where it means something else, and why."""

    pattern: str
    instead: str
    except_in: str = ""
    because: str = ""


WORDS = (
    # Names of parts of the program.
    Word(r"\bbrain\b", "reconciler, or policy"),
    Word(r"\blookers?\b", "poller"),
    Word(r"\bperformers?\b", "executor"),
    Word(r"\bledgers?\b", "state store"),
    Word(r"\bbrakes?\b", "drain limits", r"power brake", "NVIDIA's name of an external slowdown"),
    Word(r"\bdoors?\b", "gate, or the module that does it"),
    Word(r"\bsurroundings\b", "watchers"),
    Word(r"\bintake\b", "ingest"),
    Word(r"\bscrub(s|bed)?\b", "redact", r"(?i)memory scrub failed", "what a BMC's log prints of a memory controller"),
    Word(r"\bcadence\b", "aligned timer"),
    Word(r"\bupheavals?\b", "soak (a long simulated run)"),
    Word(r"\bdeeds?\b", "action"),
    Word(r"would-have", "dry-run"),
    Word(r"\bsick\b", "faulty"),
    # Severities are info, warning, major and critical.
    Word(r"severit(y|ies) (of )?`?(low|high)\b|\bSeverity\.(LOW|HIGH)\b", "major or critical"),
    # Sentences without a subject that acts.
    Word(r"\b(is|are|was|were|be|been) (said|told|heard|ill|news)\b", "who says it, to whom"),
    Word(r"\bill of\b|\bis ill\b|\bnot ill\b", "faulty, or has the fault"),
    Word(r"\bsaid aloud\b", "a notice"),
    Word(r"\bno quiet\b", "the condition itself"),
    Word(r"\bfor want of\b", "without"),
    Word(r"\bwith a word\b", "the sentence with what is written, and where"),
    Word(r"\bto no avail\b", "without success"),
    Word(r"\bin words\b", "as text", r"for \w+ in words|not in words|in words\b.*:$", "a variable of code"),
)


def texts() -> Iterator[tuple[str, list[str]]]:
    """Path and lines of every text file that a user or a developer reads."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", *READ, *PAGES]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines()
    for name in listed:
        if not GENERATED.search(name) and (ROOT / name).is_file():
            yield name, (ROOT / name).read_text().splitlines()


TEXTS = dict(texts())


def uses(word: Word, text: dict[str, list[str]]) -> list[str]:
    """ "path:line: text" of each line with the word."""
    found, excepted = re.compile(word.pattern, re.IGNORECASE), re.compile(word.except_in or r"(?!)")
    return [
        f"{name}:{number}: {line.strip()}"
        for name, lines in text.items()
        for number, line in enumerate(lines, 1)
        if found.search(line) and not excepted.search(line)
    ]


@pytest.mark.parametrize("word", WORDS, ids=lambda w: w.pattern)
def test_a_private_word_does_not_come_back(word: Word) -> None:
    assert uses(word, TEXTS) == [], f"write {word.instead}"


@pytest.mark.parametrize("word", [w for w in WORDS if w.except_in], ids=lambda w: w.pattern)
def test_an_exception_has_a_reason_and_is_still_needed(word: Word) -> None:
    everywhere = Word(word.pattern, word.instead)

    assert word.because
    assert uses(everywhere, TEXTS) != uses(word, TEXTS)


def test_a_word_is_found_whatever_its_case_and_an_exception_is_not() -> None:
    word = Word(r"\bbrakes?\b", "drain limits", r"power brake", "NVIDIA's name of a slowdown")
    text = {"a.py": ["the Brake holds it", "an external power brake", "the drain limits hold it"]}

    assert uses(word, text) == ["a.py:1: the Brake holds it"]
