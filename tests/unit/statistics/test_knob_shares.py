"""Each changed knob's share: on simulated studies of known truth, on recorded tables, and where nothing can be said."""

from __future__ import annotations

import gzip
import json
import math
import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.domain import Configuration, Trial, TrialKind
from autotune.domain.differences import chosen_differences
from autotune.statistics.evidence import gain
from autotune.statistics.knob_shares import MOST_TRIALS, KnobShares, Share, knob_shares
from search_spaces.configuration import KnobValue
from search_spaces.knobs import KNOBS
from tests.support import factories as f
from tests.support.not_none import not_none

TABLES = Path(__file__).resolve().parents[3] / "benchmarks" / "tables"
SECONDS = {"generate": 2.5, "logprob": 0.8, "update": 2.5, "sync": 0.3, "idle": 0.05}
VALUES: dict[str, tuple[KnobValue, ...]] = {
    "attn_implementation": ("sdpa", "eager"),
    "host_allocator": ("default", "keep"),
    "kv_cache_memory_bytes": (64, 256),
    "enforce_eager": (True, False),
    "rollout_engine": ("transformers", "vllm"),
    "logprob_token_chunk": (4096, 64),
    "optimizer": ("adamw_torch_fused", "adafactor"),
    "gradient_checkpointing": (True, False),
    "micro_batch_size": (1, 2, 4, 8),
}
"""The baseline's first."""
BASE = f.configuration(**{name: values[0] for name, values in VALUES.items()})
Changes = Mapping[str, KnobValue]


@dataclass
class World:
    """A machine whose every effect is known; effects and noises are drawn when they are first met.

    Standard deviations of logarithms; ``leak`` is what a knob does to a phase where the catalogue denies it.
    """

    seed: int
    effect: float = 0.25
    pair: float = 0.08
    leak: float = 0.0
    process: float = 0.06
    cycle: float = 0.06
    drift: float = 0.03
    common: bool = False
    """Noise is the same in all phases; else each has its own."""
    engine: float = 1.0
    """Times as fast the other engine generates, at least."""
    null: tuple[str, ...] = ()
    drawn: dict[object, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)

    def known(self, key: object, spread: float) -> float:
        if key not in self.drawn:
            self.drawn[key] = self.chance.gauss(0.0, 1.4 * spread)
        return self.drawn[key]

    def phases(self, changes: Changes) -> dict[str, float]:
        live = sorted((name, value) for name, value in changes.items() if name not in self.null)
        found = {}
        for phase, seconds in SECONDS.items():
            acting = [one for one in live if KNOBS[one[0]].acts_on(phase)]
            gain = sum(self.known((*one, phase), self.effect) for one in acting)
            gain += sum(self.known((one, phase), self.leak) for one in live if one not in acting)
            gain += sum(self.known((*both, phase), self.pair) for both in combinations(acting, 2))
            gain += math.log(self.engine) * (phase == "generate" and "rollout_engine" in dict(acting))
            found[phase] = seconds * math.exp(-gain)
        return found

    def truth(self, changes: Changes) -> dict[str, float]:
        """Shapley's definition, over all subsets."""

        def speed(names: tuple[str, ...]) -> float:
            return -math.log(sum(self.phases({n: changes[n] for n in names}).values()))

        found, most = {}, len(changes)
        for name in changes:
            others = [n for n in changes if n != name]
            sets = [(size, group) for size in range(most) for group in combinations(others, size)]
            found[name] = sum((speed((*g, name)) - speed(g)) / (most * math.comb(most - 1, k)) for k, g in sets)
        return found

    def trial(self, number: int, changes: Changes, moment: float | None = None, **more: object) -> Trial:
        whole = self.phases(changes)
        apart = 1.0 if self.common else sum(whole.values()) / math.sqrt(sum(s**2 for s in whole.values()))
        now = self.chance.gauss(0.0, self.drift) if moment is None else moment

        def noise(spread: float) -> dict[str, float]:
            one = self.chance.gauss(0.0, spread)
            return {p: one if self.common else self.chance.gauss(0.0, apart * spread) for p in SECONDS}

        own, cycles = noise(self.process), []
        for index in range(3):
            more_noise = noise(self.cycle)
            took = {p: s * math.exp(now + own[p] + more_noise[p]) for p, s in whole.items()}
            cycles.append(f.cycle(index, seconds=sum(took.values()), phases=took))
        made = f.finished(number, configuration=BASE.with_(**changes))
        return made.with_(kind=TrialKind.SEARCH, cycles=tuple(cycles)).with_(**more)

    def study(self, trials: int = 10, jumps: float = 0.3) -> tuple[tuple[Trial, ...], dict[str, KnobValue]]:
        """A coordinate descent that sometimes changes several knobs at once, then a round; and its answer."""
        made, best, seen = [self.trial(0, {}, kind=TrialKind.BASELINE)], dict[str, KnobValue](), {frozenset[object]()}
        highest = made[0].merit or 0.0
        while len(made) < trials:
            several = self.chance.choice((2, 3, 4)) if self.chance.random() < jumps else 1
            tried = dict(best)
            for name in self.chance.sample(sorted(VALUES), several):
                value = self.chance.choice(VALUES[name][1:])
                if tried.pop(name, None) != value:
                    tried[name] = value
            if frozenset(tried.items()) in seen:
                continue
            seen.add(frozenset(tried.items()))
            made.append(self.trial(len(made), tried))
            if (made[-1].merit or 0.0) > highest:
                best, highest = tried, made[-1].merit or 0.0
        moment = self.chance.gauss(0.0, self.drift)
        for changes in ({}, best):
            made.append(self.trial(len(made), changes, moment, kind=TrialKind.CONFIRM, pair=0))
        return tuple(made), best


