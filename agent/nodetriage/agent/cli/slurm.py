"""The verb `slurm doctor`."""

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

from nodetriage.agent.cli import style
from nodetriage.service.command_line import UNKNOWN

PLACES = ("/etc/slurm/slurm.conf", "/run/slurm/conf/slurm.conf", "/etc/slurm-llnl/slurm.conf")


def add(verb: argparse.ArgumentParser, parser_class: Any) -> None:
    """`slurm doctor`."""
    verbs = verb.add_subparsers(required=True, metavar="VERB", parser_class=parser_class)
    text = "say what slurm.conf lacks or has that is dangerous; changes nothing"
    doctor = verbs.add_parser("doctor", help=text, description=text, epilog="exit code: 0 well, 1 missing, 2 dangerous")
    doctor.add_argument("--conf", type=Path, metavar="FILE", help=f"($SLURM_CONF, else {', '.join(PLACES)})")
    doctor.add_argument("--json", action="store_true", help="one JSON object")
    doctor.set_defaults(verb=_doctor)


def _doctor(arguments: argparse.Namespace) -> int:
    from nodetriage.agent.slurm import conf, doctor

    path = arguments.conf or _place()
    try:
        found_conf = conf.load(path)
    except OSError as error:
        print(f"nodetriage: {path}: {error.strerror or error}", file=sys.stderr)
        return UNKNOWN
    advice = doctor.examine(found_conf, hooked)
    level = max((a.level for a in advice), default=doctor.Level.NOTE)
    if arguments.json:
        found = [{"level": a.level.name.lower(), "key": a.key, "text": a.text, "set": a.set} for a in advice]
        files = [str(file) for file in found_conf.files]
        print(json.dumps({"files": files, "troubles": found_conf.troubles, "advice": found}, indent=2))
    else:
        for one in advice:
            _show(one.level.name.lower(), one.key, one.text, one.set)
        for trouble in found_conf.troubles:
            _show("unread", "", trouble, "")
        counts = ", ".join(
            f"{sum(a.level is kind for a in advice)} {kind.name.lower()}" for kind in reversed(doctor.Level)
        )
        print(f"{path}: {counts}.")
    return UNKNOWN if found_conf.troubles and not level else int(level)


def _show(level: str, key: str, text: str, line: str) -> None:
    head = f"{level:<9}{key + ': ' if key else ''}{text}"
    print("\n".join(style.of(sys.stdout).fold(head, "", " " * 9)))
    if line:
        print(f"{' ' * 9}{line}")


def _place() -> Path:
    named = os.environ.get("SLURM_CONF")
    if named:
        return Path(named)
    return next((Path(p) for p in PLACES if Path(p).exists()), Path(PLACES[0]))


def hooked(value: str) -> bool:
    """Whether a path of slurm.conf, which may be a pattern, names a script that calls nodetriage's hook."""
    pattern = Path(value)
    try:
        scripts = sorted(pattern.parent.glob(pattern.name)) if pattern.is_absolute() else []
        return any("nodetriage" in script.read_text(errors="replace") for script in scripts if script.is_file())
    except OSError:
        return False
