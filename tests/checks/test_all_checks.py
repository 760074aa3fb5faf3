"""The list of checks, and what holds for each of them."""

import json
import re
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import get_type_hints

import msgspec
import pytest

from nodetriage import checks
from nodetriage.agent.machine.host import Host
from nodetriage.agent.settings.config import defaults
from nodetriage.agent.settings.expected import with_profile
from nodetriage.agent.workers.run import run
from nodetriage.checks.model import Check, Outcome, Scalar
from nodetriage.checks.model.faults import faults
from nodetriage.checks.registry import ALL, all_checks

SOURCES = Path(checks.__path__[0])
TESTS = Path(__file__).parent
WORKERS = ("gpu", "fabric", "storage", "bmc", "system")
HOSTS = sorted(p.name for p in (Path(__file__).parents[1] / "hosts").iterdir() if p.is_dir())


def entry(value: str, name: str = "theirs") -> EntryPoint:
    return EntryPoint(name, value, "nodetriage.checks")


def test_every_module_that_holds_a_check_is_in_the_list() -> None:
    holders = {path.stem for path in SOURCES.rglob("*.py") if "\nCHECK = " in path.read_text()}

    assert holders == {check.name for check in ALL}


@pytest.mark.parametrize("check", ALL, ids=lambda c: c.name)
def test_a_check_is_short_and_names_only_faults_that_are_known(check: Check) -> None:
    (source,) = SOURCES.rglob(f"{check.name}.py")

    assert len(source.read_text().splitlines()) <= 120
    assert {*check.faults, check.hung_fault} <= set(faults())
    assert check.worker in WORKERS
    # A BMC takes seconds a sensor; its worker waits for nothing else and holds up nothing else.
    assert 0 < check.timeout_s <= (300 if check.worker == "bmc" else 30)
    assert check.every_s >= 30
    assert "Any" not in str(get_type_hints(check.read)["return"])


@pytest.mark.parametrize("check", ALL, ids=lambda c: c.name)
def test_each_check_has_a_test_that_imports_it(check: Check) -> None:
    imports = re.compile(rf"^from nodetriage\.checks\.\w+(?:\.| import .*\b){check.name}\b", re.MULTILINE)
    tests = [path for path in TESTS.rglob("test_*.py") if imports.search(path.read_text())]

    assert tests, f"write tests/checks/**/test_{check.name}.py: judge with values, read from a tree"


@pytest.mark.parametrize("check", ALL, ids=lambda c: c.name)
def test_only_a_check_that_can_take_a_held_fault_back_reports_faults_once(check: Check) -> None:
    """Faults that are held after one report need no `clears`, but `clears` without such faults is a mistake."""
    held = [f for f in (*check.faults, *check.ends) if faults()[f].latching != "no"]

    assert not check.clears or held
    assert {*check.ends} <= {*held}
    assert not {*check.ends} & {*check.faults}


def test_importing_the_checks_reads_no_table_and_no_heavy_module() -> None:
    program = """
import builtins, io, json, sys
opened = []
real = io.open_code
sys.addaudithook(lambda event, args: opened.append(str(args[0])) if event == "open" else None)
import nodetriage.checks.registry
print(json.dumps([[p for p in opened if p.endswith(".toml")], sorted(sys.modules)]))
"""
    tables, modules = json.loads(
        subprocess.run([sys.executable, "-c", program], capture_output=True, check=True).stdout
    )

    assert tables == []
    assert not {"grpc", "structlog", "asyncio", "pynvml", "sqlite3", "importlib.metadata"} & set(modules)


def as_configured(host: Host) -> tuple[Check, ...]:
    """Every check with the settings of the machine's profile."""
    return with_profile(defaults(ALL), host).enabled


@pytest.mark.parametrize("name", HOSTS)
def test_a_recorded_machine_is_judged_and_the_memory_outlives_a_restart(hosts: Path, name: str) -> None:
    host = Host(hosts / name)
    for check in as_configured(host):
        first = run(check, host.for_check(check), check.policy, None)

        assert first.outcome in (Outcome.OK, Outcome.FINDINGS, Outcome.SKIPPED), (check.name, first.why)
        assert {f.fault for f in first.findings} <= set(check.faults)
        assert all(isinstance(v, Scalar) for f in first.findings for v in f.evidence.values())
        if first.memory is not None:
            hint = get_type_hints(check.read)["return"]
            assert msgspec.json.decode(msgspec.json.encode(first.memory), type=hint) == first.memory, check.name


