"""What every proposer does, whatever its sampler. Subclass and give ``build``.

The world: a landscape of legal candidates with a speed and a memory need, both invented here and
known to the suite alone.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from autotune.domain import (
    Ceiling,
    Configuration,
    CycleKind,
    CycleRecord,
    FailureReason,
    Outcome,
    Phase,
    Pool,
    Trial,
    TrialKind,
    TrialState,
)
from autotune.ports import Proposer
from tests.support import factories
from tests.support.not_none import not_none


@dataclass(frozen=True)
class Landscape:
    """Legal candidates; ``baseline`` is one of the headline's."""

    headline: tuple[Configuration, ...]
    permitted: tuple[Configuration, ...]
    baseline: Configuration
    limit: float = 1e9

    @property
    def searched(self) -> tuple[str, ...]:
        return tuple(self.baseline)

    def need(self, configuration: Configuration) -> float:
        """Memory of an update: rows times what each keeps, a quarter of it with checkpointing."""
        rows = float(configuration["micro_batch_size"])
        return rows * (1.0 if configuration["gradient_checkpointing"] else 4.0)

    def fits(self, configuration: Configuration) -> bool:
        return self.need(configuration) <= self.limit

    def speed(self, configuration: Configuration) -> float:
        """Tokens per second; largest at rows 16, without checkpointing, FlashAttention, chunks of 8."""
        rows, chunk = int(configuration["micro_batch_size"]), int(configuration["logprob_rows"])
        value = 100.0 * {1: 1.0, 2: 1.5, 4: 1.9, 8: 2.2, 16: 2.4, 32: 2.3}[rows]
        value *= 1.0 if configuration["gradient_checkpointing"] else 1.25
        value *= {"eager": 0.75, "sdpa": 1.0, "flash_attention_2": 1.1}[str(configuration["attn_implementation"])]
        value *= {1: 0.9, 2: 0.95, 4: 0.98, 8: 1.0, 16: 0.97}[chunk]
        value *= 1.6 if configuration["precision"] == "bf16" else 1.0
        return value * (1.05 if configuration["num_generations"] == 8 else 1.0)

    def best(self, candidates: Sequence[Configuration]) -> float:
        return max(self.speed(c) for c in candidates if self.fits(c))

    def run(self, configuration: Configuration, number: int) -> Trial:
        """The trial ``configuration`` would make."""
        if not self.fits(configuration):
            return factories.failed(number, factories.oom(phase="update", pool=Pool.HOST), configuration=configuration)
        return complete(number, configuration, self.speed(configuration))


def landscape(*, small: bool = False, limit: float = 1e9) -> Landscape:
    axes: dict[str, Sequence[object]] = {
        "micro_batch_size": (1, 2, 4) if small else (1, 2, 4, 8, 16, 32),
        "gradient_checkpointing": (True, False),
        "attn_implementation": ("sdpa",) if small else ("eager", "sdpa", "flash_attention_2"),
        "logprob_rows": (1, 2) if small else (1, 2, 4, 8, 16),
        "precision": ("fp32", "bf16"),
        "num_generations": (4,) if small else (4, 8),
    }
    everything = tuple(
        Configuration(dict(zip(axes, values, strict=True)))  # type: ignore[arg-type]
        for values in itertools.product(*axes.values())
    )
    headline = tuple(c for c in everything if c["precision"] == "fp32" and c["num_generations"] == 4)
    return Landscape(headline, everything, headline[0], limit)


def complete(number: int, configuration: Configuration, speed: float, **changes: object) -> Trial:
    """A feasible trial with one speed cycle of ``speed`` tokens per second."""
    cycle = CycleRecord(
        index=0,
        cycle_kind=CycleKind.RECORDED,
        seconds=100.0,
        phases={Phase.UPDATE.value: 60.0, Phase.GENERATE.value: 20.0, Phase.LOGPROB.value: 20.0},
        completion_tokens=round(100 * speed),
        prompt_tokens=0,
        rows=8,
        updates=1,
        computed_tokens=round(100 * speed),
    )
    return factories.finished(number, configuration=configuration, cycles=0).with_(cycles=(cycle,), **changes)


