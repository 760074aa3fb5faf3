"""`python -m nodetriage.controller` is the command `nodetriagectl`."""

import sys

from nodetriage.controller.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
