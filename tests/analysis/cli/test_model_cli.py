"""`nodetriagectl model`: each verb answers in text and JSON, refuses nonsense in one line, and starts fast."""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from nodetriage.analysis.cli import main, model, simulate

GOOD: dict[str, str] = {
    "mttf": "--gpus 16384 --rf-per-1000-node-days 6.5 --largest-nodes-seen 512 --productive-days 30",
    "ettr": "--nodes 1024 --rf-per-1000-node-days 6.5 --checkpoint-interval-min 45 --productive-days 30 --trials 200",
    "interval": "--mtbf-min 186 --restart-min 15",
    "goodput": "--gpus 16384 --mtbf-min 186 --restart-min 15 --usd-per-gpu-hour 2",
    "solve": "--gpus 12288 --target-ettr 0.9 --rf-per-1000-node-days 6.5 --checkpoint-write-min 5",
    "spares": "--nodes 2048 --rf-per-1000-node-days 3.7887 --repair-days 0.5 --spares 52",
    "retention": "--detection-latency-min 90 --checkpoint-interval-min 13 --saved-min-ago 3 81 94 107",
    "straggler": "--ranks 2048 --nodes 2048 --slow-share 0.005",
    "sensitivity": "--gpus 12288 --rf-per-1000-node-days 6.5",
    "contour": "",
}
Captured = pytest.CaptureFixture[str]


