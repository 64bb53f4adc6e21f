import json
import math
from dataclasses import fields, replace
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from autotune.documents import study
from autotune.documents.recommendation import gain_json, recommendation_json, row_json
from autotune.domain import (
    Budget,
    Configuration,
    CycleKind,
    CycleRecord,
    Event,
    Gain,
    GpuUse,
    Outcome,
    Peaks,
    ProcessUse,
    RecommendationRow,
    Trial,
)
from tests.support import factories
from tests.support.imports import text_of

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(max_size=4),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text() | st.integers() | st.floats(), inner),
    max_leaves=20,
)
number = st.floats()


def strict(document: Any) -> Any:
    """As a client in another language reads it: no NaN, valid UTF-8."""
    text = json.dumps(document, allow_nan=False, ensure_ascii=False)
    text.encode("utf-8")

    def refuse(constant: Any) -> None:
        raise AssertionError(constant)

    return json.loads(text, parse_constant=refuse)


@given(anything)
def test_any_value_becomes_plain_json(value: Any) -> None:
    strict(study.plain(value))


@given(anything)
def test_an_event_with_any_data_becomes_plain_json(value: Any) -> None:
    strict(study.event_json(Event("kind\ud800", "message", {"data": value}, at=math.inf)))


@given(number, number, number, number, st.text(), st.floats())
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_trial_with_any_numbers_has_no_nan_and_no_infinity(
    seconds: float, phase: Any, loss: Any, started: Any, word: str, peak: Any
) -> None:
    cycle = factories.cycle(
        seconds=seconds, phases={word: phase}, loss=loss, drift=phase, reward_mean=loss, started=started,
        outside_cpu=seconds, clipped_share=loss, cpu_seconds=phase, grad_norm=loss,
        logp_mismatch=phase, cache_usage=loss,
    )  # fmt: skip
    trial = factories.finished(
        3,
        cycles=1,
        startup={word: seconds},
        seconds=seconds,
        started_at=started,
        finished_at=started,
        created_at=started,
        outcome=Outcome(message=word),
        configuration=Configuration({"gpu_memory_utilization": peak if math.isfinite(peak) else 0.5, "name": word}),
    ).with_(cycles=(cycle,))
    strict(study.trial_json(trial, factories.configuration(), cycles=True))


@given(number, number, st.text())
def test_a_recommendation_with_any_numbers(value: Any, low: Any, word: str) -> None:
    row = factories.recommendation_row(
        tokens_per_hour=value, low=low, high=value, gain=Gain(value, low, value, 0, 0), headroom=low, limit=word,
        phase_shares={word: value}, maximum_tokens_per_hour=low,
    )  # fmt: skip
    strict(recommendation_json(factories.recommendation(rows=(row,), created_at=value, notes=(word,))))


def test_unknown_is_null_not_a_string() -> None:
    assert study.plain([math.nan, math.inf, -math.inf, 1.5]) == [None, None, None, 1.5]
    assert study.plain(True) is True


def test_times_are_utc() -> None:
    assert study.timestamp(0.5) == "1970-01-01T00:00:00.500Z"
    assert study.timestamp(None) is None
    assert study.timestamp(math.nan) is None
    assert study.timestamp(1e300) is None


OTHERWISE: dict[str, Any] = {
    "cycle_kind": CycleKind.MAXIMUM,
    "phases": {"update": 3.0},
    "lengths": (1, 2),
    "peaks": {"update": Peaks(host=1)},
    "process": ProcessUse(minor_faults=1),
    "gpu": {"cycle": GpuUse(samples=3)},
}
"""Field of a cycle that is no number or switch -> another value than ``factories.cycle`` has."""


@pytest.mark.parametrize("name", [each.name for each in fields(CycleRecord) if each.name != "kind"])
def test_no_field_of_a_cycle_is_lost(name: str) -> None:
    """Another value of any of them is another document."""
    cycle = factories.cycle()
    there = getattr(cycle, name)
    other = OTHERWISE[name] if name in OTHERWISE else not there if isinstance(there, bool) else (there or 0) + 1
    assert study.cycle_json(replace(cycle, **{name: other})) != study.cycle_json(cycle)


PUBLIC = yaml.safe_load(text_of("public_names.yaml"))


@pytest.mark.parametrize(
    ("shape", "document"),
    [
        (GpuUse, study.gpu_json(GpuUse())),
        (Outcome, study.outcome_json(factories.oom())),
        (Gain, gain_json(factories.gain())),
        (Budget, study.budget_json(Budget(60.0, 3, 1.0))),
        (RecommendationRow, row_json(factories.recommendation_row())),
        (Trial, study.trial_json(factories.finished(1), factories.configuration(), cycles=True)),
    ],
)
def test_every_field_has_a_public_name(shape: Any, document: Any) -> None:
    apart = PUBLIC.get(shape.__name__, {})
    assert {apart.get(f.name, f.name) for f in fields(shape)} <= set(document)


def test_measurements_carry_their_unit() -> None:
    document = study.trial_json(factories.finished(1), factories.configuration(), cycles=True)
    assert document["host_peak_bytes"] == 5 * factories.GIB // 2
    assert document["startup_seconds"] == {"import": 2.0, "load": 1.5, "first_batch": 3.0}
    assert document["tokens_per_hour"] == pytest.approx(448 * 360)
    assert document["changes"] == {"logprob_token_chunk": {"baseline": None, "here": 2}}
    cycle = document["cycles"][0]
    assert cycle["phase_seconds"]["generate"] == 5.0
    assert cycle["peaks"]["update"]["host_bytes"] == 2 * factories.GIB
    assert cycle["useful_share"] == pytest.approx(768 / 1344)


def test_a_study_tells_what_must_stay_the_same() -> None:
    document = strict(study.study_json(factories.study(), "done"))
    assert document["rows_per_update"] == 8
    assert document["max_completion_tokens"] == 128
    assert document["memory_limit_bytes"] == 8 * factories.GIB
    assert document["digest"] == factories.study_spec().digest
    assert document["created_at"].endswith("Z")


def test_the_device_peak_prefers_what_the_driver_saw() -> None:
    seen = {
        "update": factories.peaks(device_reserved=5, device_used=9),
        "generate": factories.peaks(device_reserved=12),
    }
    trial = factories.finished(1).with_(cycles=(factories.cycle(peaks=seen),))
    assert study.trial_json(trial, factories.configuration())["device_peak_bytes"] == 9
    assert study.trial_json(factories.finished(1), factories.configuration())["device_peak_bytes"] is None