def found_in(trials: tuple[Trial, ...], changes: Changes) -> KnobShares:
    return not_none(knob_shares(trials, BASE, BASE.with_(**changes)))


def ends(share: Share) -> tuple[float, float]:
    return math.log1p(share.low), math.log1p(share.high)


WORLDS = {
    "plain": World(0),
    "noise common to all phases": World(0, common=True),
    "quiet": World(0, process=0.02, cycle=0.03, drift=0.01),
    "noisy": World(0, process=0.1, cycle=0.1),
    "large effects": World(0, effect=0.5),
    "an engine ten times as fast": World(0, engine=10.0),
    "pairs twice as large": World(0, pair=0.16),
    "knobs that act where the catalogue denies it": World(0, leak=0.06),
}


@pytest.mark.parametrize("name", WORLDS)
def test_intervals_hold_the_truth_of_simulated_studies(name: str) -> None:
    """200 of them, of which half change several knobs at once more often than not."""
    held, joint, together = [], 0, []
    for seed in range(200):
        world = replace(WORLDS[name], seed=seed, drawn={})
        made, best = world.study(*((10, 0.3) if seed % 2 else (5, 0.8)))
        if not best:
            continue
        found, truth = found_in(made, best), world.truth(best)
        for share in found.shares:
            low, high = ends(share)
            if low < high:
                held.append(low <= sum(truth[knob] for knob in share.knobs) <= high)
                joint += len(share.knobs) > 1
        low, high = ends(found.together)
        together.append(low <= sum(truth.values()) <= high)
    assert len(held) > 300
    assert joint > len(held) / 20
    assert sum(held) / len(held) >= 0.9
    assert sum(together) / len(together) >= 0.9


def test_a_knob_that_does_nothing_is_seldom_proven() -> None:
    null = ("host_allocator", "enforce_eager", "optimizer", "attn_implementation", "micro_batch_size")
    proven: list[bool] = []
    real: list[bool] = []
    for seed in range(200):
        made, best = World(seed, null=null).study()
        for share in found_in(made, best).shares if best else ():
            (proven if set(share.knobs) <= set(null) else real).append(share.proven)
    assert len(proven) > 150
    assert sum(proven) / len(proven) <= 0.05
    assert sum(real) / len(real) > 0.2, "or nothing would ever be proven"


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), trials=st.integers(2, 14), jumps=st.floats(0.1, 1.0))
def test_shares_add_up_in_any_order_of_the_trials(seed: int, trials: int, jumps: float) -> None:
    world = World(seed)
    made, best = world.study(trials, jumps)
    if not best:
        assert knob_shares(made, BASE, BASE) is None
        return
    found = found_in(made, best)
    assert sorted(knob for share in found.shares for knob in share.knobs) == sorted(best)
    whole = not_none(gain(made, BASE.with_(**best), BASE))
    assert (found.together.value, found.together.low, found.together.high) == (whole.value, whole.low, whole.high)
    parts = sum(math.log1p(s.value) for s in found.shares) + math.log1p(found.elsewhere)
    assert parts == pytest.approx(math.log1p(whole.value), abs=1e-9)
    for share in (*found.shares, found.together):
        assert -1.0 < share.low <= share.value <= share.high
    sizes = [abs(math.log1p(share.value)) for share in found.shares]
    assert sizes == sorted(sizes, reverse=True)
    mixed = found_in(tuple(world.chance.sample(made, len(made))), best)
    assert {s.knobs: pytest.approx(s.value, abs=1e-9) for s in mixed.shares} == {s.knobs: s.value for s in found.shares}