def test_a_healthy_machine_has_no_findings_in_two_rounds(hosts: Path) -> None:
    host = Host(hosts / "dgx-h100")
    for check in as_configured(host):
        first = run(check, host.for_check(check), check.policy, None)
        second = run(check, host.for_check(check), check.policy, first.memory)

        assert {first.outcome, second.outcome} <= {Outcome.OK, Outcome.SKIPPED}, check.name


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "dgx-h100-xid79",
            {("0000:9d:00.0", fault) for fault in ("gpu_off_bus", "gpu_not_answering", "pcie_off_bus")},
        ),
        ("dgx-h100-ib-flap-state", {("mlx5_6/1", "ib_link_down")}),
        ("dgx-h100-remap-pending", {("0000:52:00.0", "gpu_remap_pending"), ("0000:52:00.0", "gpu_row_remap_pending")}),
        ("dgx-h100-gpu-missing", {("gpus", "gpu_missing")}),
        (
            "dgx-h100-mounts",
            {
                ("/home", "mount_missing"),
                ("/raid", "mount_read_only"),
                ("/lustre", "mount_stale"),
                ("md1", "fs_error"),
                ("md1", "fs_forced_read_only"),
            },
        ),
        ("cpu-only", set()),
    ],
)
def test_a_machine_with_a_fault_shows_it_and_nothing_else_that_drains(hosts: Path, name: str, expected: set) -> None:
    host = Host(hosts / name)
    found = {
        (f.component, f.fault)
        for check in as_configured(host)
        for f in run(check, host.for_check(check), check.policy, None).findings
        if f.severity > 2 and f.fault != "gpu_recovery_action"
    }

    assert found == expected


def test_without_nvidia_parts_the_gpu_checks_are_skipped_and_say_why(hosts: Path) -> None:
    host = Host(hosts / "cpu-only")
    for check in ALL:
        if check.name.startswith("gpu_"):
            result = run(check, host.for_check(check), check.policy, None)

            assert result.outcome is Outcome.SKIPPED
            assert result.why


def test_somebody_else_s_check_is_taken_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "their_checks.py").write_text(
        "from nodetriage.checks.model import Check\n"
        "CHECK = Check(name='other', read=len, judge=lambda now, before, policy: (), policy=None, faults=())\n"
    )
    monkeypatch.syspath_prepend(tmp_path)

    found, troubles = all_checks((entry("their_checks:CHECK"),))

    assert [c.name for c in found] == [*(c.name for c in ALL), "other"]
    assert troubles == ()


@pytest.mark.parametrize(
    ("value", "trouble"),
    [
        ("no_such_module:CHECK", "ModuleNotFoundError"),
        ("nodetriage.checks.gpu.gpu_xid:NO_SUCH_NAME", "AttributeError"),
        ("nodetriage.checks.gpu.gpu_xid:Policy", "expected a Check, got type"),
        ("nodetriage.checks.gpu.gpu_xid:CHECK", "the name gpu_xid is taken"),
    ],
)
def test_a_check_that_cannot_be_loaded_is_told_and_does_not_stop_ours(value: str, trouble: str) -> None:
    found, troubles = all_checks((entry(value),))

    assert found == ALL
    assert len(troubles) == 1
    assert value in troubles[0]
    assert trouble in troubles[0]


def installed(folder: Path, kind: str, points: str) -> Path:
    """A folder as a package that was installed there leaves it."""
    about = folder / f"their_checks-1.0.{kind}"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: their-checks\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(points)
    module = "from dataclasses import replace\nfrom nodetriage.checks.storage import fs_full\n"
    (folder / "their_checks.py").write_text(f'{module}CHECK = replace(fs_full.CHECK, name="theirs")\n')
    return folder


@pytest.mark.parametrize("kind", ["dist-info", "egg-info"])
def test_a_check_of_an_installed_package_is_found(tmp_path: Path, kind: str) -> None:
    theirs = installed(
        tmp_path, kind, "[console_scripts]\nx = y:z\n\n[nodetriage.checks]\ntheirs = their_checks:CHECK\n"
    )
    script = "from nodetriage.checks.registry import all_checks; print(all_checks()[0][-1].name)"
    done = subprocess.run(
        [sys.executable, "-c", script], env={"PYTHONPATH": str(theirs)}, capture_output=True, text=True
    )

    assert (done.stdout, done.stderr) == ("theirs\n", "")


def test_packages_without_checks_cost_no_look_at_all_packages(tmp_path: Path) -> None:
    others = installed(tmp_path, "dist-info", "[console_scripts]\nnodetriage.checks = y:z\n")
    script = (
        "import sys; from nodetriage.checks.registry import all_checks; all_checks(); print('email' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], env={"PYTHONPATH": str(others)}, capture_output=True, text=True
    )

    assert (done.stdout, done.stderr) == ("False\n", "")
