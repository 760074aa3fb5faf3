"""`nodetriagectl model ...`: the models as commands. Every option carries its unit in its name.

    python -m nodetriage.analysis.cli.model ettr --gpus 4096 --rf-per-1000-node-days 6.5

A verb gets the parsed arguments and gives an Answer; only `speak` prints. A verb imports what it needs.
"""

import argparse
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict

from nodetriage.analysis.cli.model_answer import Answer
from nodetriage.analysis.cli.model_options import OPTIONS
from nodetriage.analysis.models import checkpoint, ettr, goodput, interruptions, mttf, retention, solve, spares
from nodetriage.analysis.models.figure import Figure, OutOfDomain
from nodetriage.analysis.models.interruptions import MINUTES_PER_DAY, Run
from nodetriage.service import table
from nodetriage.service.command_line import BAD_CONFIGURATION

Args = argparse.Namespace
Verb = Callable[[Args], Answer]


def add(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Adds `model` and its verbs; the chosen one is `args.verb(args)`, which prints and gives the exit status."""
    text = "what failures cost, from formulas: MTTF, ETTR, goodput, checkpoint intervals, spares"
    model = subparsers.add_parser("model", help=text, description=text)
    _add_verbs(model.add_subparsers(title="models", metavar="MODEL", required=True))


def main(argv: Sequence[str] | None = None) -> int:
    """The same verbs without `nodetriagectl` around them."""
    parser = argparse.ArgumentParser(prog="python -m nodetriage.analysis.cli.model", description="what failures cost")
    _add_verbs(parser.add_subparsers(title="models", metavar="MODEL", required=True))
    args = parser.parse_args(argv)
    status: int = args.verb(args)
    return status


def _add_verbs(models: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    for name, (verb, options, text) in _VERBS.items():
        parser = models.add_parser(name, help=text, description=text)
        for option in options.split():
            flag = option.rstrip("!?")  # "!": must be given; "?": without its default
            settings = {**OPTIONS[flag], "default": None} if option.endswith("?") else OPTIONS[flag]
            parser.add_argument(f"--{flag}", required=option.endswith("!"), **settings)
        parser.add_argument("--json", action="store_true", help="print JSON")
        parser.set_defaults(verb=_speaking(name, verb))


def _speaking(name: str, verb: Verb) -> Callable[[Args], int]:
    def speak(args: Args) -> int:
        try:
            answer = verb(args)
        except OutOfDomain as error:
            sys.stderr.write(f"model {name}: {error}\n")
            return BAD_CONFIGURATION
        if args.json:
            sys.stdout.write(answer.as_json())
        else:
            table.write(sys.stdout, *answer.parts())
        return 0

    return speak


def _nodes(args: Args) -> float:
    if args.nodes is not None:
        return float(args.nodes)
    if args.gpus is None:
        raise OutOfDomain("expected --nodes or --gpus")
    return mttf.nodes_for(args.gpus, args.gpus_per_node)


def _mtbf_min(args: Args) -> float:
    if args.mtbf_min is not None:
        return float(args.mtbf_min)
    if args.rf_per_1000_node_days is None:
        raise OutOfDomain("expected --mtbf-min, or --rf-per-1000-node-days with --nodes or --gpus")
    return mttf.theory_h(_nodes(args), args.rf_per_1000_node_days) * 60


def _mttf(args: Args) -> Answer:
    nodes, rate = _nodes(args), args.rf_per_1000_node_days
    figures = [mttf.projection(nodes, rate, args.largest_nodes_seen)]
    if args.productive_days is not None:
        count = mttf.expected_failures(nodes, rate, args.productive_days * 24)
        figures.append(Figure(f"failures in {args.productive_days:g} days of running", count, "failures"))
    rows = [
        {"rf_per_1000_node_days": r, "mttf_h": mttf.theory_h(nodes, r), "cluster": name}
        for name, (r, _) in mttf.PUBLISHED.items()
    ]
    return Answer(tuple(figures), tuple(rows))


def _run(args: Args) -> Run:
    nodes, rate = _nodes(args), args.rf_per_1000_node_days
    interval = args.checkpoint_interval_min
    if interval is None:
        interval = ettr.optimal_interval_min(nodes, rate, args.checkpoint_write_min)
    work = math.inf if args.productive_days is None else args.productive_days * MINUTES_PER_DAY
    return Run(
        nodes, rate, args.restart_min, args.checkpoint_write_min, interval, args.queue_min, work, args.rework_share
    )


def _ettr(args: Args) -> Answer:
    run = _run(args)
    figures = [Figure("checkpoint interval", run.checkpoint_interval_min, "min")]
    refused = []
    asked: dict[str, Callable[[Run], Figure]] = {
        "ETTR, exact": ettr.exact,
        "ETTR, equation 1": ettr.equation_1,
        "ETTR, equation 2": ettr.equation_2,
    }
    if math.isfinite(run.productive_min):
        asked["interruptions, exact"] = interruptions.exact
        asked["interruptions, linearised"] = interruptions.linear
    for name, figure in asked.items():
        try:
            figures.append(figure(run))
        except OutOfDomain as error:
            refused.append(f"{name}: {error}")
    if args.trials:
        from nodetriage.analysis.models import ettr_trials

        played = ettr_trials.play(run, args.trials, args.seed)
        figures += [played.ettr, played.interruptions, played.spread]
    return Answer(tuple(figures), refused=tuple(refused))


def _interval(args: Args) -> Answer:
    return Answer(checkpoint.advise(args.checkpoint_write_min, _mtbf_min(args), args.restart_min).figures())


def _goodput(args: Args) -> Answer:
    write, restart, mtbf = args.checkpoint_write_min, args.restart_min, _mtbf_min(args)
    interval = args.checkpoint_interval_min
    if interval is None:
        interval = checkpoint.young_min(write, mtbf)
    exact = goodput.exact_goodput(interval, write, mtbf, restart)
    figures = [
        Figure("checkpoint interval", interval, "min"),
        Figure("mean time between failures", mtbf, "min"),
        exact,
        *goodput.first_order(interval, write, mtbf, restart).figures(),
        goodput.uptime(mtbf, restart, interval / 2),
    ]
    if write > 0 and restart > 0:
        figures.append(
            Figure("restarts waste more than writes below", goodput.crossover_mtbf_min(write, restart), "min")
        )
    if args.usd_per_gpu_hour is not None:
        gpus = args.gpus if args.gpus is not None else _nodes(args) * args.gpus_per_node
        lost = goodput.usd_per_day(gpus, args.usd_per_gpu_hour, 100 * (1 - exact.value))
        figures.append(Figure("cost of what is lost", lost.value, lost.unit))
    return Answer(tuple(figures))


_LINEAR_TO = 0.2  # of the rate times the restart; beyond it equation 2 is no longer near the exact form


def _write_needed(nodes: float, rf: float, restart_min: float, target: float) -> Figure | solve.Unreachable:
    if nodes * rf / 1000 / MINUTES_PER_DAY * restart_min > _LINEAR_TO:
        return solve.exact_write_needed_min(nodes, rf, restart_min, target)
    return solve.write_needed_min(nodes, rf, restart_min, target)


def _solve(args: Args) -> Answer:
    nodes, target = _nodes(args), args.target_ettr
    found: list[Figure | solve.Unreachable] = []
    if args.rf_per_1000_node_days is not None:
        found.append(_write_needed(nodes, args.rf_per_1000_node_days, args.restart_min, target))
    if args.checkpoint_write_min is not None:
        found.append(solve.rate_needed_per_1000_node_days(nodes, args.restart_min, args.checkpoint_write_min, target))
    if not found:
        raise OutOfDomain("expected --rf-per-1000-node-days, --checkpoint-write-min, or both")
    return Answer(
        figures=tuple(f for f in found if isinstance(f, Figure)),
        refused=tuple(f.line() for f in found if isinstance(f, solve.Unreachable)),
    )


def _spares(args: Args) -> Answer:
    nodes, rate = _nodes(args), args.rf_per_1000_node_days
    figures = []
    if args.repair_days is not None:
        figures += [
            spares.needed(nodes, rate, args.repair_days, args.target),
            spares.availability(rate, args.repair_days),
        ]
    if args.spares is not None:
        figures.append(spares.repair_days_covered(args.spares, nodes, rate, args.target))
    if not figures:
        raise OutOfDomain("expected --repair-days, --spares, or both")
    return Answer(tuple(figures))


def _retention(args: Args) -> Answer:
    latency, interval = args.detection_latency_min, args.checkpoint_interval_min
    copies = retention.copies_guaranteed(latency, interval)
    figures = (copies, retention.rollback_min(latency, interval, args.restart_min))
    if not args.saved_min_ago:
        return Answer(figures)
    back = retention.roll_back(args.saved_min_ago, latency)
    if back.to_min is None:
        return Answer(figures, refused=("roll back: no checkpoint is older than the detection latency",))
    newest = Figure("roll back to the checkpoint saved", back.to_min, "min ago", notes=("younger ones are suspect",))
    return Answer((*figures, newest))


def _straggler(args: Args) -> Answer:
    from nodetriage.analysis.models import straggler

    figures = []
    if args.ranks is not None:
        figures += [straggler.expected_maximum_sigmas(args.ranks), straggler.asymptotic_maximum_sigmas(args.ranks)]
    if args.slow_share is not None:
        figures.append(straggler.all_avoid_slow_nodes(args.slow_share, int(_nodes(args))))
    if not figures:
        raise OutOfDomain("expected --ranks, or --slow-share with --nodes or --gpus")
    return Answer(tuple(figures))


def _sensitivity(args: Args) -> Answer:
    rows = solve.sensitivity(_nodes(args), [args.rf_per_1000_node_days])
    return Answer(rows=tuple(asdict(r) for r in rows))


def _contour(args: Args) -> Answer:
    nodes = _nodes(args) if args.nodes is not None or args.gpus is not None else solve.CONTOUR_GPUS / args.gpus_per_node
    return Answer(rows=tuple(asdict(p) for p in solve.contour(nodes, args.restart_min)))


_SIZE = "nodes gpus gpus-per-node "
_VERBS: dict[str, tuple[Verb, str, str]] = {
    "mttf": (
        _mttf,
        _SIZE + "rf-per-1000-node-days! largest-nodes-seen productive-days",
        "mean time to failure of a job of any size",
    ),
    "ettr": (
        _ettr,
        _SIZE + "rf-per-1000-node-days! restart-min checkpoint-write-min checkpoint-interval-min queue-min"
        " productive-days rework-share trials seed",
        "effective training time ratio: exact, equations 1 and 2, Monte Carlo; expected interruptions",
    ),
    "interval": (
        _interval,
        _SIZE + "rf-per-1000-node-days mtbf-min checkpoint-write-min restart-min",
        "how often to checkpoint: Young, Daly, exact optimum, and how flat it is",
    ),
    "goodput": (
        _goodput,
        _SIZE + "rf-per-1000-node-days mtbf-min checkpoint-interval-min checkpoint-write-min restart-min"
        " usd-per-gpu-hour",
        "useful time over wall time, its three wastes and their price",
    ),
    "solve": (
        _solve,
        _SIZE + "rf-per-1000-node-days checkpoint-write-min? restart-min target-ettr!",
        "the checkpoint write time or the failure rate that an ETTR needs",
    ),
    "spares": (
        _spares,
        _SIZE + "rf-per-1000-node-days! repair-days spares target",
        "hot spares for the nodes in repair, or the repair time that spares cover",
    ),
    "retention": (
        _retention,
        "detection-latency-min! checkpoint-interval-min! restart-min saved-min-ago",
        "checkpoints to keep against silent corruption",
    ),
    "straggler": (_straggler, _SIZE + "ranks slow-share", "how slow the slowest of many is"),
    "sensitivity": (_sensitivity, _SIZE + "rf-per-1000-node-days!", "ETTR over restart and checkpoint write times"),
    "contour": (_contour, _SIZE + "restart-min", "lines of equal ETTR over failure rate and checkpoint write time"),
}

if __name__ == "__main__":
    sys.exit(main())
