"""Lines of public reports, which nobody of this project wrote: a fault for each, none on machines that were well."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from kernel_log_of import findings

from nodetriage.checks.model import Severity

DATA = tomllib.loads((Path(__file__).parents[1] / "data/public_lines.toml").read_text(encoding="utf-8"))
ADDRESS = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}")


def name_of(report: dict[str, Any]) -> str:
    return str(report["source"]).removeprefix("https://github.com/")


def machine(folder: Path, report: dict[str, Any]) -> Path:
    """A machine that has the PCI devices that the lines name, and nothing else that could be compared with them."""
    for address in {found for line in report["lines"] for found in ADDRESS.findall(line)}:
        (folder / f"sys/bus/pci/devices/{address}.0").mkdir(parents=True)
        for name, text in (("vendor", "0x10de"), ("device", "0x2330"), ("class", "0x030200")):
            (folder / f"sys/bus/pci/devices/{address}.0" / name).write_text(f"{text}\n")
    return folder


def serious(folder: Path, report: dict[str, Any]) -> set[tuple[str, str, str]]:
    found = findings(machine(folder, report), report["lines"])
    return {(f.component, f.fault, f.severity.name) for _, f in found if f.severity >= Severity.WARNING}


@pytest.mark.parametrize("report", DATA["sick"], ids=name_of)
def test_a_fault_that_somebody_reported_is_found(report: dict[str, Any], tmp_path: Path) -> None:
    assert serious(tmp_path, report) == {tuple(finding) for finding in report["findings"]}


@pytest.mark.parametrize("report", DATA["healthy"], ids=name_of)
def test_a_machine_that_was_well_has_no_finding_above_info(report: dict[str, Any], tmp_path: Path) -> None:
    assert serious(tmp_path, report) == set()


def test_each_report_has_its_own_source_and_there_are_many() -> None:
    for kind, least in (("sick", 10), ("healthy", 20)):
        sources = [report["source"] for report in DATA[kind]]
        assert len(set(sources)) == len(sources) >= least
        assert all(source.startswith("https://") for source in sources)
