"""The command `nodetriage`, mostly in this process; the live machine through the real program."""

import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from nvml_library import FakeGpus
from terminal import on_a_terminal
from waiting import until

from nodetriage.agent.cli.main import main
from nodetriage.checks.model.faults import faults

HOSTS = Path(__file__).parents[2] / "hosts"
XID = "NVRM: Xid (PCI:0000:3a:00): 79, GPU has fallen off the bus.\n"


def run(*arguments: str, environment: dict[str, str] | None = None) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "nodetriage.agent.cli.main", *arguments],
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_a_fault_gives_two_and_is_shown_with_its_part_and_its_meaning(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--root", str(HOSTS / "dgx-h100-xid79")]) == 2

    shown = capsys.readouterr().out
    assert "critical 0000:9d:00.0: gpu_off_bus" in shown
    assert "a GPU has fallen off the PCIe bus" in shown
    assert "drain the node now and requeue its jobs" in shown


def test_on_a_terminal_lines_fold_at_its_width_and_in_a_pipe_a_finding_is_one_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    command = [sys.executable, "-m", "nodetriage.agent", "check", "--root", str(HOSTS / "dgx-h100-xid79")]
    main(command[3:])
    piped = capsys.readouterr().out.splitlines()
    folded = on_a_terminal(command, 60, {"TERM": "xterm"}).splitlines()

    (finding,) = (line for line in piped if "gpu_off_bus" in line)
    assert finding.startswith("  critical 0000:9d:00.0: gpu_off_bus: a GPU has fallen off the PCIe bus  xid=79")
    assert "  count=2" in finding
    assert not any("\x1b" in line for line in piped)
    plain = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in folded]
    assert max(map(len, plain)) <= 60 < max(map(len, piped))
    assert " ".join(" ".join(plain).split()).count("gpu_off_bus") == 1


def test_a_healthy_machine_gives_zero(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--root", str(HOSTS / "dgx-h100"), "--json"]) == 0

    said = json.loads(capsys.readouterr().out)
    assert {c["outcome"] for c in said["checks"]} <= {"ok", "skipped"}
    assert not any("took_ms" in c for c in said["checks"])


def test_where_nothing_could_be_looked_at_the_answer_is_unknown_and_not_ok(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["check", "gpu_xid", "gpu_lost", "--root", str(HOSTS / "cpu-only")]) == 3

    assert "Nothing could be looked at." in capsys.readouterr().out


def test_a_check_that_cannot_make_sense_of_a_file_is_broken_and_unknown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "nvml.json").write_text('{"gpus": [{"index": "zero"}]}')

    assert main(["check", "gpu_remap", "--root", str(tmp_path), "--json"]) == 3

    (said,) = json.loads(capsys.readouterr().out)["checks"]
    assert said["outcome"] == "broken"
    assert "nvml.json" in said["why"]


def test_only_the_checks_that_are_named_run_in_the_order_of_reports(capsys: pytest.CaptureFixture[str]) -> None:
    main(["check", "ib_link", "gpu_xid", "--root", str(HOSTS / "dgx-h100"), "--json"])

    assert [c["check"] for c in json.loads(capsys.readouterr().out)["checks"]] == ["gpu_xid", "ib_link"]


def test_an_earlier_tree_makes_a_change_visible(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    port = "sys/class/infiniband/mlx5_0/ports/1"
    for name, downed in (("earlier", "0"), ("now", "5")):
        copy_tree(HOSTS / "dgx-h100", tmp_path / name)
        counter = tmp_path / name / port / "counters/link_downed"
        counter.write_text(downed)

    arguments = ["check", "ib_link", "--root", str(tmp_path / "now"), "--profile", "dgx-h100"]
    assert main(arguments) == 0
    assert main([*arguments, "--before", str(tmp_path / "earlier")]) in (1, 2)

    assert "ib_link_flapping" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["check", "no_such_check"], "check no_such_check: unknown; known checks: gpu_xid"),
        (["check", "--root", "/no/such/folder"], "/no/such/folder: no such folder"),
        (["check", "--root", str(HOSTS / "cpu-only"), "--profile", "abacus"], "profile 'abacus': unknown; known"),
        (["check", "--config", "/no/such/file.toml"], "/no/such/file.toml: No such file"),
    ],
)
def test_a_wrong_setting_ends_with_78_and_one_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 78

    said = capsys.readouterr()
    assert said.out == ""
    assert message in said.err
    assert said.err.count("\n") == 1


