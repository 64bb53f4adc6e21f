"""What Open-R1, TRL 0.18 and accelerate 1.4 write when a trial cannot be run, and what is then said."""

from __future__ import annotations

import pytest

from tests.support.failure_texts import OF_FRAMEWORKS
from tests.support.not_none import not_none
from trainer.child.contract import FailureReason, Pool
from trainer.frameworks.open_r1 import diagnose, suggest
from trainer.frameworks.open_r1.failures import OWN, SUGGESTIONS

TEXTS = {name: texts[0] for name, texts in OF_FRAMEWORKS["open_r1"].items()}


@pytest.mark.parametrize("name", [sign.name for sign in OWN])
def test_each_text_is_recognised_and_has_an_advice(name: str) -> None:
    found = not_none(diagnose(f"Traceback (most recent call last):\n{TEXTS[name]}\n"))
    assert found.reason is next(sign.reason for sign in OWN if sign.name == name)
    assert found.suggestion == SUGGESTIONS[name] != ""


def test_out_of_memory_is_told_as_everywhere() -> None:
    found = not_none(diagnose("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"))
    assert (found.reason, found.pool) == (FailureReason.OOM, Pool.DEVICE)


def test_a_text_nobody_knows_is_not_guessed() -> None:
    assert diagnose("ValueError: something else\n") is None


def test_no_knob_is_suggested_that_open_r1_has_not() -> None:
    for phase in ("generate", "logprob", "update", "load", "engine"):
        said = suggest(FailureReason.OOM, phase, Pool.DEVICE)
        assert said
        assert "logprob_rows" not in said
