"""The grey-box sampler inside the tuner: the proposer's contract, and what only it promises."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from autotune.domain import Ceiling, Configuration, Outcome, Trial, TrialState
from autotune.ports import Proposer
from autotune.proposals.grey import models
from autotune.proposals.grey.models import Models
from autotune.proposals.proposer import TwoTrackProposer
from autotune.proposals.samplers import grey
from autotune.proposals.samplers.grey import GreySampler
from autotune.proposals.translation import Observation, OptunaTrialStatus, evidence
from tests.contracts.proposer_suite import Landscape, ProposerSuite, complete, landscape, search
from tests.support import forecasting
from tests.support.forecasting import CANDIDATES, KNOBS, TASK, FormulaPeaks, FormulaTimes, measured, seconds, total
from tests.unit.proposals.test_proposer import built

BASELINE = CANDIDATES[0]
BEST = min(total(c) for c in CANDIDATES)


WORLD = landscape()


def speed_formula(configuration: Configuration) -> Mapping[str, float]:
    """The contract's landscape, as phases; the level is nobody's, nor is what is none of its candidates."""
    return {"update": 1e4 / WORLD.speed(configuration) if set(configuration) >= set(WORLD.baseline) else 50.0}


class TestFallback(ProposerSuite):
    def build(self, world: Landscape, seed: int = 0) -> Proposer:
        return built(world, "grey", seed)


class TestByModels(ProposerSuite):
    def build(self, world: Landscape, seed: int = 0) -> Proposer:
        return by_models(FormulaTimes(speed_formula, scatter=math.inf), world=world, seed=seed)

    def test_takes_the_fastest_first(self, world: Landscape) -> None:
        made = search(self.build(world), world, 3)[1:]
        assert {t.source for t in made} == {"grey/headline", "grey/permitted"}
        assert world.speed(made[0].configuration) == world.best(world.headline)


def by_models(
    times: FormulaTimes | None,
    peaks: FormulaPeaks | None = None,
    *,
    candidates: Sequence[Configuration] = CANDIDATES,
    world: Landscape | None = None,
    seed: int = 0,
) -> TwoTrackProposer:
    return TwoTrackProposer(
        headline=candidates if world is None else world.headline,
        permitted=candidates if world is None else world.permitted,
        searched=tuple(KNOBS) if world is None else world.searched,
        baseline=BASELINE if world is None else world.baseline,
        complete_baseline=BASELINE if world is None else world.baseline,
        sampler=GreySampler(Models(TASK, times, peaks)),
        seed=seed,
        one_memory=True,
    )


def study(proposer: Proposer, trials: int, seed: int = 0, fits: Sequence[Configuration] | None = None) -> list[Trial]:
    made = [measured(0, BASELINE)]
    for number in range(1, trials + 1):
        proposal = proposer.propose(made, number)
        if proposal is None:
            break
        noise = random.Random(f"{seed}/{proposal[0].key}").gauss(0.0, 0.02)
        held = fits is None or proposal[0] in fits
        trial = measured(number, proposal[0], noise) if held else forecasting.ran_out(number, proposal[0])
        made.append(trial.with_(source=proposal[1]))
    return made


def found(made: Sequence[Trial]) -> float:
    """The best there is over the best found."""
    return BEST / min(total(t.configuration) for t in made if t.feasible)


def wrong(configuration: Configuration) -> Mapping[str, float]:
    """The opposite of the truth."""
    return {name: 10.0 / value**2 for name, value in seconds(configuration).items()}


def test_a_right_formula_needs_two_trials() -> None:
    made = study(by_models(FormulaTimes(seconds)), 2)
    assert found(made) > 0.98
    assert [t.source for t in made[1:]] == ["grey/headline"] * 2


def test_a_wrong_formula_is_left_for_what_was_measured() -> None:
    misled = [study(by_models(FormulaTimes(wrong), seed=s), 20, s) for s in range(2)]
    plain = [study(by_models(None, seed=s), 20, s) for s in range(2)]
    assert {t.source for made in misled for t in made[8:]} <= {"grey-fallback/headline", "move/headline"}
    assert {t.source for made in misled for t in made[1:3]} == {"grey/headline"}
    assert statistics.fmean(map(found, misled)) >= statistics.fmean(map(found, plain)) - 0.04
    assert statistics.fmean(map(found, plain)) > 0.9


def test_what_does_not_fit_is_not_tried_while_something_may() -> None:
    fits = frozenset(c for c in CANDIDATES if int(c["micro_batch_size"]) <= 2)
    for times in (FormulaTimes(seconds), None):
        made = study(by_models(times, FormulaPeaks(lambda c: 0.95 if c in fits else 0.4)), 12)
        assert {t.configuration for t in made} <= fits


def test_an_opening_that_hardly_fits_is_not_opened_with() -> None:
    """The two that come first whoever proposes; the sampler may come back to them when it is surer."""
    roomy, other = BASELINE.with_(gradient_checkpointing=False), BASELINE.with_(micro_batch_size=2)
    for fits, expected in ((0.9, (roomy, "roomy")), (0.3, (other, "grey/headline"))):
        peaks = FormulaPeaks({BASELINE: 1.0, roomy: fits, other: 1.0}.__getitem__)
        proposer = TwoTrackProposer(
            headline=(BASELINE, roomy, other), permitted=(BASELINE, roomy, other), searched=tuple(KNOBS),
            baseline=BASELINE, complete_baseline=BASELINE, seed=0, one_memory=True, firsts=[(roomy, "roomy")],
            sampler=GreySampler(Models(TASK, FormulaTimes(seconds), peaks)),
        )  # fmt: skip
        assert proposer.propose([measured(0, BASELINE)], 1) == expected


def test_where_nothing_is_likely_to_fit_something_is_tried_still() -> None:
    few = CANDIDATES[:12]
    for times in (FormulaTimes(seconds), None):
        made = study(by_models(times, FormulaPeaks(lambda _: 0.0), candidates=few), 50, fits=())
        assert {t.configuration for t in made} == set(few)


@pytest.mark.parametrize("times", [FormulaTimes(seconds), None])
def test_the_last_candidate_is_proposed(times: FormulaTimes | None) -> None:
    made = [measured(i, c) for i, c in enumerate(CANDIDATES[:-1])]
    proposal = by_models(times).propose(made, len(made))
    assert proposal is not None
    assert proposal[0] == CANDIDATES[-1]


def test_of_candidates_as_fast_the_one_that_needs_no_restart() -> None:
    """The micro-batch needs none, the attention does; the trial before has the second candidate's process."""
    flat = FormulaTimes(lambda _: {"update": 10.0}, restart_s=120.0)
    same = BASELINE.with_(micro_batch_size=16)
    other = BASELINE.with_(attn_implementation="sdpa")
    for order in ((other, same), (same, other)):
        proposal = by_models(flat, candidates=(BASELINE, *order)).propose([measured(0, BASELINE)], 1)
        assert proposal is not None
        assert proposal[0] == same