def ended(number: int, configuration: Configuration, reason: FailureReason, **changes: object) -> Trial:
    return factories.failed(number, factories.failure(reason), configuration=configuration).with_(**changes)


def search(proposer: Proposer, world: Landscape, trials: int, history: Sequence[Trial] = ()) -> list[Trial]:
    """``history``, or the baseline, and up to ``trials`` more; where nothing is proposed all that held is confirmed."""
    made = list(history) or [world.run(world.baseline, 0)]
    confirmed: list[Trial] = []
    for _ in range(trials):
        proposal = proposer.propose([*made, *confirmed], len(made))
        if proposal is None:
            confirmed = confirmations(made)
            proposal = proposer.propose([*made, *confirmed], len(made))
        if proposal is None:
            break
        made.append(world.run(proposal[0], len(made)).with_(source=proposal[1]))
    return made


def confirmations(made: Sequence[Trial]) -> list[Trial]:
    """A confirmation of everything that held, with numbers none has."""
    return [t.with_(number=10_000 + t.number, kind=TrialKind.CONFIRM) for t in made if t.feasible and t.tokens_per_hour]


class ProposerSuite:
    """Behaviour of ``ports.Proposer``."""

    def build(self, world: Landscape, seed: int = 0) -> Proposer:
        """A new proposer over ``world`` on a CPU, where device and host memory are one."""
        raise NotImplementedError

    @pytest.fixture
    def world(self) -> Landscape:
        return landscape()

    @pytest.fixture
    def small(self) -> Landscape:
        return landscape(small=True)

    @pytest.fixture(autouse=True)
    def untouched_generators(self) -> Iterator[None]:
        """No proposer draws from, or seeds, the generators other code shares."""
        before = random.getstate(), np.random.get_state()[1].tobytes()  # type: ignore[index]
        yield
        after = random.getstate(), np.random.get_state()[1].tobytes()  # type: ignore[index]
        assert before == after

    def test_proposes_legal_configurations_nobody_has_had(self, world: Landscape) -> None:
        made = search(self.build(world), world, 40)
        keys = [t.configuration.key for t in made]
        assert len(keys) == 41
        assert len(set(keys)) == 41
        assert set(keys) <= {c.key for c in world.permitted}

    def test_nothing_else_to_try_is_none(self, small: Landscape) -> None:
        only = Landscape((small.baseline,), (small.baseline,), small.baseline)
        assert self.build(only).propose([only.run(only.baseline, 0)], 1) is None

    def test_an_empty_history_has_a_first_proposal(self, world: Landscape) -> None:
        proposal = not_none(self.build(world).propose([], 0))
        assert proposal[0] in world.permitted

    @pytest.mark.parametrize("kept", [1, 4, 9, 15])
    def test_a_resumed_search_is_the_uninterrupted_one(self, kept: int) -> None:
        world = landscape(limit=16)
        whole = search(self.build(world, seed=3), world, 16)
        resumed = search(self.build(world, seed=3), world, 17 - kept, history=whole[:kept])
        assert [t.configuration for t in resumed] == [t.configuration for t in whole]
        assert [t.source for t in resumed] == [t.source for t in whole]

    def test_the_order_of_the_history_list_does_not_matter(self) -> None:
        world = landscape(limit=16)
        proposer = self.build(world)
        made = search(proposer, world, 14)
        shuffled = random.Random(5).sample(made, len(made))
        assert proposer.propose(shuffled, 15) == proposer.propose(made, 15) == proposer.propose(tuple(made), 15)

    def test_other_numerics_and_learning_wait_until_the_headline_is_confirmed(self, world: Landscape) -> None:
        proposer = self.build(world)
        made = [world.run(world.baseline, 0)]
        while len(made) < 13 and (proposal := proposer.propose(made, len(made))) is not None:
            assert proposal[0] in world.headline
            assert proposal[1].endswith("/headline")
            made.append(world.run(proposal[0], len(made)).with_(source=proposal[1]))
        after = [proposer.propose([*made, *confirmations(made)], number) for number in range(100, 112)]
        assert {p[1].rpartition("/")[2] for p in after if p is not None} >= {"permitted"}

    def test_what_needs_at_least_as_much_as_an_oom_is_never_proposed(self) -> None:
        world = landscape(limit=2)
        made = search(self.build(world), world, 60)
        failures = [t for t in made if not t.feasible]
        assert failures, "the landscape should make the search fail at least once"
        for failed in failures:
            for later in made[failed.number + 1 :]:
                assert not _asks_for_as_much(later.configuration, failed.configuration)

    def test_says_which_failure_rules_a_configuration_out(self, world: Landscape) -> None:
        proposer = self.build(world)
        failed = world.baseline.with_(micro_batch_size=16)
        history = [world.run(world.baseline, 0), factories.failed(4, configuration=failed)]
        sentence = not_none(proposer.ruled_out(history, failed.with_(micro_batch_size=32)))
        assert sentence.startswith("trial 4 (micro_batch_size 16) ran out of host memory in update")
        assert proposer.ruled_out(history, failed) is not None
        assert proposer.ruled_out(history, failed.with_(micro_batch_size=8)) is None
        assert proposer.count_ruled_out(history) >= 1
        assert proposer.count_ruled_out([]) == 0

    def test_an_oom_of_a_used_worker_rules_out_nothing_else(self, world: Landscape) -> None:
        failed = world.baseline.with_(micro_batch_size=16)
        history = [factories.failed(4, factories.oom(fresh=False), configuration=failed)]
        assert self.build(world).ruled_out(history, failed.with_(micro_batch_size=32)) is None

    def test_what_a_confirmation_measures_teaches_nothing(self, world: Landscape) -> None:
        proposer = self.build(world)
        made = search(proposer, world, 14)
        again = confirmations(made)
        faster = [complete(t.number, t.configuration, 1e6, kind=t.kind) for t in again]
        assert proposer.propose([*made, *again], 30) == proposer.propose([*made, *faster], 30)

    def test_trials_without_a_verdict_teach_nothing(self, world: Landscape) -> None:
        proposer = self.build(world)
        made = search(proposer, world, 14)
        made += confirmations(made)
        proposal = not_none(proposer.propose(made, 15))
        lost = ended(15, proposal[0], FailureReason.INFRA)
        assert proposer.propose([*made, lost], 15) == proposal

    def test_survives_a_history_it_would_not_have_made(self, world: Landscape) -> None:
        strange = Configuration({"micro_batch_size": 3, "unheard_of": "x"})
        history = [
            complete(0, strange, 5.0),
            factories.failed(1, factories.oom(phase=None, pool=None), configuration=strange),
            complete(2, world.headline[3], 0.0),
            factories.finished(3, configuration=world.headline[4], cycles=0),
            complete(4, world.headline[5], 9.0, state=TrialState.PRUNED, outcome=Outcome()),
        ]
        proposal = not_none(self.build(world).propose([*history, *confirmations(history)], 5))
        assert proposal[0] in world.permitted

    def test_a_bound_makes_nothing_the_best(self, world: Landscape) -> None:
        """However high bounds are told, what is proposed is what would be if they were lower."""
        proposer = self.build(world)
        made = search(proposer, world, 12)
        slow = {t.number for t in sorted(made[1:], key=lambda t: world.speed(t.configuration))[:3]}

        def bounded(at_most: float) -> list[Trial]:
            return [stopped(t.number, t.configuration, at_most) if t.number in slow else t for t in made]

        assert proposer.propose(bounded(1e9), 13) == proposer.propose(bounded(1e12), 13)


