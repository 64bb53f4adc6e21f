"""The command line. Its process is the tool's own, so what a wheel carries comes first on the path."""

import sys

from autotune import CARRIED

if CARRIED.is_dir():
    sys.path.insert(0, str(CARRIED))
