"""What the commands `nodetriage` and `nodetriagectl` have in common: exit codes and a parser that uses them."""

import argparse
import sys
from typing import NoReturn

OK = 0
UNKNOWN = 3
BAD_CONFIGURATION = 78  # EX_CONFIG of sysexits.h


class Parser(argparse.ArgumentParser):
    """A wrong command line ends with 78: argparse's own 2 would read as "a serious fault was found"."""

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(BAD_CONFIGURATION, f"{self.prog}: {message}\n")
