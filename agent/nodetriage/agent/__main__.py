"""`python -m nodetriage.agent` is the command `nodetriage`."""

import sys

from nodetriage.agent.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
