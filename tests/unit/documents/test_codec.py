"""What is encoded is decoded exactly, and nothing else is taken for it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from autotune.documents.codec import CodecError, dump, load
from autotune.domain import (
    Budget,
    Configuration,
    CycleRecord,
    Fingerprint,
    Outcome,
    Peaks,
    Protocol,
    Recommendation,
    Resources,
    StudySpec,
)
from search_spaces.configuration import ModelFacts
from tests.support import factories as make
from trainer.child.contract import NoteRecord, WorstCaseRecord

TEXT = st.text(st.characters(), max_size=8)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXT
PLAIN = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT | st.just("$float"), inner, max_size=3),
    max_leaves=8,
)
MAPPINGS = st.dictionaries(TEXT | st.sampled_from(["$", "$float", "$$float"]), PLAIN, max_size=4)
CONFIGURATIONS = st.builds(
    Configuration, st.dictionaries(TEXT, st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXT, max_size=5)
)
COUNTS = st.integers(0, 2**80)
SPECS = st.builds(
    StudySpec,
    name=TEXT,
    workload=st.builds(
        make.workload,
        rewards=st.lists(st.builds(make.reward, options=MAPPINGS), max_size=3).map(tuple),
        passthrough=MAPPINGS,
        rows_per_update=COUNTS,
    ),
    framework=TEXT,
    space=MAPPINGS,
    baseline=CONFIGURATIONS,
    resources=st.builds(
        Resources,
        gpus=COUNTS,
        compute_capability=st.none() | st.tuples(COUNTS, COUNTS),
        model=st.builds(ModelFacts, parameters=st.none() | COUNTS),
        software=st.dictionaries(TEXT, TEXT, max_size=3),
        allow_learning=st.booleans(),
    ),
    sampler=TEXT,
    seed=st.integers(),
    protocol=st.builds(
        Protocol, lengths=st.lists(st.integers(), max_size=5).map(tuple), outside_cpu_limit=st.floats(allow_nan=False)
    ),
    memory_limit=st.none() | COUNTS,
    python=TEXT,
    user_config=TEXT,
)


@given(SPECS)
def test_a_study_spec_comes_back_exactly(spec: StudySpec) -> None:
    text = dump(spec)
    back = load(StudySpec, text)
    assert back == spec
    assert (hash(back.baseline), dump(back)) == (hash(spec.baseline), text)
    assert repr(back.baseline) == repr(spec.baseline), "True, 1 and 1.0 are different values of a knob"
    assert text.isascii()
    json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


@given(PLAIN)
@example({"$float": "nan"})
@example({"$$float": {"$float": math.inf}})
@example([-0.0, 1e-320, 2**200])
def test_plain_data_comes_back_exactly(value: Any) -> None:
    assert repr(load(Any, dump(value))) == repr(_sorted(value))


@given(MAPPINGS)
def test_equal_values_have_equal_text(value: dict[str, Any]) -> None:
    assert dump(dict(reversed(value.items()))) == dump(value)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_json_cannot_say_is_kept(value: float) -> None:
    note = load(NoteRecord, dump(make.note(value=value, deep=[{"x": value}])))
    assert repr(note.data) == repr({"deep": [{"x": value}], "value": value})
    assert repr(load(CycleRecord, dump(make.cycle(loss=value))).loss) == repr(value)


@pytest.mark.parametrize(
    "value",
    [
        make.oom(),
        Outcome(),
        make.protocol(),
        make.configuration(),
        make.fingerprint(),
        make.recommendation(),
        make.worst_case(),
        make.note(),
        make.cycle(peaks={"cycle": Peaks(1, None, 3)}),
        Budget(wall_s=1.5),
    ],
    ids=lambda v: type(v).__name__,
)
def test_every_stored_type_comes_back_exactly(value: Any) -> None:
    assert load(type(value), dump(value)) == value


def test_a_value_of_a_later_field_set_is_read_and_of_an_earlier_one_gets_defaults() -> None:
    spec = make.study_spec()
    later = json.dumps({**json.loads(dump(spec)), "something_new": 1})
    assert load(StudySpec, later) == spec
    earlier = json.loads(dump(spec))
    del earlier["sampler"]
    assert load(StudySpec, json.dumps(earlier)) == replace(spec, sampler="tpe")


@pytest.mark.parametrize(
    ("value", "place"),
    [
        ({"a": {"b": date(2026, 1, 1)}}, "a.b"),
        ({"a": [1, {2}]}, r"a\[1\]"),
        ({1: 2}, "1"),
        (make.note(x=b"bytes"), "NoteRecord.data.x"),
    ],
)
def test_what_is_not_plain_data_is_refused_where_it_is(value: Any, place: str) -> None:
    with pytest.raises(CodecError, match=place):
        dump(value)


@pytest.mark.parametrize(
    ("shape", "text", "place"),
    [
        (Peaks, "{", "JSON"),
        (Peaks, "[]", "an object"),
        (Peaks, '{"host": true}', "host"),
        (Peaks, '{"host": 1.5}', "host"),
        (Outcome, '{"reason": "LAZY"}', "reason"),
        (WorstCaseRecord, '{"rows": 1}', "prompt_tokens"),
        (Protocol, '{"lengths": [1, "2"]}', "lengths: 1"),
        (Protocol, '{"outside_cpu_limit": "0.1"}', "outside_cpu_limit"),
        (Protocol, '{"outside_cpu_limit": true}', "outside_cpu_limit"),
        (Fingerprint, '{"hardware": 1, "software": {}, "workload": ""}', "hardware"),
        (tuple[int, int], "[1, 2, 3]", "2 items"),
        (Recommendation, "null", "an object"),
    ],
)
def test_a_text_of_another_shape_is_refused_where_it_differs(shape: Any, text: str, place: str) -> None:
    with pytest.raises(CodecError, match=place):
        load(shape, text)


@dataclass(frozen=True)
class Wide:
    either: int | str
    pairs: Mapping[str, tuple[Peaks, ...]]


@given(st.builds(Wide, either=st.integers() | TEXT, pairs=st.dictionaries(TEXT, st.tuples(st.builds(Peaks)))))
def test_shapes_nest(value: Wide) -> None:
    assert load(Wide, dump(value)) == value


def _sorted(value: Any) -> Any:
    """As canonical text orders it, so that ``repr`` tells ``-0.0`` from ``0.0`` and ``True`` from ``1``."""
    if isinstance(value, dict):
        return {k: _sorted(value[k]) for k in sorted(value, key=lambda k: "$$" + k if k.startswith("$") else k)}
    return [_sorted(v) for v in value] if isinstance(value, list) else value


def test_the_order_of_mappings_is_kept_where_it_is_asked_for() -> None:
    value = {"b": 1, "a": {"d": 2, "c": 3}}
    assert dump(value, canonical=False) == '{"b":1,"a":{"d":2,"c":3}}'
    assert list(load(Any, dump(value, canonical=False))) == ["b", "a"]
    assert dump(value) == '{"a":{"c":3,"d":2},"b":1}'
