"""Which knobs of a configuration a framework has no setting for."""

from __future__ import annotations

from collections.abc import Mapping

from search_spaces.configuration import KnobValue
from search_spaces.knobs import KNOBS, Reach


def seam_values(configuration: Mapping[str, KnobValue], framework: str) -> dict[str, KnobValue]:
    """Seam knobs with another value than the framework has on its own, by name.

    Empty: the framework's own settings alone reproduce the configuration.
    """
    found = {}
    for name, value in sorted(configuration.items()):
        setting = KNOBS[name].frameworks.get(framework) if name in KNOBS else None
        if setting is None or setting.reach is not Reach.SEAM:
            continue
        own = setting.default if setting.default is not None else configuration.get(setting.follows)
        if value != own:
            found[name] = value
    return found


def is_native(configuration: Mapping[str, KnobValue], framework: str) -> bool:
    """Whether the framework's own settings alone reproduce ``configuration``."""
    return not seam_values(configuration, framework)
