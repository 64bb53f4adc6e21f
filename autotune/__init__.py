"""The tuner. Never imports torch.

``api``, ``search_spaces`` and ``trainer`` are found beside this folder in a checkout, and in ``CARRIED`` in a wheel.
``Client`` asks a server, ``open`` reads a home: both for programs and notebooks, each imported on first use.
"""

import sys
from pathlib import Path
from typing import Any

CARRIED = Path(__file__).parent / "carried"
DOORS = ("Client", "open")

if CARRIED.is_dir():
    sys.path.append(str(CARRIED))  # last: whoever imports this package keeps a `trainer` of their own


def __getattr__(name: str) -> Any:
    """Imports one of ``DOORS``."""
    if name == "Client":
        from api.client import Client

        return Client
    if name == "open":
        from api.notebook import Home

        return Home
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *DOORS])
