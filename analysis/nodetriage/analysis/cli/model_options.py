"""The options of `nodetriagectl model`: each a number with its unit in the name. One table for all verbs."""

from typing import Any

from nodetriage.analysis.models.mttf import GPUS_PER_NODE


def _number(text: str, default: float | None = None) -> dict[str, Any]:
    shown = text if default is None else f"{text} (default: {default:g})"
    return {"type": float, "default": default, "metavar": "X", "help": shown}


def _whole(text: str, default: int | None = None) -> dict[str, Any]:
    shown = text if default is None else f"{text} (default: {default})"
    return {"type": int, "default": default, "metavar": "N", "help": shown}


OPTIONS: dict[str, dict[str, Any]] = {
    "nodes": _number("nodes of the job"),
    "gpus": _whole("GPUs of the job, instead of --nodes"),
    "gpus-per-node": _whole("GPUs of a node", GPUS_PER_NODE),
    "rf-per-1000-node-days": _number("failures per 1000 node-days"),
    "largest-nodes-seen": _number("nodes of the largest jobs that the rate was measured on"),
    "productive-days": _number("days of training without interruptions"),
    "restart-min": _number("minutes from a failure to training again, queue not counted", 5.0),
    "checkpoint-write-min": _number("minutes that a checkpoint stops training", 5.0),
    "checkpoint-interval-min": _number("minutes of training between two checkpoints; (default: the best one)"),
    "queue-min": _number("minutes in the queue at each start", 0.0),
    "rework-share": _number("share of an interval that a failure costs; 1 in the worst case", 0.5),
    "trials": _whole("also simulate so many runs (Monte Carlo); needs --productive-days", 0),
    "seed": _whole("seed of the Monte Carlo", 1),
    "mtbf-min": _number("minutes between failures of the job, instead of a rate"),
    "usd-per-gpu-hour": _number("price of a GPU-hour in USD"),
    "target-ettr": _number("ETTR to reach, between 0 and 1"),
    "repair-days": _number("mean days in repair"),
    "target": _number("share of time in which no job may wait for a node", 0.99),
    "spares": _whole("spare nodes at hand"),
    "saved-min-ago": {"type": float, "nargs": "+", "metavar": "X", "help": "when checkpoints at hand were saved"},
    "ranks": _whole("ranks that wait for one another"),
    "slow-share": _number("share of nodes that are slow"),
    "detection-latency-min": _number("minutes from a silent corruption to its detection"),
}