def test_a_restart_is_paid_for_what_is_much_faster_only() -> None:
    def formula(slow: float) -> FormulaTimes:
        def phases(c: Configuration) -> Mapping[str, float]:
            return {"update": {"eager": 10.0, "sdpa": slow}[str(c["attn_implementation"])]}

        return FormulaTimes(phases, restart_s=200.0, spread=0.2)

    same, other = BASELINE.with_(micro_batch_size=16), BASELINE.with_(attn_implementation="sdpa")
    first = measured(0, BASELINE)
    chosen = [by_models(formula(slow), candidates=(BASELINE, same, other)).propose([first], 1) for slow in (9.8, 3.0)]
    assert [c[0] for c in chosen if c is not None] == [same, other]


def test_a_failure_keeps_it_away_from_what_is_like_it() -> None:
    """Half of the space crashes, and nothing forecasts that."""
    crashes = []
    made = [measured(0, BASELINE)]
    proposer = by_models(FormulaTimes(seconds))
    for number in range(1, 25):
        proposal = proposer.propose(made, number)
        assert proposal is not None
        crash = not proposal[0]["gradient_checkpointing"]
        crashes.append(crash)
        made.append((forecasting.crashed if crash else measured)(number, proposal[0]))
    assert sum(crashes) <= 6
    assert not any(crashes[-8:])


