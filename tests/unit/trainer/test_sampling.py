"""A completion of a given length, by vLLM: what ends one, as vLLM's own rules have it."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.child.frameworks.hf_trainer.sampling import exactly

END, STOP, WORD = 0, 1, 2
"""The end of a sequence, a token a template stops at besides, and any other."""


@dataclass
class Sampling:
    """Of vLLM's ``SamplingParams`` what decides when a completion ends."""

    max_tokens: int = 50
    min_tokens: int = 0
    ignore_eos: bool = False
    stop: list[str] = field(default_factory=lambda: ["</answer>"])
    stop_token_ids: list[int] = field(default_factory=lambda: [STOP])
    temperature: float = 0.7

    def clone(self) -> Any:
        return copy.deepcopy(self)


def generated(sampling: Any, drawn: list[int]) -> list[int]:
    """Tokens as vLLM takes them from ``drawn`` (``v1/core/sched/utils.py``, ``check_stop``; ``MinTokens``)."""
    found: list[int] = []
    for token in drawn:
        forbidden = len(found) < sampling.min_tokens and token in (END, *sampling.stop_token_ids)
        found.append(WORD if forbidden else token)
        stopped = found[-1] in sampling.stop_token_ids or (found[-1] == END and not sampling.ignore_eos)
        if len(found) >= sampling.min_tokens and stopped:
            break
        if len(found) >= sampling.max_tokens:
            break
    return found


@given(
    length=st.integers(1, 30), drawn=st.lists(st.integers(END, WORD), min_size=30, max_size=30), unended=st.booleans()
)
def test_a_row_has_the_length_it_is_told(length: int, drawn: list[int], unended: bool) -> None:
    """Whatever the model writes, and whatever words or tokens a template stops at."""
    found = generated(exactly(Sampling(), length, unended=unended), drawn)
    assert len(found) == length
    assert not (unended and END in found)
    assert unended or found == drawn[:length], "nothing is forbidden, so that log-probs stay those of the policy"


def test_words_that_stop_a_completion_do_not_and_the_rest_stays() -> None:
    own = Sampling()
    found = exactly(own, 9)
    assert (found.stop, found.stop_token_ids, found.temperature) == ([], [], 0.7)
    assert own == Sampling()


@pytest.mark.parametrize("token", [END, STOP])
def test_without_it_a_row_would_end_early(token: int) -> None:
    assert generated(Sampling(), [WORD, token, WORD]) == [WORD, token]
