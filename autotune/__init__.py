"""The tuner. Never imports torch.

``api``, ``search_spaces`` and ``trainer`` are folders beside this one in a checkout, and inside it in a wheel.
``Client`` reads from a server and ``open`` from a local home folder, for programs and notebooks; imported on first use.
"""

from typing import Any

DOORS = ("Client", "open")


def __getattr__(name: str) -> Any:
    """Imports ``Client`` or ``open`` on first use."""
    if name == "Client":
        from api.client import Client

        return Client
    if name == "open":
        from api.notebook import Home

        return Home
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *DOORS])
