"""Moves: one knob from the best so far, what pays stays, and the order follows the phases; then the sampler."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import pytest

from autotune.domain import Configuration, FailureReason, Phase, Trial, TrialKind
from autotune.proposals.candidate_grid import CandidateGrid, Dimension
from autotune.proposals.local_search import PAYS, TURNS, SearchState, Visited, last_run, next_move, search_state, stake
from autotune.proposals.openings import COMPETENT, ROOMY
from autotune.proposals.proposer import TwoTrackProposer, make_proposer
from search_spaces.knobs import KNOBS
from search_spaces.knobs.model import Restart
from search_spaces.knobs.restart import restart_between
from search_spaces.legality import check
from search_spaces.space import SearchSpace
from tests.support import factories

SPACE = SearchSpace.load("cpu")
RESOURCES = factories.resources(rows_per_update=8, num_generations=8, software={})
BASELINE = SPACE.complete(
    Configuration({"micro_batch_size": 8, "gradient_accumulation_steps": 1, "num_generations": 8, "precision": "fp32"}),
    RESOURCES,
)
FOLLOWS = {"gradient_accumulation_steps", "steps_per_generation"}
"""What a move of another knob takes along."""

Gains = Mapping[tuple[str, object], float]
"""Knob and value -> log gain."""


def speed(configuration: Configuration, gains: Gains) -> float:
    return 100.0 * math.exp(sum(g for (name, value), g in gains.items() if configuration.get(name) == value))


def trial(number: int, configuration: Configuration, gains: Gains, phases: Mapping[str, float]) -> Trial:
    tokens = round(1000 * speed(configuration, gains))
    cycle = factories.cycle(
        0, seconds=1000.0, completion_tokens=tokens, phases={p: 1000 * s for p, s in phases.items()}
    )
    return factories.finished(number, configuration=configuration, cycles=0).with_(cycles=(cycle,))


UPDATE_MOST: Mapping[str, float] = {Phase.UPDATE: 0.6, Phase.GENERATE: 0.25, Phase.LOGPROB: 0.1, Phase.SYNC: 0.05}
GENERATE_MOST: Mapping[str, float] = {Phase.UPDATE: 0.3, Phase.GENERATE: 0.6, Phase.LOGPROB: 0.05, Phase.SYNC: 0.05}


def study(
    gains: Gains,
    trials: int,
    *,
    phases: Mapping[str, float] = UPDATE_MOST,
    sampler: str = "tpe",
    fails: Callable[[Configuration], bool] = lambda _: False,
) -> list[Trial]:
    proposer = make_proposer(SPACE, BASELINE, RESOURCES, sampler, seed=5)
    made = [trial(0, BASELINE, gains, phases)]
    while len(made) <= trials and (proposal := proposer.propose(made, len(made))) is not None:
        configuration, source = proposal
        assert check(configuration, RESOURCES, BASELINE) == ()
        one = trial(len(made), configuration, gains, phases)
        if fails(configuration):
            one = factories.failed(one.number, factories.failure(FailureReason.CRASH), configuration=configuration)
        made.append(one.with_(source=source))
    return made


def changed(here: Configuration, there: Configuration) -> set[str]:
    names = set(here.difference(there)) - FOLLOWS
    return names - {"kv_cache_memory_bytes"} if "rollout_engine" in names else names


def best(trials: Sequence[Trial], *, headline: bool = False) -> Configuration:
    held = [t for t in trials if t.feasible and not (headline and t.source.endswith("/permitted"))]
    return max(held, key=lambda t: t.tokens_per_hour or 0.0).configuration


GAINS: Gains = {
    ("rollout_engine", "vllm"): 0.2,
    ("gradient_checkpointing", False): 0.1,
    ("host_allocator", "keep"): 0.1,
    ("attn_implementation", "eager"): 0.1,
    ("optimizer", "adamw_torch"): 0.1,
    ("micro_batch_size", 4): -0.1,
    ("micro_batch_size", 2): -0.2,
    ("micro_batch_size", 1): -0.3,
    ("precision", "bf16"): 0.2,
    ("num_generations", 4): -0.1,
}


def test_what_pays_is_put_together_within_nine_trials() -> None:
    made = study(GAINS, 9)
    assert [t.source for t in made[1:3]] == [COMPETENT, ROOMY]
    wanted = {
        "rollout_engine": "vllm",
        "attn_implementation": "eager",
        "optimizer": "adamw_torch",
        "micro_batch_size": 8,
    }
    assert wanted.items() <= dict(best(made, headline=True)).items()
    assert "tpe/headline" not in [t.source for t in made]


def test_a_move_changes_one_knob_of_the_best_so_far() -> None:
    made = study(GAINS, 12)
    moves = [t for t in made if t.source == "move/headline"]
    assert len(moves) >= 4
    for move in moves:
        assert len(changed(move.configuration, best(made[: move.number], headline=True))) == 1


def test_the_permitted_track_changes_one_more_knob_of_the_headlines_best() -> None:
    made = study(GAINS, 15)
    moves = [t for t in made if t.source == "move/permitted"]
    assert [t.number for t in moves][:3] == [3, 6, 9]
    kept: set[str] = set()
    for move in moves:
        other = changed(move.configuration, best(made[: move.number], headline=True))
        assert other <= kept | {"precision", "master_weights", "num_generations"}
        assert len(other - kept) <= 1
        if move.configuration["precision"] == "bf16":
            kept = {"precision"}
    assert kept == {"precision"}
    assert best(made)["precision"] == "bf16"
    assert best(made)["optimizer"] == "adamw_torch"


def test_what_crashes_is_left_and_the_climb_goes_on() -> None:
    made = study(GAINS, 12, fails=lambda c: c["attn_implementation"] == "eager")
    assert sum(t.configuration["attn_implementation"] == "eager" for t in made if t.source.startswith("move")) == 1
    assert best(made, headline=True)["optimizer"] == "adamw_torch"


def test_when_every_knob_has_had_its_turn_the_sampler_is_asked() -> None:
    made = study({}, 60)
    sources = [t.source for t in made if t.source.endswith("/headline")]
    first = sources.index("tpe/headline")
    assert set(sources[:first]) == {"move/headline"}
    assert set(sources[first:]) == {"tpe/headline"}
    assert first >= 4
    assert len({t.configuration.key for t in made}) == len(made)


@pytest.mark.parametrize("sampler", ["random", "grid"])
def test_a_sampler_that_learns_nothing_is_asked_at_once(sampler: str) -> None:
    assert not any(t.source.startswith("move") for t in study(GAINS, 12, sampler=sampler))


def test_knobs_of_the_limiting_phase_come_first() -> None:
    """The cache acts on generation alone: where the update limits, it comes after all that acts there."""
    gains: Gains = {("rollout_engine", "vllm"): 0.2}
    orders = {}
    for phases in (UPDATE_MOST, GENERATE_MOST):
        made = study(gains, 20, phases=phases)
        orders[phases["update"]] = [_moved(t, made) for t in made if t.source == "move/headline"]
    update, generate = orders[0.6], orders[0.3]
    assert update.index("optimizer") < update.index("kv_cache_memory_bytes")
    assert generate.index("kv_cache_memory_bytes") < generate.index("optimizer")


def test_vllm_is_compiled_only_once_generation_is_worth_it() -> None:
    """Compiling takes a minute of a short study: no opening, and early only where most of a cycle is at stake."""
    gains: Gains = {
        ("rollout_engine", "vllm"): 0.3,
        ("enforce_eager", False): 0.2,
        ("gradient_checkpointing", False): 0.2,
        ("host_allocator", "keep"): 0.2,
    }
    tried = {
        most: next(t.number for t in study(gains, 14, phases=phases) if t.configuration.get("enforce_eager") is False)
        for most, phases in (("generate", GENERATE_MOST), ("update", UPDATE_MOST))
    }
    assert 2 < tried["generate"] <= 5
    assert tried["update"] > tried["generate"] + 2
    assert best(study(gains, 14, phases=GENERATE_MOST), headline=True)["enforce_eager"] is False


def _moved(move: Trial, made: Sequence[Trial]) -> str:
    before = best(made[: move.number], headline=True)
    (name,) = changed(move.configuration, before)
    return name


def test_where_vllm_is_slower_the_second_opening_goes_back() -> None:
    made = study({("rollout_engine", "vllm"): -0.3}, 2)
    assert [t.source for t in made[1:]] == [COMPETENT, ROOMY]
    assert made[1].configuration["rollout_engine"] == "vllm"
    assert made[2].configuration["rollout_engine"] == BASELINE["rollout_engine"]
    assert changed(made[2].configuration, BASELINE) == {"gradient_checkpointing", "host_allocator"}


ROWS = Dimension("micro_batch_size", (1, 2, 4, 8, 16), ordered=True)
KIND = Dimension("attn_implementation", ("eager", "sdpa"), ordered=False)


def _climb(*seen: tuple[tuple[int, int], float | None]) -> SearchState:
    """Points with their values; what has none ran out of memory."""
    found = search_state([ROWS, KIND], [Visited(point, value, value is None) for point, value in seen])
    assert found is not None
    return found


def _next(climb: SearchState, taken: Sequence[tuple[int, int]] = ()) -> tuple[int, int] | None:
    every = [
        Configuration({"micro_batch_size": rows, "attn_implementation": kind})
        for rows in ROWS.values
        for kind in KIND.values
    ]
    grid = CandidateGrid(every, ("micro_batch_size", "attn_implementation"), ())
    assert [d.name for d in grid.dimensions] == ["attn_implementation", "micro_batch_size"]
    turned = SearchState(climb.point[::-1], climb.tried, climb.failed, climb.turns)
    had = {every[p[0] * 2 + p[1]] for p in taken}
    index = next_move(grid, grid.without(had, ()), turned, {})
    return None if index is None else (index // 2, index % 2)


def test_a_number_goes_on_the_way_that_pays_and_else_turns_round() -> None:
    start = ((2, 1), 0.0)
    assert _next(_climb(start)) == (3, 1)
    assert _next(_climb(start, ((3, 1), 0.1))) == (4, 1)
    lost = _climb(start, ((3, 1), -0.1))
    assert _next(lost) == (2, 0), "another knob first"
    assert _next(_climb(start, ((3, 1), -0.1), ((2, 0), -0.1))) == (1, 1)
    over = _climb(start, ((3, 1), -0.1), ((2, 0), -0.1), ((1, 1), None))
    assert over.turns["micro_batch_size"] == TURNS
    assert _next(over) is None


def test_a_gain_within_the_noise_does_not_move_the_base() -> None:
    assert _climb(((2, 1), 0.0), ((3, 1), PAYS / 2)).point == (2, 1)
    assert _climb(((2, 1), 0.0), ((3, 1), PAYS * 2)).point == (3, 1)


def test_what_failed_first_is_no_base_and_what_was_had_is_not_had_again() -> None:
    assert search_state([ROWS, KIND], [Visited((4, 1), None)]) is None
    climb = _climb(((4, 1), None), ((2, 1), 0.0))
    assert climb.point == (2, 1)
    assert _next(climb, taken=[(3, 1)]) == (2, 0), "of as much at stake, what saves memory goes later"


def test_a_move_without_room_is_made_with_fewer_rows_once() -> None:
    start = (((2, 1), 0.0), ((3, 1), -0.1), ((2, 0), None), ((1, 1), -0.1))
    assert _next(_climb(*start)) == (1, 0)
    assert _next(_climb(*start, ((1, 0), -0.1))) is None
    assert _climb(*start, ((1, 0), 0.1)).point == (1, 0)


def test_stakes() -> None:
    assert stake(KNOBS["optimizer"], UPDATE_MOST) == (True, 0.6)
    assert stake(KNOBS["kv_cache_memory_bytes"], UPDATE_MOST) == (False, 0.25)
    assert stake(KNOBS["host_allocator"], UPDATE_MOST) == (True, 1.0)
    assert stake(KNOBS["optimizer"], {}) == (True, 1.0)
    assert stake(KNOBS["micro_batch_size"], GENERATE_MOST, "transformers") == (True, pytest.approx(0.95))
    assert stake(KNOBS["micro_batch_size"], GENERATE_MOST, "vllm") == (False, pytest.approx(0.35))
    assert stake(KNOBS["num_generations"], GENERATE_MOST, "vllm") == (True, pytest.approx(0.95))


def test_a_pending_trial_does_not_make_a_move_twice() -> None:
    made = study(GAINS, 3)
    proposer = make_proposer(SPACE, BASELINE, RESOURCES, "tpe", seed=5)
    assert isinstance(proposer, TwoTrackProposer)
    first = proposer.propose(made, 4)
    assert first is not None
    second = proposer.propose([*made, factories.trial(4, configuration=first[0])], 5)
    assert second is not None
    assert second[0] != first[0]


@pytest.mark.parametrize("change", [{}, {"attn_implementation": "eager"}, {"host_allocator": "keep"}])
def test_of_moves_with_as_much_at_stake_one_the_kept_process_can_run_goes_first(change: dict[str, str]) -> None:
    candidates = SPACE.candidates(BASELINE, RESOURCES, same_learning=True)
    grid = CandidateGrid(candidates, SPACE.values, (BASELINE,))
    climb = search_state(grid.dimensions, [Visited(grid.point(BASELINE) or (), 0.0)])
    assert climb is not None
    last, left = BASELINE.with_(**change), grid.without({BASELINE}, ())
    index = next_move(grid, left, climb, {}, last=last)
    assert index is not None
    assert restart_between(last, candidates[index]) is Restart.NONE
    if change:
        assert index != next_move(grid, left, climb, {}, last=BASELINE)


def test_more_at_stake_goes_before_a_spared_restart() -> None:
    candidates = SPACE.candidates(BASELINE, RESOURCES, same_learning=True)
    grid = CandidateGrid(candidates, SPACE.values, (BASELINE,))
    climb = search_state(grid.dimensions, [Visited(grid.point(BASELINE) or (), 0.0)])
    assert climb is not None
    index = next_move(grid, grid.without(set(), ()), climb, GENERATE_MOST, last=BASELINE)
    assert index is not None
    assert candidates[index]["host_allocator"] == "keep", "the one knob that acts on every phase"


def test_only_a_search_trials_process_is_kept() -> None:
    first, second = factories.finished(0, configuration=BASELINE), factories.finished(1, configuration=BASELINE)
    assert last_run([first, second]) == BASELINE
    assert last_run([]) is last_run([first, second.with_(kind=TrialKind.CONFIRM)]) is None
