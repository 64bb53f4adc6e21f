"""Published baselines with their sources, ready to start from: ``baselines.yaml``.

``published("openr1:qwen2.5-1.5b-demo")`` reads one baseline, ``scaled(baseline, gpus)`` adapts it to the user's GPUs.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml

from search_spaces.configuration import Configuration
from search_spaces.errors import SpaceError
from search_spaces.knobs.model import show
from search_spaces.published.model import Published, Scaled
from search_spaces.published.scaling import scaled

_FILE = Path(__file__).with_name("baselines.yaml")
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # as safe as the other, and ten times as fast


def _read(name: str, configuration: Any, rewards: Any, notes: Any = (), **others: Any) -> Published:
    return Published(name, configuration=Configuration(configuration), rewards=(*rewards,), notes=(*notes,), **others)


_ALL = yaml.load(_FILE.read_text("utf-8"), _LOADER)  # noqa: S506
PUBLISHED: Mapping[str, Published] = MappingProxyType({name: _read(name, **fields) for name, fields in _ALL.items()})
"""Name -> baseline, in display order."""


def published(name: str) -> Published:
    """Returns the baseline of this name. Raises SpaceError with the closest baseline, or all, for an unknown name."""
    found = PUBLISHED.get(name)
    if found is not None:
        return found
    close = difflib.get_close_matches(name[:80], PUBLISHED, n=1, cutoff=0.5)
    known = f"did you mean {close[0]}" if close else f"known are {', '.join(PUBLISHED)}"
    raise SpaceError(f"{show(name)} is no published baseline; {known}")
