"""The phase-time model on a made-up machine: what it must learn, must not be moved by, and must admit."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

from autotune.domain import Configuration
from autotune.proposals.forecasts import TimeForecast
from autotune.proposals.times import Hardware, PhaseTimes, features
from autotune.proposals.times import model as times_model
from autotune.proposals.times.features import PHASES, PhaseRows
from autotune.proposals.times.learning import MISFIT_SD
from autotune.proposals.times.roofline import Parts, World, parts_of, seconds_of
from search_spaces.configuration import ModelFacts
from tests.support import factories as f
from tests.support import timed_machine as made
from tests.support.timed_machine import rank_correlation

PRIOR = PhaseTimes(Hardware("cpu guessed", {"fp32": 1e11, "bf16": 1.5e11}, 2e10, 1e-5, spread=0.5))
SPACE = made.configurations()


def chosen(count: int, seed: int = 0) -> list[Configuration]:
    return random.Random(seed).sample(SPACE, count)


def rest_of(some: list[Configuration]) -> list[Configuration]:
    return [c for c in SPACE if c not in some]


def errors(answer: TimeForecast, asked: list[Configuration]) -> np.ndarray:
    truth = np.sum(list(made.true_seconds(asked, made.task()).values()), axis=0)
    return np.abs(answer.log_seconds - np.log(truth))


@pytest.mark.parametrize("count", [0, 1, 3, 12])
def test_the_phases_sum_to_the_cycle(count: int) -> None:
    answer = PRIOR.fitted(made.task(), made.trials(chosen(count))).forecast(SPACE)
    assert np.allclose(np.exp(answer.log_seconds), np.sum(list(answer.phases.values()), axis=0))
    for column in (answer.log_seconds, answer.spread, *answer.phases.values()):
        assert column.shape == (len(SPACE),)
        assert np.all(np.isfinite(column))
    assert np.all(answer.spread > 0)
    assert set(answer.phases) == set(PHASES)


@pytest.mark.parametrize("seed", range(3))
def test_it_learns_a_machine_whose_effects_no_formula_has(seed: int) -> None:
    some = chosen(24, seed)
    rest = rest_of(some)
    model = PRIOR.fitted(made.task(), made.trials(some, seed=seed))
    answer = model.forecast(rest)
    ours, before = errors(answer, rest), errors(PRIOR.fitted(made.task(), ()).forecast(rest), rest)
    assert np.median(ours) < 0.06
    assert np.median(ours) < np.median(before) / 4
    assert np.mean(ours < 1.645 * answer.spread) > 0.75, "the spread says how wrong it is"
    assert np.median(answer.spread) < 0.2, "and is not merely wide"


def test_effects_are_read_off_each_phase() -> None:
    some = chosen(32)
    answer = PRIOR.fitted(made.task(), made.trials(some)).forecast(rest_of(some))
    truth = made.true_seconds(rest_of(some), made.task())
    for phase in ("generate", "logprob", "update", "sync"):
        occurs = truth[phase] > 0
        assert np.array_equal(answer.phases[phase] > 0, occurs)
        assert np.median(np.abs(np.log(answer.phases[phase][occurs] / truth[phase][occurs]))) < 0.1, phase


def test_the_order_of_trials_changes_nothing() -> None:
    trials = made.trials(chosen(14))
    mixed = random.Random(1).sample(trials, len(trials))
    one, other = (PRIOR.fitted(made.task(), some) for some in (trials, mixed))
    a, b = one.forecast(SPACE), other.forecast(SPACE)
    for left, right in ((a.log_seconds, b.log_seconds), (a.spread, b.spread)):
        assert np.array_equal(left, right)


def test_failed_trials_tell_nothing_and_stopped_ones_do() -> None:
    trials = made.trials(chosen(6))
    model = PRIOR.fitted(made.task(), trials[:5]).forecast(SPACE)
    broken = f.failed(5, configuration=trials[5].configuration).with_(cycles=trials[5].cycles)
    assert np.array_equal(
        PRIOR.fitted(made.task(), [*trials[:5], broken]).forecast(SPACE).log_seconds, model.log_seconds
    )
    stopped = f.stopped(5, configuration=trials[5].configuration).with_(cycles=trials[5].cycles)
    learnt = PRIOR.fitted(made.task(), [*trials[:5], stopped]).forecast([trials[5].configuration])
    complete = PRIOR.fitted(made.task(), trials).forecast([trials[5].configuration])
    assert np.array_equal(learnt.log_seconds, complete.log_seconds)
    assert np.array_equal(learnt.spread, complete.spread)


def test_what_was_measured_is_known_and_measuring_again_tells_more() -> None:
    one = chosen(1)
    for same in (True, False):
        widths = []
        for count in range(7):
            trials = [t for n in range(count) for t in made.trials(one, seed=0 if same else n, first=n)]
            widths.append(float(PRIOR.fitted(made.task(), trials).forecast(one).spread[0]))
        assert widths[1] < widths[0] / 3
        assert widths[6] < min(1.1 * MISFIT_SD, widths[1])
        for before, after in itertools.pairwise(widths) if same else ():
            assert after < before, "trials that agree"


def test_a_value_nobody_measured_is_less_certain() -> None:
    some = [c for c in chosen(40) if c["attn_implementation"] == "sdpa" and c["micro_batch_size"] != 8]
    model = PRIOR.fitted(made.task(), made.trials(some))
    known = [c for c in rest_of(some) if c["attn_implementation"] == "sdpa" and c["micro_batch_size"] != 8]
    other = [c.with_(attn_implementation="eager") for c in known]
    assert np.all(model.forecast(other).spread > model.forecast(known).spread)


def test_candidates_are_foretold_alike_alone_and_among_others() -> None:
    model = PRIOR.fitted(made.task(), made.trials(chosen(10)))
    whole = model.forecast(SPACE)
    assert np.array_equal(model.forecast(tuple(SPACE)).log_seconds, whole.log_seconds)
    for place in (0, 17, 127):
        alone = model.forecast([SPACE[place]])
        assert alone.log_seconds[0] == pytest.approx(whole.log_seconds[place], abs=1e-12)
        assert alone.spread[0] == pytest.approx(whole.spread[place], abs=1e-12)
    assert model.forecast([]).log_seconds.shape == (0,)


def upside_down(phase: str, rows: PhaseRows, world: World) -> Parts:
    """What is fast is slow."""
    seconds = seconds_of(parts_of(phase, rows, world), {}, rows.size)
    return {"all": np.where(seconds > 0, 1.0 / np.maximum(seconds, 1e-9), 0.0)}


@pytest.mark.parametrize("seed", range(4))
def test_a_wrong_prior_is_corrected(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    some = chosen(16, seed)
    monkeypatch.setattr(times_model, "parts_of", upside_down)
    features.cache_clear()
    before, after = (
        PRIOR.fitted(made.task(), told).forecast(rest_of(some)).log_seconds
        for told in ((), made.trials(some, seed=seed))
    )
    truth = np.sum(list(made.true_seconds(rest_of(some), made.task()).values()), axis=0)
    features.cache_clear()
    assert rank_correlation(before, truth) < 0.0
    assert rank_correlation(after, truth) > 0.5


@pytest.mark.parametrize("seed", range(3))
def test_what_was_read_before_changes_no_figure(seed: int) -> None:
    """Whatever was asked for earlier, in whatever order, and of whichever task."""
    task, other = made.task(), made.task(rows_per_update=32)
    for count in (5, 9, 40, 3):
        some = chosen(count, seed + count)
        some += some[:2]
        found, fresh = features(task, tuple(some)), features.__wrapped__(task, tuple(some))
        for phase, rows in fresh.items():
            read_before = found[phase]
            for name, column in {**rows.own, **rows.facts}.items():
                same = {**read_before.own, **read_before.facts}[name]
                assert np.array_equal(same[read_before.index], column[rows.index]), name
        features(other, tuple(some))
    trials = made.trials(chosen(20, seed), seed=seed)
    for part in (trials[:7], trials):
        answer = PRIOR.fitted(task, part).forecast(SPACE)
        features.cache_clear()
        expected = PRIOR.fitted(task, part).forecast(SPACE)
        assert np.array_equal(answer.log_seconds, expected.log_seconds)
        assert np.array_equal(answer.spread, expected.spread)
    elsewhere = PRIOR.fitted(other, ()).forecast(SPACE).log_seconds
    features.cache_clear()
    assert np.array_equal(elsewhere, PRIOR.fitted(other, ()).forecast(SPACE).log_seconds)


def test_missing_facts_are_wide_and_finite() -> None:
    unknown = made.task(resources=f.resources(model=ModelFacts()), lengths=(), prompt_tokens=0.0)
    answer = PhaseTimes().fitted(unknown, ()).forecast(SPACE)
    assert np.all(np.isfinite(answer.log_seconds))
    assert np.all(answer.spread > 1.0)
    known = PRIOR.fitted(made.task(), ()).forecast(SPACE)
    assert np.all(known.spread < answer.spread)
    learnt = PhaseTimes().fitted(unknown, made.trials(chosen(12)))
    assert np.median(errors(learnt.forecast(SPACE), SPACE)) < 0.25, "measurements make up for what is not known"


def test_a_model_that_was_fitted_to_nothing_says_so() -> None:
    with pytest.raises(ValueError, match="fitted"):
        PhaseTimes().forecast(SPACE)