def test_many_trials_find_the_truth() -> None:
    world = World(3, process=0.0, cycle=0.001, drift=0.0)
    goal: dict[str, KnobValue] = {"optimizer": "adafactor", "rollout_engine": "vllm", "micro_batch_size": 4}
    every = [dict(c) for size in range(4) for c in combinations(goal.items(), size)] * 8
    found = found_in(tuple(world.trial(n, changes) for n, changes in enumerate(every)), goal)
    truth = world.truth(goal)
    assert {s.knobs[0]: math.log1p(s.value) for s in found.shares} == pytest.approx(truth, abs=0.02)


def test_changes_never_tried_apart_have_one_share_where_they_act_on_one_phase() -> None:
    world = World(1)
    update: dict[str, KnobValue] = {"optimizer": "adafactor", "gradient_checkpointing": False}
    both = (world.trial(0, {}), world.trial(1, update))
    found = found_in(both, update)
    (share,) = found.shares
    assert share.knobs == ("gradient_checkpointing", "optimizer")
    assert (1.0 + share.value) * (1.0 + found.elsewhere) == pytest.approx(1.0 + found.together.value)
    apart = (*both, world.trial(2, {"optimizer": "adafactor"}))
    assert [len(s.knobs) for s in found_in(apart, update).shares] == [1, 1]
    elsewhere: dict[str, KnobValue] = {"optimizer": "adafactor", "kv_cache_memory_bytes": 256}
    told = found_in((world.trial(0, {}), world.trial(1, elsewhere)), elsewhere)
    assert [len(s.knobs) for s in told.shares] == [1, 1], "one acts on the update alone, the other on generation alone"


def test_a_knob_is_credited_with_the_phases_it_acts_on_alone() -> None:
    def took(number: int, update: float, **changes: KnobValue) -> Trial:
        phases = {"generate": 3.0, "update": update}
        cycle = f.cycle(seconds=sum(phases.values()), phases=phases)
        return f.finished(number, configuration=BASE.with_(**changes)).with_(cycles=(cycle,) * 3)

    for disturbed in (2.0, 4.0, 8.0):
        trials = (took(0, disturbed), took(1, 2.0, kv_cache_memory_bytes=256))
        found = found_in(trials, {"kv_cache_memory_bytes": 256})
        assert found.shares[0].value == pytest.approx(0.0, abs=1e-9)
        assert not found.shares[0].proven
        assert found.elsewhere == pytest.approx((3.0 + disturbed) / 5.0 - 1.0), "the rest is no knob's"
    silent = found_in((took(0, 2.0), took(1, 2.0, logprob_rows=8)), {"logprob_rows": 8}).shares[0]
    assert (silent.value, silent.low, silent.high) == (0.0, 0.0, 0.0), "these cycles have no phase that it acts on"


def test_next_to_each_other_tells_more_than_at_different_times() -> None:
    world, changes = World(5), {"optimizer": "adafactor"}
    paired = tuple(world.trial(n, changes if n % 2 else {}, pair=0) for n in range(2))
    alone = tuple(t.with_(pair=None) for t in paired)
    wide, narrow = (ends(found_in(trials, changes).shares[0]) for trials in (alone, paired))
    assert narrow[1] - narrow[0] < wide[1] - wide[0]


def test_the_first_trial_counts_only_where_its_configuration_did_not_run_again() -> None:
    world, changes = World(6), {"optimizer": "adafactor"}
    rest = tuple(world.trial(n, c, kind=TrialKind.CONFIRM, pair=0) for n, c in enumerate((changes, {}), start=1))
    slow = tuple(f.cycle(i, seconds=60.0) for i in range(3))
    first = world.trial(0, {}).with_(kind=TrialKind.BASELINE, cycles=slow)
    both = found_in((first, *rest), changes), found_in(rest, changes)  # its cycles still tell of the noise of cycles
    assert both[0].trials == both[1].trials
    assert [share.value for share in both[0].shares] == [share.value for share in both[1].shares]
    assert found_in((first, rest[0]), changes).trials == 2


def test_where_the_baseline_failed_shares_are_over_what_gains_are_stated_over() -> None:
    world = World(7)
    changes: dict[str, KnobValue] = {"micro_batch_size": 4, "optimizer": "adafactor"}
    trials = (f.failed(0, configuration=BASE), world.trial(1, {"micro_batch_size": 4}), world.trial(2, changes))
    assert found_in(trials, changes).changes == {"optimizer": ("adamw_torch_fused", "adafactor")}