@pytest.mark.parametrize("arguments", [[], ["chek"], ["check", "--jsn", "x"], ["explain", "79", "80"]])
def test_a_wrong_command_line_is_no_fault_of_the_machine(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)

    assert ended.value.code == 78


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])

    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("nodetriage 0.")


def test_a_wrong_key_in_the_configuration_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "agent.toml"
    config.write_text("[checks.fs_mounts]\ncolour = 'red'\n")

    assert main(["check", "--root", str(HOSTS / "cpu-only"), "--config", str(config)]) == 78

    assert f"{config}: checks.fs_mounts.colour: unknown key; known keys: " in capsys.readouterr().err


def test_the_list_names_every_check_and_runs_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--list"]) == 0

    assert capsys.readouterr().out.startswith("gpu_xid ")


@pytest.mark.parametrize("word", ["79", "xid79", "Xid 79", "gpu_off_bus"])
def test_explain_tells_what_a_fault_is_and_what_will_be_done(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", word]) == 0

    said = " ".join(capsys.readouterr().out.split())
    assert "gpu_off_bus" in said
    assert "severity critical" in said
    assert "action drain the node now and requeue its jobs" in said


def test_explain_knows_switches_and_codes_that_nobody_knows(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "sxid:12028", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["fault"] == "nvswitch_error"
    assert main(["explain", "9999", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["fault"] == "gpu_xid_unknown"


def test_explain_without_a_name_lists_every_fault_the_gravest_first(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert main(["explain", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)

    assert {fault["fault"] for fault in listed} == set(faults())
    assert [fault["fault"] for fault in listed] == [line.split()[1] for line in lines]
    assert lines[0].startswith("critical ")
    assert lines[-1].startswith("info ")


def test_the_module_is_the_command() -> None:
    command = [sys.executable, "-m", "nodetriage.agent", "--version"]

    ran = subprocess.run(command, capture_output=True, text=True, timeout=60)

    assert ran.returncode == 0
    assert re.fullmatch(r"nodetriage \S+\n", ran.stdout)


@pytest.mark.parametrize(
    ("arguments", "keys"),
    [
        (["check", "gpu_xid", "--root", str(HOSTS / "dgx-h100")], {"profile", "exit_code", "severity", "checks"}),
        (["explain", "79"], {"subject", "fault", "severity", "advice"}),
        (["config", "check", "--config", "{settings}"], {"ok", "files"}),
        (["profile", "--root", str(HOSTS / "dgx-h100")], {"profile", "checks"}),
        (["profile", "--learn", "--root", str(HOSTS / "dgx-h100")], {"checks"}),
        (["capture", "{folder}/taken", "gpu_lost", "--root", str(HOSTS / "dgx-h100")], {"folder", "files"}),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_every_verb_answers_in_json(
    arguments: list[str], keys: set[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "agent.toml").touch()
    words = [
        a.replace("{settings}", str(tmp_path / "agent.toml")).replace("{folder}", str(tmp_path)) for a in arguments
    ]

    assert main([*words, "--json"]) == 0

    assert keys <= json.loads(capsys.readouterr().out).keys()


def test_explain_offers_the_nearest_names_for_a_wrong_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "gpu_of_bus"]) == 3

    assert "perhaps gpu_off_bus" in capsys.readouterr().err


def test_dmesg_reads_a_file_or_stdin_and_gives_an_object_a_fault(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "log").write_text("usb 1-1: new device\n" + XID * 2)
    assert main(["dmesg", str(tmp_path / "log"), "--json"]) == 2
    (found,) = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert (found["fault"], found["evidence"]["xid"], found["line"], found["last_line"]) == ("gpu_off_bus", 79, 2, 3)

    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(XID.encode())))
    assert main(["dmesg", "-"]) == 2
    assert "gpu_off_bus" in capsys.readouterr().out


def test_dmesg_gives_the_advice_for_a_burst_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "log").write_text(XID * 5)

    main(["dmesg", str(tmp_path / "log")])

    assert capsys.readouterr().out.count(" -> ") == 1


def test_dmesg_without_its_file_is_unknown_and_a_clean_log_is_ok(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "log").write_bytes(b"\x00\xff nothing here\n")

    assert main(["dmesg", str(tmp_path / "log")]) == 0
    assert capsys.readouterr().out == "looked at 1 line: nothing found\n"
    assert main(["dmesg", str(tmp_path / "none")]) == 3
    assert "none: No such file" in capsys.readouterr().err


def test_status_without_an_agent_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "agent.toml"
    config.write_text(f"[agent]\nrun_dir = '{tmp_path}'\n")

    assert main(["status", "--config", str(config)]) == 3

    said = capsys.readouterr().err
    assert f"{tmp_path / 'agent.sock'}: no agent runs here; start it (systemctl start nodetriage-agent)" in said
    assert said.count("\n") == 1


def test_a_table_about_the_controller_that_is_no_table_leaves_an_agent_that_works_alone(tmp_path: Path) -> None:
    config = tmp_path / "agent.toml"
    folders = f"[agent]\nstate_dir = '{tmp_path}'\nrun_dir = '{tmp_path}'\nroot = '{HOSTS / 'cpu-only'}'\n"
    config.write_text(f"{folders}[controller]\naddresses = 'ctl:7433'\n")
    command = [sys.executable, "-m", "nodetriage.agent"]
    with subprocess.Popen([*command, "agent", "--config", config], stderr=subprocess.DEVNULL) as agent:
        try:
            until(lambda: run("status", "--config", str(config)).returncode != 3 or agent.poll() is not None)
            state = json.loads(run("status", "--config", str(config), "--json").stdout)["controller"]["state"]
        finally:
            agent.terminate()

    assert state == f"works alone: {config}: controller.addresses: expected a list, got 'ctl:7433'"


def test_a_reader_that_stops_early_gets_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "log").write_text(XID * 20_000)
    program = f"{sys.executable} -m nodetriage.agent.cli.main dmesg {tmp_path}/log | head -1"

    ran = subprocess.run(["sh", "-c", program], capture_output=True, text=True, timeout=60)

    assert ran.stdout.count("\n") == 1
    assert ran.stderr == ""


def test_the_live_machine_is_looked_at_in_workers() -> None:
    ran = run("check", "fs_mounts", "gpu_lost", "--json")

    said = json.loads(ran.stdout)
    assert [c["check"] for c in said["checks"]] == ["gpu_lost", "fs_mounts"]
    assert said["checks"][1]["outcome"] in ("ok", "findings")
    assert ran.returncode == said["exit_code"]


def test_a_driver_that_hangs_does_not_hang_the_command(fake_gpus: Callable[..., FakeGpus], tmp_path: Path) -> None:
    gpus = fake_gpus(1)
    gpus.set("gpu0/RemappedRows", "~forever")
    config = tmp_path / "agent.toml"
    config.write_text("[checks.gpu_remap]\ntimeout_s = 4.0\n")

    ran = run("check", "gpu_remap", "--config", str(config), "--json", environment=dict(gpus.environment))

    (said,) = json.loads(ran.stdout)["checks"]
    assert said["outcome"] == "hung"
    assert "nvmlDeviceGetRemappedRows 0000:1a:00.0" in said["why"]
    assert ran.returncode == 3


def copy_tree(source: Path, target: Path) -> None:
    subprocess.run(["cp", "-a", source, target], check=True)
