"""The training frameworks a study can be of, each an ``Integration``."""

from __future__ import annotations

from collections.abc import Callable, Mapping

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
"""By the catalogue's name."""


def framework_named(word: str) -> Integration:
    """The framework of the catalogue's name or the command line's. Raises ``UsageError`` naming those there are."""
    name = resolved(word)
    if name not in FRAMEWORKS:
        there = ", ".join(SHORT[known] for known in FRAMEWORKS)
        raise UsageError(f"there is no framework {word!r} yet; choose one of: {there}")
    return FRAMEWORKS[name]()


def environment_named(word: str) -> Environment:
    """Packages the framework's interpreter needs. Raises ``UsageError`` as ``framework_named``."""
    return framework_named(word).environment
