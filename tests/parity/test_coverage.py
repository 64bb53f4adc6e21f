"""Every speed knob a TRL trial can set is held against the reference, or it is said why not."""

from __future__ import annotations

import numpy as np
import pytest

from search_spaces.knobs import KNOBS, Effect, Kind, Knob
from tests.parity.cases import (
    BATCHED,
    COMPILED,
    CORE,
    ENGINES,
    LEFT_OUT,
    ORDER,
    STARTED,
    TOLERANCES,
    TWO_RANKS,
    VALUES_LEFT_OUT,
    ZERO,
    tolerance,
)
from tests.parity.comparison import Update, compare
from tests.parity.running import OBJECTIVE, PLAIN_KNOBS, Case
from trainer.frameworks.trl.keys import SUPPORTED

EVERY = (*CORE, *COMPILED, *BATCHED, *STARTED, *TWO_RANKS, *ZERO, *ENGINES)
DERIVED = {"gradient_accumulation_steps": "micro_batch_size"}
"""Follows from another knob wherever that is moved."""


def speed_knobs() -> list[Knob]:
    """Those some change of which is said to change nothing but speed and memory."""
    known = [KNOBS[name] for name in sorted(SUPPORTED)]
    return [knob for knob in known if knob.effect is Effect.SPEED or Effect.SPEED in dict(knob.alike)]


def moved(knob: str) -> set[object]:
    """Values that are held against the reference's."""
    return {case.knobs[knob] for case in EVERY if knob in case.knobs}


@pytest.mark.parametrize("knob", speed_knobs(), ids=lambda knob: knob.name)
def test_a_speed_knob_has_a_case_or_a_reason(knob: Knob) -> None:
    name = DERIVED.get(knob.name, knob.name)
    assert bool(moved(name)) != (knob.name in LEFT_OUT), f"{knob.name}: add a case to tests/parity/cases.py"
    assert (knob.name in TOLERANCES) == bool(moved(name))


@pytest.mark.parametrize("knob", speed_knobs(), ids=lambda knob: knob.name)
def test_every_value_of_a_choice_is_tried(knob: Knob) -> None:
    if knob.kind is not Kind.CHOICE or knob.name in LEFT_OUT:
        return
    alike = dict(knob.alike).get(Effect.SPEED, frozenset(knob.choices))
    tried = moved(knob.name) | {PLAIN_KNOBS.get(knob.name, knob.inactive_value("trl"))}
    assert set(alike) - set(VALUES_LEFT_OUT.get(knob.name, {})) <= tried


def test_what_is_left_out_is_still_a_speed_knob() -> None:
    names = {knob.name for knob in speed_knobs()}
    assert set(LEFT_OUT) <= names
    assert set(VALUES_LEFT_OUT) <= names
    assert set(TOLERANCES) <= names


def test_a_reason_is_given_for_every_tolerance() -> None:
    assert all(len(reason) > 10 for _, reason in TOLERANCES.values())


def test_names_are_used_once() -> None:
    names = [case.name for case in EVERY]
    assert len(names) == len(set(names))


GRADIENT = {"gradient", "direction of the gradient"}


def update(scale: float = 1.0, turn: float = 0.0) -> Update:
    draw = np.random.default_rng(0)
    gradients = draw.normal(size=(2, 1000))
    turned = gradients + turn * draw.normal(size=(2, 1000))
    return Update(np.array([-0.3, 0.0001]) * scale, turned * scale, turned[0] * 1e-3)


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (update(scale=1.001), {"loss", "gradient"}),
        (update(turn=1e-3), {"gradient", "direction of the gradient", "step"}),
        (Update(np.array([-0.3, np.nan]), update().gradients, update().step), {"loss"}),
        (Update(update().losses, update().gradients * np.nan, update().step), GRADIENT),
        (Update(update().losses, update().gradients, update().step * 0), {"step"}),
    ],
)
def test_the_comparison_names_what_differs(other: Update, words: set[str]) -> None:
    assert compare(update(), update()).broken(ORDER) == []
    assert {sentence.split(" differs")[0] for sentence in compare(other, update()).broken(ORDER)} == words


def test_there_has_to_be_something_to_compare() -> None:
    still = Update(np.zeros(2), np.zeros((2, 1000)), np.zeros(1000))
    with pytest.raises(ValueError, match="no gradient"):
        compare(update(), still)
    with pytest.raises(ValueError, match="beside"):
        compare(Update(np.zeros(1), np.ones((1, 1000)), np.ones(1000)), update())


def test_of_several_knobs_the_loosest_counts() -> None:
    assert tolerance(Case("", {"gradient_checkpointing": True, "micro_batch_size": 2})) is ORDER
    assert tolerance(Case("", {"gradient_checkpointing": True})) is not ORDER
    assert OBJECTIVE["loss_type"] == "dapo"