def test_a_stopped_trial_is_no_reason_to_go_back_there() -> None:
    """Its cycles count as measured, and its bound is never taken for a speed."""
    made = study(by_models(None), 10)
    fast = min((t for t in made if t.feasible), key=lambda t: total(t.configuration))
    slow = max((t for t in made[1:] if t.feasible), key=lambda t: total(t.configuration))
    bound = Outcome(ceiling=Ceiling(1e4, 2e4, rival=fast.number, cycles=3))
    stopped = slow.with_(state=TrialState.PRUNED, outcome=bound, cycles=slow.cycles * 3)
    after = by_models(None).propose([stopped if t is slow else t for t in made], len(made))
    assert after is not None
    assert total(after[0]) < total(slow.configuration)


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """So few candidates are looked at that it matters which."""
    monkeypatch.setattr(grey, "WEIGHED", 40)
    monkeypatch.setattr(grey, "NEIGHBOURS", 10)


@pytest.mark.usefixtures("narrow")
def test_of_many_candidates_the_most_promising_are_looked_at() -> None:
    times = FormulaTimes(seconds)
    proposer = by_models(times)
    made = [measured(0, BASELINE)]
    for number in range(1, 8):
        times.asked.clear()
        proposal = proposer.propose(made, number)
        assert proposal == by_models(FormulaTimes(seconds)).propose(made, number)
        assert proposal is not None
        assert len(CANDIDATES) - number <= max(times.asked) <= len(CANDIDATES)
        assert sum(asked > 60 for asked in times.asked) == 1
        made.append(measured(number, proposal[0]))
    assert found(made) > 0.98


@pytest.mark.usefixtures("narrow")
def test_what_hardly_fits_is_looked_at_last() -> None:
    """The fastest sixty do not fit: those looked at are others."""
    fast = sorted(CANDIDATES, key=total)[:60]
    made = study(by_models(FormulaTimes(seconds), FormulaPeaks(lambda c: 0.4 if c in fast else 0.95)), 3)
    assert not {t.configuration for t in made[1:]} & set(fast)


def test_a_long_history_is_told_in_part_the_fastest_always() -> None:
    trials = [measured(i, c) for i, c in enumerate(CANDIDATES[:400])]
    known = evidence(trials)
    kept = models.selected_trials(trials, known)
    assert len(kept) <= models.KEPT_FASTEST + models.KEPT_NEWEST
    assert min(total(t.configuration) for t in kept) == min(total(t.configuration) for t in trials)
    assert [t.number for t in kept] == sorted(t.number for t in kept)
    assert models.selected_trials(kept, known) == kept


def test_one_lucky_measurement_is_not_what_has_to_be_beaten() -> None:
    known = _known([1.0, 1.0, 1.0, 1.3])
    level, best = models.compared(known, np.zeros(4), np.full(4, 0.02))
    assert level == pytest.approx(1.0)
    assert 1.0 < best < 1.15
    assert models.compared(known, np.zeros(4), np.full(4, 5.0))[1] == pytest.approx(1.3, abs=0.01)


def _known(values: Sequence[float]) -> list[Observation]:
    return [Observation(i, CANDIDATES[i], OptunaTrialStatus.FEASIBLE, value) for i, value in enumerate(values)]


def test_the_landscape_of_the_contract_is_searched_better_than_by_chance() -> None:
    world = landscape(limit=32)
    best = {}
    for name in ("grey", "random"):
        results = []
        for seed in range(4):
            made = [t for t in search(built(world, name, seed), world, 24) if t.feasible]
            results.append(max(world.speed(t.configuration) for t in made) / world.best(world.permitted))
        best[name] = statistics.fmean(results)
    assert best["grey"] > best["random"] + 0.03
    assert complete(1, world.baseline, 5.0).feasible
