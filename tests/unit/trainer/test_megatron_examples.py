"""Published scripts for Megatron, of verl and of ms-swift, are read and judged, and no trial runs with them."""

from __future__ import annotations

import re
from typing import Any

import pytest

from autotune.frameworks import Source, framework_named
from search_spaces.configuration import Configuration
from search_spaces.legality import check
from search_spaces.legality.knob_rules import resting
from search_spaces.legality.passthrough import check_passthrough
from tests.support.megatron_examples import EXAMPLES, Example
from tests.support.swift_fields import FIELDS
from trainer.frameworks import ms_swift, verl
from trainer.frameworks.common.config_entries import Imported

NOT_RUN = {
    "verl": "model_engine megatron: trials of the megatron engine are not run yet; set it to dp, with FSDP",
    "ms_swift": "`megatron rlhf`: trials of Megatron-SWIFT are not run yet; a trial trains with `swift rlhf`",
}
PACKAGES: dict[str, Any] = {"verl": verl, "ms_swift": ms_swift}
REFUSED = [(name, *row) for name, example in EXAMPLES.items() for row in example.refused]


def read(example: Example) -> Imported:
    source = Source(example.text, "run.sh" if example.of == "ms_swift" else "run.txt")
    return framework_named(example.of).import_config(source, FIELDS, example.gpus, {})


def broken(example: Example, **changes: Any) -> set[str]:
    apart = {"rollout_gpus": example.apart} if example.apart else {}
    knobs = {**resting({**read(example).knobs, **apart}, example.machine), **changes}
    return {violation.rule for violation in check(knobs, example.machine, Configuration(knobs))}


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_is_read_and_judged_and_no_trial_of_it_runs(name: str) -> None:
    example = EXAMPLES[name]
    found = read(example)
    assert {knob: found.knobs.get(knob) for knob in example.knobs} == example.knobs
    assert (found.knobs["training_engine"], found.processes) == ("megatron", example.gpus)
    assert broken(example) == set(example.rules)
    assert check_passthrough(found.passthrough, found.knobs, example.machine) == ()
    assert PACKAGES[example.of].unsupported(found.knobs) == [NOT_RUN[example.of]]
    if example.of == "ms_swift":
        with pytest.raises(ValueError, match=re.escape("trials of Megatron-SWIFT are not run yet")):
            ms_swift.render(configuration=found.knobs, passthrough={}, rows_per_update=8)  # type: ignore[call-arg]


@pytest.mark.parametrize(("name", "changes", "rule"), REFUSED)
def test_what_megatron_refuses_is_refused_by_a_rule(name: str, changes: dict[str, Any], rule: str) -> None:
    assert rule in broken(EXAMPLES[name], **changes)
