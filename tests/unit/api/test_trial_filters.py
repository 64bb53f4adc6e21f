"""Which trials a filter admits, and what is no filter."""

from typing import Any

import pytest
from fastapi.exceptions import RequestValidationError
from hypothesis import given
from hypothesis import strategies as st

from api.filters import TrialConditions, knob_condition
from autotune.domain import FailureReason, Study, TrialState
from autotune.settings import Settings
from autotune.store import open_store
from tests.support import factories
from tests.support.recorded import record
from tests.support.served import Reader


def admits(text: str, **knobs: Any) -> bool:
    trial = factories.finished(0, configuration=factories.configuration(**knobs))
    return TrialConditions(knobs=[knob_condition(text)]).admits(trial)


NUMBERS = st.floats(-1e6, 1e6) | st.integers(-(10**6), 10**6)


@given(value=NUMBERS, low=st.none() | NUMBERS, high=st.none() | NUMBERS)
def test_a_range_includes_its_ends_and_nothing_beyond(value: float, low: float | None, high: float | None) -> None:
    if low is None and high is None:
        return
    ends = ["" if end is None else repr(end) for end in (low, high)]
    text = f"micro_batch_size:{ends[0]}..{ends[1]}"
    inside = (low is None or value >= low) and (high is None or value <= high)
    assert admits(text, micro_batch_size=value) is inside


@pytest.mark.parametrize(
    ("text", "value", "admitted"),
    [
        ("precision:bf16", "bf16", True),
        ("precision:bf16", "BF16", False),
        ("precision:..5", "bf16", False),
        ("gradient_checkpointing:true", True, True),
        ("gradient_checkpointing:True", True, True),
        ("gradient_checkpointing:1", True, False),
        ("gradient_checkpointing:0..1", True, False),
        ("micro_batch_size:4", 4, True),
        ("micro_batch_size:4.0", 4, True),
        ("micro_batch_size:four", 4, False),
    ],
)
def test_a_value_is_compared_as_what_the_knob_is(text: str, value: Any, admitted: bool) -> None:
    name = text.partition(":")[0]
    assert admits(text, **{name: value}) is admitted


def test_a_knob_that_is_not_set_is_not_admitted() -> None:
    assert not admits("zero_stage:..3")


@pytest.mark.parametrize(
    "text",
    [
        *("", ":", "micro_batch_size", "micro_batch_size:", "micro_batch_size:..", "micro_batch_size:a..b", "other:1"),
        *("micro_batch_size:nan..", "micro_batch_size:..inf", "__class__:1", "micro_batch_size:1..2..3"),
    ],
)
def test_what_is_no_filter_is_refused(text: str) -> None:
    with pytest.raises(RequestValidationError):
        knob_condition(text)


@given(text=st.text(max_size=30))
def test_any_text_is_a_filter_or_refused(text: str) -> None:
    refused = ()
    try:
        admits(text)
    except RequestValidationError as error:
        refused = error.errors()[0]["loc"]
    assert refused in ((), ("query", "knob"))


def test_filters_of_one_knob_are_alternatives_and_of_several_conditions() -> None:
    chosen = TrialConditions(
        knobs=[knob_condition(t) for t in ("micro_batch_size:2", "micro_batch_size:8", "precision:bf16")]
    )
    for size, precision, admitted in [(2, "bf16", True), (8, "bf16", True), (4, "bf16", False), (2, "fp32", False)]:
        trial = factories.trial(1, configuration=factories.configuration(micro_batch_size=size, precision=precision))
        assert chosen.admits(trial) is admitted


@pytest.mark.parametrize(
    ("query", "numbers"),
    [
        ("?failure=OOM", [2]),
        ("?failure=OOM&failure=CRASH", [2, 5]),
        ("?failure=NAN", []),
        ("?feasible=true", [1, 0]),
        ("?feasible=false&sort=number", [2, 3, 4, 5]),
        ("?knob=micro_batch_size:4..&sort=number", [1, 2, 3, 4]),
        ("?knob=micro_batch_size:..2&sort=number", [0, 5]),
        ("?knob=precision:bf16", [3]),
        ("?knob=micro_batch_size:8&knob=precision:fp32", [2]),
        ("?state=FAIL&knob=micro_batch_size:8", [2]),
        ("?sort=wall_seconds", [2, 5, 0, 1, 3, 4]),
        ("?sort=peak_bytes&state=COMPLETE", [0, 1]),
    ],
)
def test_over_http(reader: Reader, study: Study, settings: Settings, query: str, numbers: list[int]) -> None:
    store = open_store(settings.database)
    record(store, study, factories.failed(5, factories.failure(FailureReason.CRASH)))
    store.close()
    found = reader.json(f"/api/v1/studies/1/trials{query}")["trials"]
    assert [t["number"] for t in found] == numbers


def test_the_nearest_knob_is_named(finished: Reader) -> None:
    detail = finished.ask("/api/v1/studies/1/trials?knob=micro_batch_siz:4").json()["detail"]
    assert "did you mean micro_batch_size?" in detail


@pytest.mark.parametrize("limit", [1, 2, 100])
def test_cycles_are_paged_and_filtered(finished: Reader, limit: int) -> None:
    whole = finished.json("/api/v1/studies/1/trials/0")["trial"]["cycles"]
    seen: list[Any] = []
    following: str | None = f"/api/v1/studies/1/trials/0/cycles?limit={limit}"
    while following:
        answer = finished.ask(following)
        seen += answer.json()["cycles"]
        following = answer.links["next"]["url"] if "next" in answer.links else None
    assert seen == sorted(whole, key=lambda c: (c["index"], c["rank"]))
    speed = finished.json("/api/v1/studies/1/trials/0/cycles?kind=recorded&rank=0")["cycles"]
    assert {c["kind"] for c in speed} == {"recorded"}
    assert finished.json("/api/v1/studies/1/trials/0/cycles?rank=7")["cycles"] == []


def test_states_are_optunas(finished: Reader) -> None:
    for state in TrialState:
        found = finished.json(f"/api/v1/studies/1/trials?state={state}&limit=500")["trials"]
        assert all(t["state"] == state for t in found)
