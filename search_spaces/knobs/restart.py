"""Restart that a change of knobs needs between two trials of one process."""

from __future__ import annotations

from collections.abc import Mapping

from search_spaces.configuration import KnobValue
from search_spaces.knobs import KNOBS, defaults
from search_spaces.knobs.model import Restart

RestartKey = tuple[tuple[str, KnobValue], ...]

RESTART: Mapping[str, Restart] = {name: knob.restart for name, knob in KNOBS.items()}
"""Knob -> restart that a change of the knob needs."""


def restart_between(before: Mapping[str, KnobValue], after: Mapping[str, KnobValue], framework: str = "trl") -> Restart:
    """Returns the costliest restart among the knobs that differ; a knob outside the catalogue restarts the process.

    A knob that is not set has the framework's default; without a default it differs from every value.
    """
    unset = defaults(framework)
    changed = (n for n in {*before, *after} if before.get(n, unset.get(n)) != after.get(n, unset.get(n)))
    return max((RESTART.get(name, Restart.PROCESS) for name in changed), default=Restart.NONE)


def restart_key(configuration: Mapping[str, KnobValue], above: Restart, framework: str = "trl") -> RestartKey:
    """Returns a key that is equal for configurations that need no restart costlier than ``above`` between them.

    Equal keys mean ``restart_between(...) <= above``, and the reverse.
    """
    unset = defaults(framework)
    kept = ((n, v) for n, v in configuration.items() if RESTART.get(n, Restart.PROCESS) > above)
    return tuple(sorted((n, v) for n, v in kept if n not in unset or v != unset[n]))
