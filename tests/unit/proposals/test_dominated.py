"""What failures rule out together, asked again and again of a growing, and sometimes a shorter, history."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from autotune.domain import FailureReason, Trial
from autotune.proposals import dominance
from tests.support import factories

VALUES: dict[str, tuple[Any, ...]] = {
    "micro_batch_size": (1, 2, 4, 8),
    "optimizer": ("adamw_torch", "adamw_torch_fused"),
    "gradient_checkpointing": (True, False),
}
settings = st.fixed_dictionaries({name: st.sampled_from(values) for name, values in VALUES.items()})


def made(number: int, one: tuple[dict[str, Any], bool]) -> Trial:
    knobs, held = one
    rows = {**knobs, "gradient_accumulation_steps": 8 // knobs["micro_batch_size"]}
    configuration = factories.configuration(**rows)
    if held:
        return factories.finished(number, configuration=configuration)
    failure = factories.failure(FailureReason.OOM, phase="update", pool=None)
    return factories.failed(number, failure).with_(configuration=configuration)


@given(
    st.lists(st.tuples(settings, st.booleans()), min_size=1, max_size=14),
    st.lists(st.sets(st.integers(0, 13)), min_size=1, max_size=6),
)
def test_what_was_worked_out_before_changes_no_answer(
    drawn: list[tuple[dict[str, Any], bool]], asked: list[set[int]]
) -> None:
    """Retries take trials out of a history, so what is asked about need not only grow."""
    memory = dominance.RegionCache()
    every = [made(number, one) for number, one in enumerate(drawn)]
    for chosen in [set(range(4)), *asked, set(range(14))]:
        trials = [t for t in every if t.number in chosen]
        kept = dominance.regions(trials, one_memory=True, memory=memory)
        assert kept == dominance.regions(trials, one_memory=True)
        assert len({*kept}) == len(kept)