def test_there_are_no_shares_of_what_was_not_measured_or_not_changed() -> None:
    world, other = World(8), BASE.with_(optimizer="adafactor")
    trials = (world.trial(0, {}), f.stopped(1, configuration=other), f.failed(2, configuration=other))
    assert knob_shares(trials, BASE, other) is None
    assert knob_shares(trials, BASE, BASE) is None
    assert knob_shares((), BASE, other) is None


def test_steps_of_an_equal_share_of_an_update_are_one_value() -> None:
    whole = BASE.with_(micro_batch_size=2, gradient_accumulation_steps=4, steps_per_generation=4)
    half = whole.with_(steps_per_generation=2)
    four = half.with_(micro_batch_size=4, gradient_accumulation_steps=2, steps_per_generation=1)
    trials = tuple(f.finished(n, configuration=c, cycle_seconds=10.0 - n) for n, c in enumerate((whole, half, four)))
    found = not_none(knob_shares(trials, whole, four))
    assert sorted(s.knobs for s in found.shares) == [("micro_batch_size",), ("steps_per_generation",)]


def test_of_thousands_of_trials_the_nearest_are_looked_at() -> None:
    goal = {"optimizer": "adafactor"}
    world, first = World(9), f.finished(0)
    near = (world.trial(0, {}), world.trial(1, goal))
    far = [
        first.with_(number=n, configuration=BASE.with_(logprob_token_chunk=n, precision="bf16")) for n in range(2, 3000)
    ]
    found = found_in((*near, *far), goal)
    assert found.trials == MOST_TRIALS


def recorded(path: Path) -> dict[Configuration, Trial]:
    with gzip.open(path, "rt") as stream:
        rows = [row for line in stream if (row := json.loads(line))["row"] == "trial" and row["state"] == "COMPLETE"]
    found: dict[Configuration, Trial] = {}
    for row in rows:
        timed = [c for c in row["cycles"] if c["cycle_kind"] == "recorded" and c["accepted"]]
        names = ("seconds", "phases", "completion_tokens")
        cycles = tuple(f.cycle(i, **{n: c[n] for n in names}) for i, c in enumerate(timed))
        trial = f.finished(len(found), configuration=Configuration(row["configuration"])).with_(cycles=cycles)
        if trial.merit:
            found.setdefault(trial.configuration, trial)
    return found


def squares(every: list[Configuration]) -> list[tuple[Configuration, Configuration, Configuration, Configuration, str]]:
    """Four configurations that differ in two values of two knobs, and the knob in which the first two differ."""
    steps: dict[Configuration, list[tuple[str, object, Configuration]]] = {}
    for a, b in combinations(every, 2):
        if sum(a.get(n) != b.get(n) for n in a) <= 4 and len(apart := chosen_differences(a, b)) == 1:
            ((knob, (here, there)),) = apart.items()
            steps.setdefault(a, []).append((knob, there, b))
            steps.setdefault(b, []).append((knob, here, a))
    found = []
    for a, around in steps.items():
        for (x, at_x, b), (y, at_y, c) in combinations(around, 2):
            both = {d for knob, value, d in steps[b] if x != y and (knob, value) == (y, at_y)}
            found += [(a, b, c, d, x) for knob, value, d in steps[c] if (knob, value) == (x, at_x) and d in both]
    return found


def test_on_recorded_machines_shares_are_those_of_all_four_corners() -> None:
    """Of two knobs three corners are in the study, with six rows drawn from the table; the fourth makes the truth."""
    chance, held = random.Random(0), []
    for path in sorted(TABLES.glob("search-cpu-*.jsonl.gz")):
        by = recorded(path)
        every = sorted(by, key=lambda c: c.key)
        for a, b, c, d, knob in chance.sample(squares(every), 30):
            trials = dict.fromkeys((a, b, d, *chance.sample(every, 6)))
            trials.pop(c, None)
            found = not_none(knob_shares(tuple(by[one].with_(number=n) for n, one in enumerate(trials)), a, d))
            share = next(s for s in found.shares if knob in s.knobs)
            low, high = ends(share)
            log = {one: math.log(by[one].merit or 1.0) for one in (a, b, c, d)}
            truth = 0.5 * (log[b] - log[a] + log[d] - log[c])
            unknown = 1.96 * 0.5 * 0.075  # of the corner that was not in the study, as processes and cycles differ
            half, middle = math.hypot((high - low) / 2, unknown), (high + low) / 2
            held.append(len(share.knobs) > 1 or abs(truth - middle) <= half)
    assert len(held) == 270
    assert sum(held) / len(held) >= 0.9
