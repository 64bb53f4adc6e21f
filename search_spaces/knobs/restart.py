"""Restarts that changes of knobs need between two trials of one process."""

from __future__ import annotations

from collections.abc import Mapping

from search_spaces.configuration import KnobValue
from search_spaces.knobs import KNOBS, defaults
from search_spaces.knobs.model import Restart

RestartKey = tuple[tuple[str, KnobValue], ...]

RESTART: Mapping[str, Restart] = {name: knob.restart for name, knob in KNOBS.items()}
"""Every knob of the catalogue."""


def restart_between(before: Mapping[str, KnobValue], after: Mapping[str, KnobValue], framework: str = "trl") -> Restart:
    """The costliest restart among the knobs that differ; one that is not in the catalogue costs the process.

    A knob that is not set has the framework's default; where there is none it differs from every value.
    """
    unset = defaults(framework)
    changed = (n for n in {*before, *after} if before.get(n, unset.get(n)) != after.get(n, unset.get(n)))
    return max((RESTART.get(name, Restart.PROCESS) for name in changed), default=Restart.NONE)


def restart_key(configuration: Mapping[str, KnobValue], above: Restart, framework: str = "trl") -> RestartKey:
    """Key that is equal for configurations between which no restart costlier than ``above`` lies.

    Equal keys and ``restart_between(...) <= above`` say the same.
    """
    unset = defaults(framework)
    kept = ((n, v) for n, v in configuration.items() if RESTART.get(n, Restart.PROCESS) > above)
    return tuple(sorted((n, v) for n, v in kept if n not in unset or v != unset[n]))


def preload_key(configuration: Mapping[str, KnobValue], framework: str = "trl") -> RestartKey:
    """Key that is equal for configurations that can be forked from one process that has imported everything."""
    unset = defaults(framework)
    kept = ((n, v) for n, v in configuration.items() if n in KNOBS and KNOBS[n].preload)
    return tuple(sorted((n, v) for n, v in kept if n not in unset or v != unset[n]))
