"""The agent with the trial checks: `python trial_agent.py agent.toml`."""

import sys
from pathlib import Path

from trial_checks import ALL

from nodetriage.agent.settings.config import load
from nodetriage.agent.start import run

if __name__ == "__main__":
    sys.exit(run(load(Path(sys.argv[1]), ALL), "trial_checks:ALL"))
