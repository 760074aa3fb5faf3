"""The verb `nodetriagectl report`, and the entry to `model` and `simulate`.

python -m nodetriage.analysis.cli.main report all --jobs jobs.parquet --events events.parquet
"""

import argparse
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from nodetriage.analysis.cli import model, simulate
from nodetriage.service import moment
from nodetriage.service.command_line import BAD_CONFIGURATION, UNKNOWN
from nodetriage.service.printable import printable

if TYPE_CHECKING:
    from nodetriage.analysis.history.history import History

NAMES = ("mttf", "rates", "ettr", "goodput", "attribution", "lemons", "false-positives", "cascades")


_FILES = {
    "jobs": "sacct -P, sacct --json, Parquet or CSV, also packed; - is standard input; once for each file",
    "events": "Parquet or CSV, as --jobs",
    "outages": "drains, tickets, repairs: Parquet, CSV or sacctmgr -P show event, as --jobs",
}


def add(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Adds `report`, `model` and `simulate`; the chosen one is `args.verb(args)`, which gives the exit status."""
    text = "report failures, their causes and cost, and lemon nodes, from the history"
    parser = subparsers.add_parser("report", help=text, description=text)
    parser.add_argument("name", nargs="?", default="all", choices=(*NAMES, "all"), help="(default: all)")
    source = parser.add_argument_group("input")
    for name, text in _FILES.items():
        source.add_argument(f"--{name}", type=Path, action="append", metavar="FILE", help=text)
    source.add_argument("--database", metavar="URL", help="the controller's store: sqlite:////PATH, postgresql://...")
    source.add_argument("--topology", type=Path, metavar="FILE", help="node, rack, switch, ...: Parquet or CSV")
    moment.add_since(source, "not before")
    source.add_argument("--until", type=moment.argument, metavar="WHEN", help="before this; as --since")
    source.add_argument(
        "--timezone", default="UTC", metavar="ZONE", help="the time zone of sacct's times (default: UTC)"
    )
    source.add_argument("--settings", type=Path, metavar="FILE", help="TOML; the defaults are in docs/history.md")
    source.add_argument("--job", metavar="JOBID", help="report only what ended this job")
    output = parser.add_argument_group("output")
    form = output.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="all rows as one JSON object")
    form.add_argument("--csv", action="store_true", help="all rows as CSV, one table after the other")
    output.add_argument("--plots", type=Path, metavar="DIR", help="also draw the plots, SVG and PNG")
    output.add_argument("--save", type=Path, metavar="DIR", help="also write the tables as Parquet")
    output.add_argument("--rows", type=int, default=20, metavar="N", help="of each table as text (default: 20)")
    output.add_argument("--quiet", action="store_true", help="no progress on standard error")
    parser.set_defaults(verb=report)
    model.add(subparsers)
    simulate.add(subparsers)


def main(argv: Sequence[str] | None = None) -> int:
    """The same verbs without the controller around them."""
    parser = argparse.ArgumentParser(prog="python -m nodetriage.analysis.cli.main", description=__doc__)
    add(parser.add_subparsers(required=True, metavar="VERB"))
    args = parser.parse_args(argv)
    status: int = args.verb(args)
    return status


def report(args: argparse.Namespace) -> int:
    """0 done, 3 the input cannot be read or lacks the job, 78 the command or the settings are wrong."""
    from nodetriage.analysis.tables import TableError
    from nodetriage.checks.model.settings import ConfigError

    if not (args.jobs or args.events or args.database or args.outages):
        return _say("report: expected --jobs, --events or --database", BAD_CONFIGURATION)
    if [*(args.jobs or ()), *(args.events or ()), *(args.outages or ())].count(Path("-")) > 1:
        return _say("report: standard input (-) can be read once; expected one option with it", BAD_CONFIGURATION)
    if args.since and args.until and args.until <= args.since:
        return _say("report: --until: expected a time after --since", BAD_CONFIGURATION)
    try:
        return _report(args)
    except ConfigError as error:
        return _say(f"report: {error}", BAD_CONFIGURATION)
    except TableError as error:
        return _say(f"report: {error}", UNKNOWN)
    except OSError as error:
        return _say(f"report: {error.filename or ''}: {error.strerror or error}", UNKNOWN)


def _report(args: argparse.Namespace) -> int:
    from nodetriage.analysis.history import history, study
    from nodetriage.analysis.imports import topology
    from nodetriage.analysis.imports.sacct import check_zone
    from nodetriage.analysis.reports import render
    from nodetriage.analysis.reports import report as made

    settings = study.read_settings(args.settings)
    check_zone(args.timezone)
    progress = _Progress(args.quiet or not sys.stderr.isatty())
    sources = history.Sources(args.jobs, args.events, args.outages, args.database, args.timezone)
    read = history.load(sources, datetime.now(UTC), args.since, args.until, progress)
    if args.save:
        _save(read, args.save)
    plan = topology.read(args.topology) if args.topology else None
    under = study.Study(read, settings, progress, plan)
    names = NAMES if args.name == "all" else (args.name,)
    if args.job and not (job_ids := made.job_ids(read, args.job)):
        return _say(f"report: --job {args.job}: no such job touches the period of this history", UNKNOWN)
    reports = made.about_job(under, job_ids) if args.job else made.make(under, names)
    if args.plots:
        from nodetriage.analysis.plots import history_plots

        progress("drawing")
        history_plots.draw_all(under, args.plots)
    progress.done()
    if args.json:
        render.as_json(reports, read, sys.stdout)
    elif args.csv:
        render.as_csv(reports, sys.stdout)
    else:
        render.as_text(reports, sys.stdout, args.rows)
    return 0


def _save(read: "History", directory: Path) -> None:
    from nodetriage.analysis.tables import write_parquet

    directory.mkdir(parents=True, exist_ok=True)
    for name, frame in (("jobs", read.jobs.drop("run")), ("events", read.events), ("outages", read.outages)):
        write_parquet(frame, directory / f"{name}.parquet")


class _Progress:
    """One line on standard error: the present step, and the seconds since the start."""

    def __init__(self, quiet: bool) -> None:
        self._quiet = quiet
        self._began_s = time.monotonic()

    def __call__(self, text: str) -> None:
        if not self._quiet:
            sys.stderr.write(f"\r\x1b[K{time.monotonic() - self._began_s:5.1f} s  {text}")
            sys.stderr.flush()

    def done(self) -> None:
        if not self._quiet:
            sys.stderr.write("\r\x1b[K")


def _say(text: str, status: int) -> int:
    sys.stderr.write(f"{printable(text)}\n")
    return status


if __name__ == "__main__":
    sys.exit(main())
