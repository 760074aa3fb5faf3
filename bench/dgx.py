"""An agent as it would run on a DGX H100: /sys is the recorded one's, NVIDIA's library is the stand-in of tests/native.

Needs root: each agent has a mount namespace of its own, in which that /sys is mounted over the machine's.
"""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests/slurm"), str(ROOT / "tests/e2e/parts"), str(ROOT / "tests/native")]

from fleet import TRIAL, Agent  # noqa: E402 the path above comes first
from nvml_library import build  # noqa: E402
from programs import NODETRIAGE, Program  # noqa: E402

from nodetriage.checks.registry import ALL  # noqa: E402

MACHINE = ROOT / "tests/hosts/dgx-h100"
GPUS = 8
_IMPORT_ALL = (
    "import nodetriage.agent.cli.main, nodetriage.agent.daemon, nodetriage.agent.delivery.connection, "
    "nodetriage.agent.machine.udev, nodetriage.agent.workers.forkserver, nodetriage.agent.installed_checks, "
    "nodetriage.agent.machine.nvml, nodetriage.agent.machine.commands, nodetriage.agent.machine.processes"
)


def _addresses() -> list[str]:
    return [gpu["pci"] for gpu in json.loads((MACHINE / "nvml.json").read_text())["gpus"]]


class LiveAgent(Agent):
    """Checks run at their shipped periods divided by `faster`; `settings` are further tables."""

    def __init__(self, folder: Path, controller: str = "", faster: float = 1.0, settings: str = "") -> None:
        checks = "\n".join(f"[checks.{c.name}]\nevery_s = {c.every_s / faster}" for c in ALL)
        profile = '[profile]\nname = "dgx-h100"\n'
        super().__init__(folder, "n1", controller, f"{profile}{settings}\n{checks}")
        # A table of each check is there already.
        text = self.settings.read_text().replace(TRIAL, "").replace("heartbeat_s = 0.2", "heartbeat_s = 5")
        self.settings.write_text(text if controller else text.replace('addresses = [""]', "addresses = []"))
        self._library = build(folder / "nvml")
        for gpu in range(GPUS):
            (folder / f"gpus/gpu{gpu}").mkdir(parents=True)
        # structlog loads rich, 3 MB, and msgspec typing_extensions, 7 MB, where they are there; in the package of the
        # agent they are not.
        self._without = folder / "without"
        self._without.mkdir()
        for absent in ("rich", "typing_extensions"):
            (self._without / f"{absent}.py").write_text('raise ImportError("not in the package")\n')
        # The package has bytecode; to compile a library costs a process up to 16 MB, most of which it keeps.
        subprocess.run([sys.executable, "-c", _IMPORT_ALL], env=self._environ(), check=True)

    def _environ(self) -> dict[str, str]:
        library = {"LD_LIBRARY_PATH": str(self._library), "FAKE_NVML_DIR": str(self.folder / "gpus")}
        python = {"PYTHONPATH": str(self._without), "PYTHONPYCACHEPREFIX": str(self.folder / "bytecode")}
        kept = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
        return {**kept, **library, **python, "FAKE_NVML_STILL": " ".join(_addresses())}

    def spawn(self, log: Path, die_at: str = "") -> Program:
        live = f"mount --bind {shlex.quote(f'{MACHINE}/sys')} /sys && exec {NODETRIAGE} agent --config {self.settings}"
        return Program(log, "unshare", "--mount", "sh", "-c", live, env=self._environ())
