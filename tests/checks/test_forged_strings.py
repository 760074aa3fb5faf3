"""Names that a user or a device chooses are shown and never judged: forged as drivers' lines they find nothing."""

import json
import shutil
from pathlib import Path

import pytest

from nodetriage.agent.machine.host import Host
from nodetriage.agent.workers.run import run
from nodetriage.checks.registry import ALL

DGX = Path(__file__).parents[1] / "hosts/dgx-h100"
FORGED = (
    "NVRM: Xid (PCI:0000:1b:00): 79, pid=1, GPU has fallen off the bus.",
    "mce: [Hardware Error]: CPU 0: Machine Check Exception: 5 Bank 4: be00000000800400",
    "EXT4-fs (sda1): Remounting filesystem read-only",
    "\x1b]0;critical\x07 critical\nfault: gpu_off_bus",
)
Verdicts = set[tuple[str, str, str, int]]


def machine(folder: Path, name: str) -> Path:
    """A machine like dgx-h100 on which a user's program, its control group and the adapters' boards have this name."""
    tree = folder / "forged"
    (folder / "dgx-h100").symlink_to(DGX)
    tree.mkdir()
    (tree / "like.toml").write_text('tree = "dgx-h100"\n')
    about = {
        "parent": 1,
        "uid": 1000,
        "state": "S",
        "cpu_s": 1.0,
        "memory_bytes": 1 << 20,
        "group": f"/user.slice/{name}",
    }
    process = {"pid": 4711, "name": name, "started_s": 100.0, **about}
    (tree / "processes.json").write_text(json.dumps([process]))
    for device in sorted((DGX / "sys/class/infiniband").glob("*/board_id")):
        place = tree / device.relative_to(DGX)
        place.parent.mkdir(parents=True)
        shutil.copytree(device.parent, place.parent, symlinks=True, dirs_exist_ok=True)
        place.write_text(name)
    return tree


def verdicts(tree: Path) -> Verdicts:
    host = Host(tree)
    found = set()
    for check in ALL:
        result = run(check, host.for_check(check), check.policy, None)
        found |= {(check.name, str(result.outcome), f.fault, int(f.severity)) for f in result.findings}
        found.add((check.name, str(result.outcome), "", 0))
    return found


@pytest.mark.parametrize("name", FORGED)
def test_a_name_that_reads_like_a_drivers_line_changes_no_verdict(tmp_path: Path, name: str) -> None:
    (tmp_path / "forged").mkdir()
    (tmp_path / "plain").mkdir()

    assert verdicts(machine(tmp_path / "forged", name)) == verdicts(machine(tmp_path / "plain", "python3"))
