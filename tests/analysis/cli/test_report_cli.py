"""`report`, run as the command it is: every form of output, on a full history, an empty one and on nonsense."""

import csv
import dataclasses
import json
from pathlib import Path

import polars as pl
import pytest

from nodetriage.analysis import simulate
from nodetriage.analysis.cli import main
from nodetriage.analysis.history import study
from nodetriage.analysis.tables import EVENTS, JOBS, OUTAGES, empty

SAMPLES = Path(__file__).parents[1] / "data" / "sacct"


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A month and a half of a small fleet."""
    folder = tmp_path_factory.mktemp("simulated")
    made = simulate.fleet(3, simulate.Fleet(nodes=64, days=45, jobs=8000))
    made.jobs.write_parquet(folder / "jobs.parquet")
    made.events.write_parquet(folder / "events.parquet")
    return folder


def inputs(folder: Path) -> list[str]:
    return ["--jobs", str(folder / "jobs.parquet"), "--events", str(folder / "events.parquet")]


def run(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    assert main.main(["report", *argv]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out


@pytest.fixture
def nothing(tmp_path: Path) -> Path:
    empty(JOBS).write_parquet(tmp_path / "jobs.parquet")
    empty(EVENTS).write_parquet(tmp_path / "events.parquet")
    return tmp_path


@pytest.mark.parametrize("name", [*main.NAMES, "all"])
@pytest.mark.parametrize("form", ["--rows=3", "--json", "--csv"])
def test_every_report_of_an_empty_history_is_written(
    capsys: pytest.CaptureFixture[str], nothing: Path, name: str, form: str
) -> None:
    out = run(capsys, name, *inputs(nothing), form)
    if form == "--json":
        assert next(r["name"] for r in json.loads(out)["reports"]) == "input"
    assert "0 runs and 0 events" in out or form == "--csv"


def test_all_reports_as_text_say_period_units_and_model(capsys: pytest.CaptureFixture[str], simulated: Path) -> None:
    out = run(capsys, "all", *inputs(simulated))
    for text in (
        "2025-01-06",
        "Mean time to failure by job size",
        "per 1000 node-days",
        "(model)",
        "How failed jobs are judged",
        "Nodes recommended for the Lemon state",
        "False-positive budget",
        "Where each week's GPU hours went",
        "The costliest cascades",
        "no problem with the input",
    ):
        assert text in out


def test_the_lemon_report_names_the_command_that_acts_on_it(
    capsys: pytest.CaptureFixture[str], simulated: Path
) -> None:
    report = json.loads(run(capsys, "lemons", *inputs(simulated), "--json"))["reports"][1]["sections"][0]
    nodes = ",".join(sorted(row["node"] for row in report["rows"]))

    assert nodes
    assert f"nodetriagectl lemon set {nodes} --reason" in report["notes"][-1]


def test_without_a_lemon_there_is_no_command(capsys: pytest.CaptureFixture[str]) -> None:
    out = run(capsys, "lemons", "--jobs", str(SAMPLES / "running-output.txt"))

    assert "this report changes no node" in out
    assert "lemon set" not in out


def test_json_holds_every_row_and_no_number_that_is_none(capsys: pytest.CaptureFixture[str], simulated: Path) -> None:
    out = run(capsys, "all", *inputs(simulated), "--json")
    document = json.loads(out, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))
    assert [r["name"] for r in document["reports"]] == ["input", *main.NAMES]
    sections = {s["name"]: s for r in document["reports"] for s in r["sections"]}
    verdicts = {r["verdict"]: r["jobs"] for r in sections["verdicts"]["rows"]}
    infra = verdicts["infrastructure"] + verdicts["unattributed NODE_FAIL"]
    assert len(sections["failed_jobs"]["rows"]) == infra
    assert sections["mttf_projected"]["model"] is True


def test_csv_holds_one_table_for_each_section(capsys: pytest.CaptureFixture[str], simulated: Path) -> None:
    out = run(capsys, "mttf", *inputs(simulated), "--csv")
    blocks = {b.split(":")[0].removeprefix("# "): b.split("\n", 1)[1] for b in out.split("\n\n") if b.startswith("#")}
    rows = list(csv.DictReader(blocks["mttf_by_size"].splitlines()))
    assert rows[0]["gpus"] == "1"
    assert sum(int(r["runs"]) for r in rows) > 7000
    assert next(iter(csv.DictReader(blocks["published_clusters"].splitlines())))["cluster"] == "RSC-1"


def test_plots_are_drawn_for_a_full_history_and_an_empty_one(
    capsys: pytest.CaptureFixture[str], simulated: Path, nothing: Path, tmp_path: Path
) -> None:
    names = ["ettr-contour", "goodput-by-interval", "lemon-signals", "mttf-by-size", "rolling-rates", "weeks"]
    for source in (simulated, nothing):
        folder = tmp_path / source.name / "plots"
        run(capsys, "mttf", *inputs(source), "--plots", str(folder))
        assert sorted(p.name for p in folder.iterdir()) == sorted(f"{n}.{k}" for n in names for k in ("png", "svg"))
        assert all(p.stat().st_size > 1000 for p in folder.iterdir())


def test_what_ended_one_job_is_told(capsys: pytest.CaptureFixture[str], simulated: Path) -> None:
    failed = json.loads(run(capsys, "attribution", *inputs(simulated), "--json"))
    sections = {s["name"]: s for r in failed["reports"] for s in r["sections"]}
    job = next(r for r in sections["failed_jobs"]["rows"] if r["verdict"] == "infrastructure")
    out = run(capsys, "--job", job["job_id"], *inputs(simulated))
    assert f"Attempts of job {job['job_id']}" in out
    assert job["fault"] in out
    assert main.main(["report", "--job", "no such job", *inputs(simulated)]) == 3
    assert "--job no such job: no such job touches the period" in capsys.readouterr().err


def test_a_saved_history_gives_the_same_reports(
    capsys: pytest.CaptureFixture[str], simulated: Path, tmp_path: Path
) -> None:
    before = json.loads(run(capsys, "attribution", *inputs(simulated), "--save", str(tmp_path), "--json"))
    after = json.loads(run(capsys, "attribution", *inputs(tmp_path), "--json"))
    assert before["reports"][1] == after["reports"][1]


def test_the_period_bounds_what_is_reported(capsys: pytest.CaptureFixture[str], simulated: Path) -> None:
    out = run(capsys, "mttf", *inputs(simulated), "--since", "2025-01-20", "--until", "2025-01-27T00:00", "--json")
    document = json.loads(out)
    assert (document["since"], document["until"]) == ("2025-01-20T00:00:00+00:00", "2025-01-27T00:00:00+00:00")
    assert "7.0 days" in out


@pytest.mark.parametrize("sample", sorted(p.name for p in SAMPLES.glob("*.txt")))
def test_every_report_runs_on_every_sample_of_sacct(capsys: pytest.CaptureFixture[str], sample: str) -> None:
    assert "Input, and its problems" in run(capsys, "all", "--jobs", str(SAMPLES / sample))


def test_bad_input_is_counted_in_the_report(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text(
        "job_id,state,start_at,end_at,nodes,node_count,gpus\n"
        "1,COMPLETED,2025-06-01T00:00:00,2025-05-01T00:00:00,n1,1,8\n"
        "2,COMPLETED,2025-06-01T00:00:00,2025-06-01T01:00:00,n[1-,1,8\n"
        "3,COMPLETED,2025-06-01T00:00:00,2025-06-01T01:00:00,n1,1,8\n"
    )
    out = json.loads(run(capsys, "mttf", "--jobs", str(path), "--json"))
    problems = {r["problem"]: (r["rows"], r["left_out"]) for r in out["reports"][0]["sections"][0]["rows"]}
    assert problems["ends before it starts"] == (1, True)
    assert problems["nodes cannot be read"] == (1, False)


@pytest.mark.parametrize(
    ("argv", "status", "text"),
    [
        ([], 78, "expected --jobs, --events or --database"),
        (["--jobs", "/nowhere"], 3, "/nowhere: No such file"),
        (["--database", "sqlite:////nowhere/x"], 3, "no database yet"),
        (["--jobs", "x", "--since", "2025-02-01", "--until", "2025-01-01"], 78, "--until"),
        (["--jobs", "x", "--timezone", "Mars/Olympus"], 78, "--timezone"),
        (["--jobs", "x", "--settings", "/nowhere.toml"], 78, "/nowhere.toml"),
    ],
)
def test_a_wrong_command_is_one_line_and_its_status(
    capsys: pytest.CaptureFixture[str], argv: list[str], status: int, text: str
) -> None:
    assert main.main(["report", *argv]) == status
    err = capsys.readouterr().err
    assert text in err
    assert err.count("\n") == 1


def test_settings_change_what_they_name(capsys: pytest.CaptureFixture[str], simulated: Path, tmp_path: Path) -> None:
    path = tmp_path / "report.toml"
    path.write_text(
        '[attribution]\nbefore_min = 1.5\nmin_severity = "critical"\n[lemons]\nfloors = { xid_cnt = 9.0 }\n'
    )
    assert "from 1.5 min before its end" in run(capsys, "attribution", *inputs(simulated), "--settings", str(path))
    path.write_text("[attribution]\nbefore_mins = 5\n")
    assert main.main(["report", *inputs(simulated), "--settings", str(path)]) == 78
    assert "attribution.before_mins: unknown key" in capsys.readouterr().err


def test_model_and_simulate_are_offered_beside_it(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main.main(["model", "mttf", "--gpus", "16384", "--rf-per-1000-node-days", "6.5"]) == 0
    assert "1.80" in capsys.readouterr().out
    assert main.main(["simulate", str(tmp_path), "--nodes", "8", "--days", "2", "--jobs", "50"]) == 0
    assert pl.read_parquet(tmp_path / "jobs.parquet").height > 10


def test_the_settings_in_the_documentation_are_all_settings_and_their_defaults(tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "history.md").read_text(encoding="utf-8")
    text = page.split("```toml\n")[1].split("```")[0]
    (tmp_path / "defaults.toml").write_text(text)
    assert study.read_settings(tmp_path / "defaults.toml") == study.Settings()
    for table in dataclasses.fields(study.Settings):
        for setting in dataclasses.fields(getattr(study.Settings(), table.name)):
            assert f"{setting.name} = " in text or f"[{table.name}.{setting.name}]" in text


def test_every_report_and_column_is_in_the_documentation() -> None:
    page = (Path(__file__).parents[3] / "docs" / "history.md").read_text(encoding="utf-8")
    for word in (*main.NAMES, *JOBS, *EVENTS, *OUTAGES):
        assert f"`{word}`" in page


def test_what_the_input_lacks_is_not_measured_and_no_zero(
    capsys: pytest.CaptureFixture[str], simulated: Path, tmp_path: Path
) -> None:
    without_events = run(capsys, "all", "--jobs", str(simulated / "jobs.parquet"))
    assert "ALARM no events of agents: causes, false positives and Xids are not measured" in without_events
    assert "r_f is a lower bound" in without_events
    assert "no problem with the input" not in without_events
    assert "not measured: no outages are recorded" in without_events
    assert "within budget" not in without_events
    whole = run(capsys, "all", *inputs(simulated))
    assert "no events of agents" not in whole
    assert "lower bound: without events" not in whole
    last = pl.read_parquet(simulated / "jobs.parquet").sort("start_at").unique("job_id", keep="last")
    last.with_columns(gpus=pl.lit(None, dtype=pl.Int32)).write_parquet(tmp_path / "jobs.parquet")
    poor = run(capsys, "mttf", "--jobs", str(tmp_path / "jobs.parquet"))
    assert "requeued jobs have fewer attempts here than Restarts says" in poor
    assert "gpus is empty in every row" in poor
    assert "sacct -a -X -D -P" in poor
    assert "than Restarts says" not in whole
