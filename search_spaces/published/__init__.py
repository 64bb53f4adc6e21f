"""Baselines that others published, ready to start from, with their sources.

``published("openr1:qwen2.5-1.5b-demo")`` is one, ``scaled(it, gpus)`` what it is on the user's GPUs.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from types import MappingProxyType

from search_spaces.errors import SpaceError
from search_spaces.knobs.model import show
from search_spaces.published import ms_swift, open_r1, verl
from search_spaces.published.model import Published, Scaled
from search_spaces.published.scaling import scaled

__all__ = ["PUBLISHED", "Published", "Scaled", "published", "scaled"]

PUBLISHED: Mapping[str, Published] = MappingProxyType(
    {one.name: one for one in (*open_r1.BASELINES, *ms_swift.BASELINES, *verl.BASELINES)}
)
"""By name, in the order they are shown."""


def published(name: str) -> Published:
    """The baseline of this name.

    Raises:
        SpaceError: there is none; the sentence names the closest, or all.
    """
    found = PUBLISHED.get(name)
    if found is not None:
        return found
    close = difflib.get_close_matches(name[:80], PUBLISHED, n=1, cutoff=0.5)
    known = f"did you mean {close[0]}" if close else f"known are {', '.join(PUBLISHED)}"
    raise SpaceError(f"{show(name)} is no published baseline; {known}")
