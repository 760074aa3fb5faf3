"""How a command writes for people: folded and in colours on a terminal; plain and one row a line in a pipe or file."""

import os
import shutil
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TextIO

LEAST_COLUMNS = 40  # a narrower terminal folds lines by itself


@dataclass(frozen=True, slots=True)
class Style:
    """`width` in columns; None: nothing is folded."""

    width: int | None = None
    colour: bool = False

    def fold(self, text: str, first: str = "", rest: str | None = None) -> Iterator[str]:
        """The text between words, with `first` before it and `rest` (as `first` where None) before further lines.

        A single word that is longer than a line stays whole, so that it can be copied.
        """
        if self.width is None:
            yield (first + text).rstrip()
            return
        lines = textwrap.wrap(
            text,
            self.width,
            initial_indent=first,
            subsequent_indent=first if rest is None else rest,
            break_on_hyphens=False,
            break_long_words=False,
        )
        yield from lines or ([first.rstrip()] if first.strip() else [])


PLAIN = Style()


def of(out: TextIO, environ: Mapping[str, str] = os.environ) -> Style:
    """The style for this stream. NO_COLOR (https://no-color.org) and a dumb terminal have no colours."""
    if not out.isatty():
        return PLAIN
    colour = not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"
    return Style(max(LEAST_COLUMNS, shutil.get_terminal_size().columns), colour)
