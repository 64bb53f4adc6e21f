"""Training frameworks that a study can use, each an ``Integration``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from importlib.metadata import entry_points

from autotune.errors import UsageError
from autotune.frameworks.environments import ENVIRONMENTS, Environment
from autotune.frameworks.integration import ExportNames, Integration, Source
from autotune.frameworks.ms_swift import SwiftFramework
from autotune.frameworks.open_r1 import OpenR1Framework
from autotune.frameworks.trl import TrlFramework
from autotune.frameworks.verl import VerlFramework
from search_spaces.frameworks import SHORT, resolved

FRAMEWORKS: Mapping[str, Callable[[], Integration]] = {
    "trl": TrlFramework,
    "open_r1": OpenR1Framework,
    "ms_swift": SwiftFramework,
    "verl": VerlFramework,
}
"""Name in the catalogue -> framework."""


def framework_named(word: str) -> Integration:
    """Returns a framework by its name in the catalogue or on the command line. Raises ``UsageError``.

    Other packages add a framework by an entry point; its module calls ``search_spaces.knobs.add_framework``.
    """
    name = resolved(word)
    if name in FRAMEWORKS:
        return FRAMEWORKS[name]()
    others = {each.name: each for each in entry_points(group="autotune.frameworks")}
    if name in others:
        found: Integration = others[name].load()()
        return found
    near = get_close_matches(word.lower(), [*SHORT.values(), *SHORT, *others], 1)
    there = ", ".join([*(SHORT[known] for known in FRAMEWORKS), *others])
    hint = f"did you mean {near[0]}" if near else f"choose one of: {there}"
    raise UsageError(f"there is no framework {word!r} yet; {hint}")
