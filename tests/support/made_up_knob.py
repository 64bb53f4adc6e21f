"""Prints where the knob ``made_up`` arrived; for ``tests/unit/test_adding.py``, in a copy that has such a knob."""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from search_spaces.errors import SpaceError
from search_spaces.knobs import FRAMEWORKS, KNOBS, restart_between
from search_spaces.space import SearchSpace
from tests.contracts.framework_suite import FrameworkSuite
from tools.knob_table import whole_table

NAME, VALUE = "made_up", 3
KEYS = {"verl": "trainer.made_up_key"}
READ = {"verl": {"actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu": 1}}
"""What is read beside the knob where a framework has no default of its own."""


def main() -> None:
    """One JSON object on stdout."""
    try:
        KNOBS[NAME].parse(10)
    except SpaceError as error:
        refused = str(error)
    found = {
        "frameworks": {name: _in(name) for name in FRAMEWORKS},
        "space": SearchSpace.from_json({"knobs": {NAME: [1, VALUE]}}).values[NAME],
        "refused": refused,
        "restart": restart_between({NAME: 1}, {NAME: VALUE}),
        "row": next(line for line in whole_table().splitlines() if f"`{NAME}`" in line),
    }
    sys.stdout.write(json.dumps(found))


def _in(framework: str) -> dict[str, Any]:
    suite = FrameworkSuite()
    suite.name = framework
    key = KEYS.get(framework, "made_up_key")
    configuration = suite.baseline.with_(**{NAME: VALUE})
    spec = suite.framework.render(suite.assignment(Path("/nowhere"), configuration))
    made = suite.framework.export(suite.wanted(configuration=configuration))
    read = import_module(f"trainer.frameworks.{framework}.keys").from_keys
    return {
        "supported": NAME in suite.framework.supported,
        "rendered": spec.settings.get(key),
        "exported": any(key in text for text in made.files.values()),
        "imported": read({key: VALUE, **READ.get(framework, {})}, 1)[NAME],
    }


if __name__ == "__main__":
    main()
