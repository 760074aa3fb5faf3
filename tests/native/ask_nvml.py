"""The program of nvml_library.Asker: for each line, one inventory as JSON. A line is a list of PCI addresses in
quarantine, "quick" for less than a whole look, and "listen" for each call to be printed from now on."""

import dataclasses
import itertools
import json
import sys

from nodetriage.agent.machine.nvml import Library, NvmlError
from nodetriage.checks.model import Unavailable

calls: list[str] = []
listen = False


def announce(what: str) -> None:
    calls.append(what)
    if listen:
        print(what, flush=True)


seconds = itertools.count()
library = Library(announce, lambda: sys.argv[1:], lambda: float(next(seconds)))
for line in sys.stdin:
    words = json.loads(line)
    listen = listen or "listen" in words
    quarantined = [word for word in words if ":" in word]
    answer: dict[str, object] = {}
    try:
        answer["gpus"] = [dataclasses.asdict(gpu) for gpu in library.inventory(quarantined, whole="quick" not in words)]
    except Unavailable as error:
        answer["unavailable"] = str(error)
    except NvmlError as error:
        answer["error"] = str(error)
    print(json.dumps({**answer, "calls": calls}), flush=True)
    calls.clear()
