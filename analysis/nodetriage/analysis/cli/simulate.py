"""`nodetriagectl simulate`: writes a simulated history and its truth, to try the reports and their settings on."""

import argparse
import json
import sys
from pathlib import Path

from nodetriage.service.command_line import BAD_CONFIGURATION, UNKNOWN


def add(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Adds `simulate`; `args.verb(args)` runs it and gives the exit status."""
    text = "write a simulated fleet's jobs and events, and the planted faults, as Parquet"
    parser = subparsers.add_parser("simulate", help=text, description=text)
    parser.add_argument("directory", type=Path, help="where to write; created if it does not exist")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="(default: 1)")
    parser.add_argument("--nodes", type=int, default=200, metavar="N", help="of 8 GPUs each (default: 200)")
    parser.add_argument("--days", type=int, default=90, metavar="N", help="(default: 90)")
    parser.add_argument("--jobs", type=int, default=100_000, metavar="N", help="about so many (default: 100000)")
    rate = "failures per 1000 node-days, mean of the fleet (default: 6.5)"
    parser.add_argument("--rf-per-1000-node-days", type=float, default=6.5, metavar="X", help=rate)
    share = "share of nodes that are lemons (default: 0.012)"
    parser.add_argument("--lemon-share", type=float, default=0.012, metavar="X", help=share)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(verb=write)


def write(args: argparse.Namespace) -> int:
    """Writes jobs, events, truth-failures and truth-nodes."""
    from nodetriage.analysis import simulate
    from nodetriage.analysis.tables import TableError, write_parquet

    try:
        settings = simulate.Fleet(
            nodes=args.nodes,
            days=args.days,
            jobs=args.jobs,
            rf_per_1000_node_days=args.rf_per_1000_node_days,
            lemon_share=args.lemon_share,
        )
        args.directory.mkdir(parents=True, exist_ok=True)
        sys.stderr.write(f"simulating {settings.nodes} nodes for {settings.days} days\n")
        made = simulate.fleet(args.seed, settings, _progress)
        tables = {
            "jobs": made.jobs,
            "events": made.events,
            "truth-failures": made.truth.failures,
            "truth-nodes": made.truth.nodes,
        }
        for name, frame in tables.items():
            write_parquet(frame, args.directory / f"{name}.parquet")
        rows = {f"{args.directory / name}.parquet": frame.height for name, frame in tables.items()}
        if args.json:
            sys.stdout.write(json.dumps({"rows": rows}) + "\n")
        else:
            sys.stdout.writelines(f"{file}: {count} rows\n" for file, count in rows.items())
    except ValueError as error:
        sys.stderr.write(f"simulate: {error}\n")
        return BAD_CONFIGURATION
    except (OSError, TableError) as error:
        sys.stderr.write(f"simulate: {error}\n")
        return UNKNOWN
    return 0


def _progress(week: int, weeks: int) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(f"\rweek {week} of {weeks}" + ("\n" if week == weeks else ""))
        sys.stderr.flush()
