"""The agent with the trial checks: `python trial_agent.py agent.toml`."""

import sys
from pathlib import Path

from trial_checks import ALL

from nodetriage.agent.daemon import run
from nodetriage.agent.settings.config import load

if __name__ == "__main__":
    sys.exit(run(load(Path(sys.argv[1]), ALL), "trial_checks:ALL"))
