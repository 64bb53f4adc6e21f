"""The sampler of the product: the proposer's contract, and what only it promises."""

from __future__ import annotations

import random
import statistics
from collections.abc import Mapping, Sequence

from autotune.domain import Configuration, Trial
from autotune.ports import Proposer
from autotune.proposals.choice import steps_owed
from autotune.proposals.proposer import TwoTrackProposer
from autotune.proposals.samplers.grey import GreySampler, Models
from autotune.proposals.translation import Observation, OptunaTrialStatus
from tests.contracts.proposer_suite import ExhaustiveSuite, Landscape, ProposerSuite, confirmations, landscape, search
from tests.support import forecasting
from tests.support.forecasting import CANDIDATES, KNOBS, TASK, FormulaPeaks, FormulaTimes, measured, seconds, total
from tests.support.not_none import not_none
from tests.unit.proposals.test_proposer import built

BASELINE = CANDIDATES[0]
BEST = min(total(c) for c in CANDIDATES)
WORLD = landscape()


def speed_formula(configuration: Configuration) -> Mapping[str, float]:
    """The contract's landscape, as phases; the level is nobody's, nor is what is none of its candidates."""
    return {"update": 1e4 / WORLD.speed(configuration) if set(configuration) >= set(WORLD.baseline) else 50.0}


class TestWithoutModels(ExhaustiveSuite):
    def build(self, world: Landscape, seed: int = 0) -> Proposer:
        return built(world, "grey", seed)


class TestByModels(ProposerSuite):
    def build(self, world: Landscape, seed: int = 0) -> Proposer:
        return by_models(FormulaTimes(speed_formula, spread=2.0), world=world, seed=seed)

    def test_takes_the_fastest_first(self, world: Landscape) -> None:
        """Where every trial starts a process; else a cheap step may come before it."""
        made = search(by_models(FormulaTimes(speed_formula), world=world, device="cpu"), world, 3)[1:]
        assert made[0].source == "grey/headline"
        assert world.speed(made[0].configuration) == world.best(world.headline)


def by_models(
    times: FormulaTimes | None,
    peaks: FormulaPeaks | None = None,
    *,
    candidates: Sequence[Configuration] = CANDIDATES,
    world: Landscape | None = None,
    seed: int = 0,
    device: str = "cuda",
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
        device=device,
    )


def study(proposer: Proposer, trials: int, seed: int = 0, fits: Sequence[Configuration] | None = None) -> list[Trial]:
    """Trials until nothing is proposed; a leader that waits for its confirmation is confirmed."""
    made = [measured(0, BASELINE)]
    while len(made) <= trials:
        number = len(made)
        proposal = proposer.propose(made, number) or proposer.propose([*made, *confirmations(made)], number)
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


def test_a_right_formula_needs_one_trial_and_then_the_leader_is_confirmed() -> None:
    proposer, made = by_models(FormulaTimes(seconds, spread=0.025)), [measured(0, BASELINE)]
    proposal = not_none(proposer.propose(made, 1))
    made.append(measured(1, proposal[0]).with_(source=proposal[1]))
    assert found(made) > 0.98
    assert proposer.propose(made, 2) is None, "nothing promises more than noise while the leader is not confirmed"
    assert proposer.propose([*made, *confirmations(made)], 2) is not None, "afterwards what was not tried is"


def test_with_wrong_formulas_it_is_no_worse_than_steps_alone() -> None:
    misled = [study(by_models(FormulaTimes(wrong), seed=s), 24, s) for s in range(2)]
    plain = [study(by_models(None, seed=s), 24, s) for s in range(2)]
    assert all(any(t.source == "step/headline" for t in made[:5]) for made in misled)
    assert statistics.fmean(map(found, misled)) >= statistics.fmean(map(found, plain)) - 0.04
    assert statistics.fmean(map(found, plain)) > 0.9


def test_forecasts_that_do_not_pay_are_answered_by_ever_more_steps() -> None:
    track: list[Observation] = []
    owed = []
    for kind in ("baseline", "grey", "step", "grey", "step", "step", "grey", "step", "step", "step", "step"):
        trial = measured(len(track), CANDIDATES[len(track)]).with_(source=f"{kind}/headline")
        track.append(Observation(len(track), trial.configuration, OptunaTrialStatus.FEASIBLE, 1.0, trial))
        owed.append(steps_owed(track, "grey"))
    assert owed == [0, 1, 0, 2, 1, 0, 4, 3, 2, 1, 0]
    paid = Observation(len(track), CANDIDATES[50], OptunaTrialStatus.FEASIBLE, 2.0, track[1].trial)
    assert steps_owed([*track, paid], "grey") == 0


def test_what_does_not_fit_is_not_tried_while_something_may() -> None:
    fits = frozenset(c for c in CANDIDATES if int(c["micro_batch_size"]) <= 2)
    for times in (FormulaTimes(seconds), None):
        made = study(by_models(times, FormulaPeaks(lambda c: 0.95 if c in fits else 0.4)), 12)
        assert {t.configuration for t in made} <= fits


def test_where_nothing_is_likely_to_fit_the_likeliest_is_tried_until_something_held() -> None:
    few = CANDIDATES[1:12]
    made = [forecasting.ran_out(0, BASELINE)]
    proposer = by_models(FormulaTimes(seconds), FormulaPeaks(lambda c: 0.3 if c == few[4] else 0.1), candidates=few)
    proposal = not_none(proposer.propose(made, 1))
    assert proposal[0] == few[4]


def test_a_restart_is_paid_for_what_is_much_faster_only() -> None:
    def formula(slow: float) -> FormulaTimes:
        def phases(c: Configuration) -> Mapping[str, float]:
            rows = 0.9 if c["micro_batch_size"] == 16 else 1.0
            return {"update": rows * {"eager": 10.0, "sdpa": slow}[str(c["attn_implementation"])]}

        return FormulaTimes(phases, spread=0.02)

    same, other = BASELINE.with_(micro_batch_size=16), BASELINE.with_(attn_implementation="sdpa")
    first = measured(0, BASELINE)
    chosen = [by_models(formula(slow), candidates=(BASELINE, same, other)).propose([first], 1) for slow in (8.5, 3.0)]
    assert [c[0] for c in chosen if c is not None] == [same, other]


def test_a_failure_keeps_it_away_from_what_is_like_it() -> None:
    """Half of the space crashes, and nothing forecasts that."""
    crashes = []
    made = [measured(0, BASELINE)]
    proposer = by_models(FormulaTimes(seconds))
    for number in range(1, 25):
        proposal = proposer.propose([*made, *confirmations(made)], number)
        if proposal is None:
            break
        crash = not proposal[0]["gradient_checkpointing"]
        crashes.append(crash)
        made.append((forecasting.crashed if crash else measured)(number, proposal[0]).with_(source=proposal[1]))
    assert 1 <= sum(crashes) <= 3
    assert found([t for t in made if t.feasible]) > 0.8


def test_the_landscape_of_the_contract_is_searched_better_than_by_chance() -> None:
    world = landscape(limit=32)
    best = {}
    for name in ("grey", "random"):
        results = []
        for seed in range(4):
            made = [t for t in search(built(world, name, seed), world, 24) if t.feasible]
            results.append(max(world.speed(t.configuration) for t in made) / world.best(world.headline))
        best[name] = statistics.fmean(results)
    assert best["grey"] > best["random"] + 0.03
