"""The tuner. Never imports torch.

``api``, ``search_spaces`` and ``trainer`` are found beside this folder in a checkout, and in ``CARRIED`` in a wheel.
"""

import sys
from pathlib import Path

CARRIED = Path(__file__).parent / "carried"

if CARRIED.is_dir():
    sys.path.append(str(CARRIED))  # last: whoever imports this package keeps a `trainer` of their own