class ExhaustiveSuite(ProposerSuite):
    """The same of a proposer that ends when everything was tried, not before."""

    def test_takes_every_candidate_once_and_then_ends(self, small: Landscape) -> None:
        made = search(self.build(small), small, 1000)
        assert {t.configuration for t in made} == set(small.permitted)
        assert len(made) == len(small.permitted)
        assert self.build(small).propose(made, len(made)) is None

    @pytest.mark.parametrize("track", ["headline", "permitted"])
    def test_a_used_up_track_gives_its_turns_to_the_other(self, small: Landscape, track: str) -> None:
        used = [c for c in small.permitted if (c in small.headline) == (track == "headline")]
        made = [complete(i, c, small.speed(c)) for i, c in enumerate(used)]
        proposals = [self.build(small).propose(made, number) for number in range(100, 106)]
        assert all(p is not None and p[0] not in used for p in proposals)

    def test_memory_failures_never_cost_a_configuration_that_fits(self) -> None:
        world = landscape(small=True, limit=4)
        made = search(self.build(world), world, 1000)
        assert {c for c in world.permitted if world.fits(c)} <= {t.configuration for t in made}
        assert sum(not t.feasible for t in made) < sum(not world.fits(c) for c in world.permitted)

    @pytest.mark.parametrize("state", [TrialState.WAITING, TrialState.RUNNING])
    def test_an_unfinished_trial_counts_as_taken(self, small: Landscape, state: TrialState) -> None:
        made = [complete(i, c, small.speed(c)) for i, c in enumerate(small.permitted[:-1])]
        pending = factories.trial(len(made), state=state, configuration=small.permitted[-1])
        assert self.build(small).propose(made, len(made)) == (small.permitted[-1], _any_source(self, small, made))
        assert self.build(small).propose([*made, pending], len(made) + 1) is None

    @pytest.mark.parametrize("reason", [FailureReason.CANCELLED, FailureReason.INFRA])
    def test_a_trial_without_a_verdict_may_be_proposed_again(self, small: Landscape, reason: FailureReason) -> None:
        made = [complete(i, c, small.speed(c)) for i, c in enumerate(small.permitted[:-1])]
        made.append(ended(len(made), small.permitted[-1], reason))
        proposal = not_none(self.build(small).propose(made, len(made)))
        assert proposal[0] == small.permitted[-1]

    @pytest.mark.parametrize("reason", [r for r in FailureReason if r.blames_configuration])
    def test_any_other_failure_is_not_repeated(self, small: Landscape, reason: FailureReason) -> None:
        made = [complete(i, c, small.speed(c)) for i, c in enumerate(small.permitted[:-1])]
        made.append(ended(len(made), small.permitted[-1], reason))
        assert self.build(small).propose(made, len(made)) is None

    def test_a_stopped_trial_is_not_proposed_again(self, small: Landscape) -> None:
        made = [complete(i, c, small.speed(c)) for i, c in enumerate(small.permitted[:-1])]
        made.append(stopped(len(made), small.permitted[-1], 1.0))
        assert self.build(small).propose(made, len(made)) is None


def stopped(number: int, configuration: Configuration, at_most: float) -> Trial:
    """A trial that was ended early: it can reach ``at_most`` tokens/hour."""
    outcome = Outcome(ceiling=Ceiling(at_most, 2 * at_most, rival=0, cycles=3))
    return complete(number, configuration, at_most / 3600.0, state=TrialState.PRUNED, outcome=outcome)


def _asks_for_as_much(later: Configuration, failed: Configuration) -> bool:
    """At least as many rows, no more saving, and otherwise not cheaper in anything an update holds."""
    order = ("flash_attention_2", "sdpa", "eager")
    return (
        int(later["micro_batch_size"]) >= int(failed["micro_batch_size"])
        and later["gradient_checkpointing"] <= failed["gradient_checkpointing"]  # type: ignore[operator]
        and later["precision"] == failed["precision"]
        and order.index(str(later["attn_implementation"])) >= order.index(str(failed["attn_implementation"]))
    )


def _any_source(suite: ProposerSuite, world: Landscape, made: Sequence[Trial]) -> str:
    proposal = not_none(suite.build(world).propose(made, len(made)))
    return proposal[1]