def answer(capsys: Captured, verb: str, options: str) -> Any:
    assert model.main([verb, *options.split(), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("verb", GOOD)
def test_a_verb_answers_in_text_and_in_json_and_says_that_it_is_a_model(verb: str, capsys: Captured) -> None:
    assert model.main([verb, *GOOD[verb].split()]) == 0
    assert "model" in capsys.readouterr().out
    found = answer(capsys, verb, GOOD[verb])
    assert found["kind"] == "model"
    assert found.get("figures") or found.get("rows")
    for figure in found.get("figures", ()):
        assert figure["unit"]
        assert figure["name"]


@pytest.mark.parametrize(
    ("verb", "name", "value"),
    [
        ("mttf", "job-level MTTF", 1.8028846),
        ("ettr", "ETTR, exact", 0.78165389),
        ("ettr", "ETTR, equation 1", 0.78551818),
        ("ettr", "expected interruptions, linearised", 254.20163),
        ("interval", "Daly's interval", 39.858792),
        ("goodput", "goodput, first order", 0.75417314),
        ("solve", "failure rate needed", 0.9375),
        ("spares", "hot spares", 9),
        ("spares", "mean repair covered", 4.83885),
        ("retention", "checkpoints to keep", 8),
        ("retention", "roll back to the checkpoint saved", 94),
        ("straggler", "expected slowest rank", 3.4417991),
        ("straggler", "chance of no slow node", 3.4807222e-05),
        ("goodput", "restarts waste more than writes below", 22.5),
    ],
)
def test_a_verb_gives_the_oracles_figure(verb: str, name: str, value: float, capsys: Captured) -> None:
    figures = {f["name"]: f["value"] for f in answer(capsys, verb, GOOD[verb])["figures"]}
    assert figures[name] == pytest.approx(value, rel=1e-5)


def test_every_option_that_is_a_quantity_says_its_unit() -> None:
    units = (
        "-min",
        "-days",
        "-hour",
        "-share",
        "nodes",
        "gpus",
        "per-node",
        "seen",
        "trials",
        "seed",
        "target",
        "ettr",
        "spares",
        "-min-ago",
        "ranks",
    )
    assert [o for o in model.OPTIONS if not o.endswith(units)] == []


@pytest.mark.parametrize(
    ("verb", "options", "said"),
    [
        ("mttf", "--nodes 0 --rf-per-1000-node-days 6.5", "nodes: expected a number above 0"),
        ("mttf", "--nodes nan --rf-per-1000-node-days 6.5", "nodes: expected a number above 0"),
        ("mttf", "--rf-per-1000-node-days 6.5", "expected --nodes or --gpus"),
        ("mttf", "--gpus -8 --rf-per-1000-node-days 6.5", "gpus: expected a number above 0"),
        ("ettr", "--nodes 5 --rf-per-1000-node-days 6.5 --trials 50", "productive_min: expected a finite number"),
        ("ettr", "--nodes 5 --rf-per-1000-node-days 0", "the best interval needs a rate"),
        ("interval", "--nodes 5", "expected --mtbf-min, or --rf-per-1000-node-days"),
        (
            "solve",
            "--nodes 5 --target-ettr 1.5 --rf-per-1000-node-days 6.5",
            "target: expected a number between 0 and 1",
        ),
        ("solve", "--nodes 5 --target-ettr 0.5", "expected --rf-per-1000-node-days, --checkpoint-write-min"),
        ("spares", "--nodes 5 --rf-per-1000-node-days 6.5", "expected --repair-days, --spares, or both"),
        ("straggler", "--nodes 5", "expected --ranks, or --slow-share"),
        ("retention", "--detection-latency-min 0 --checkpoint-interval-min 5", "detection_latency_min: expected"),
    ],
)
def test_nonsense_is_refused_in_one_line(verb: str, options: str, said: str, capsys: Captured) -> None:
    assert model.main([verb, *options.split()]) == 78
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err
    assert err.count("\n") == 1


def test_where_equation_2_has_no_meaning_the_exact_form_still_answers(capsys: Captured) -> None:
    hard = "--nodes 16384 --rf-per-1000-node-days 6.5 --restart-min 15 --checkpoint-interval-min 15.25"
    found = answer(capsys, "ettr", hard)
    assert [f["name"] for f in found["figures"]] == ["checkpoint interval", "ETTR, exact"]
    assert len(found["refused"]) == 2
    assert all("expected below 1" in r for r in found["refused"])


def test_an_unreachable_target_is_said_to_be_one(capsys: Captured) -> None:
    found = answer(capsys, "solve", "--gpus 12288 --target-ettr 0.99 --rf-per-1000-node-days 6.5")
    assert "unreachable" in found["refused"][0]
    assert "figures" not in found


def test_where_no_checkpoint_is_old_enough_none_is_named(capsys: Captured) -> None:
    found = answer(capsys, "retention", "--detection-latency-min 90 --checkpoint-interval-min 13 --saved-min-ago 3 16")
    assert "no checkpoint is older" in found["refused"][0]


def test_the_verbs_plug_into_another_command(capsys: Captured) -> None:
    parser = argparse.ArgumentParser()
    model.add(parser.add_subparsers())
    args = parser.parse_args(["model", "mttf", *GOOD["mttf"].split()])
    assert args.verb(args) == 0
    assert "extrapolated" in capsys.readouterr().out


def test_the_commands_load_nothing_heavy_before_it_is_used() -> None:
    code = (
        "import sys; from nodetriage.analysis.cli import main, model, simulate; "
        "print([m for m in ('numpy', 'scipy', 'polars', 'matplotlib') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"


def simulated(tmp_path: Path, *options: str) -> int:
    parser = argparse.ArgumentParser()
    simulate.add(parser.add_subparsers())
    args = parser.parse_args(["simulate", str(tmp_path / "made"), *options])
    status: int = args.verb(args)
    return status


def test_simulate_writes_the_tables_and_the_truth(tmp_path: Path, capsys: Captured) -> None:
    assert simulated(tmp_path, "--nodes", "50", "--days", "14", "--jobs", "2000", "--seed", "3") == 0
    files = {p.stem: pl.read_parquet(p) for p in (tmp_path / "made").iterdir()}
    assert set(files) == {"jobs", "events", "truth-failures", "truth-nodes"}
    assert files["truth-nodes"].height == 50
    assert f"jobs.parquet: {files['jobs'].height} rows" in capsys.readouterr().out


@pytest.mark.parametrize("options", [("--nodes", "0"), ("--lemon-share", "2"), ("--days", "0")])
def test_simulate_refuses_a_fleet_that_cannot_be(options: tuple[str, str], tmp_path: Path, capsys: Captured) -> None:
    assert simulated(tmp_path, *options) == 78
    assert "expected" in capsys.readouterr().err
    assert not (tmp_path / "made").exists()


def test_simulate_says_where_it_cannot_write(tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "made").write_text("in the way")
    assert simulated(tmp_path, "--nodes", "5", "--days", "1", "--jobs", "10") == 3
    assert "made" in capsys.readouterr().err


DOCUMENT = (Path(__file__).parents[3] / "docs" / "models.md").read_text(encoding="utf-8")


def test_every_verb_is_documented() -> None:
    assert [v for v in GOOD if f"| `model {v}` |" not in DOCUMENT] == []
    assert "| `simulate DIR` |" in DOCUMENT


def test_the_documents_example_is_true(capsys: Captured) -> None:
    block = [line[4:] for line in DOCUMENT.splitlines() if line.startswith("    ")]
    command, shown = block[0], block[1:]
    assert model.main(command.removeprefix("$ nodetriagectl model ").split()) == 0
    assert capsys.readouterr().out.splitlines() == shown


def test_solve_answers_by_the_exact_form_where_failures_are_frequent(capsys: pytest.CaptureFixture[str]) -> None:
    common = ["model", "solve", "--gpus", "100000", "--rf-per-1000-node-days", "6.5", "--target-ettr"]
    assert main.main([*common, "0.74"]) == 0
    assert "by the exact form" in capsys.readouterr().out
    main.main([*common, "0.76"])
    captured = capsys.readouterr()
    assert "0.7542 is the most" in captured.out + captured.err
