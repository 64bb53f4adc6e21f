"""One study on a simulated clock, from the baseline to the answer, and what its answer is worth by the truth.

The loop, the schedule, the proposer, the store (in memory) and the interval are those of ``autotune start``.
"""

from __future__ import annotations

import itertools
import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from autotune.domain import (
    Budget,
    Configuration,
    Event,
    FailureReason,
    Recommendation,
    Resources,
    RewardSpec,
    Study,
    StudySpec,
    Trial,
    TrialKind,
    TrialState,
    Workload,
)
from autotune.ports import Proposer
from autotune.proposals.forecasts import PriorData, Task
from autotune.recommendation.recommend import recommend
from autotune.specification.request import DEFAULT_SAMPLER
from autotune.statistics.evidence import same_learning
from autotune.store import open_store
from autotune.study.loop import StudyLoop, StudyResult
from benchmarks.decisions import recorded
from benchmarks.decisions.machine import H100, Costs, Machine
from benchmarks.decisions.runner import LaneClock, SimulatedClock, SimulatedCrew, SimulatedRunner
from search_spaces.configuration import ModelFacts
from search_spaces.knobs import KNOBS
from search_spaces.space import SearchSpace
from trainer.child.contract import CurrentPhase

CLOSE = 0.05
"""What a configuration may lack of the best one's tokens/hour."""
DRAWN, CLIMBS = 8_000, 3
"""Configurations drawn to find the best one, and how many of them are climbed from."""
STEPS = "steps_per_generation"


@dataclass(frozen=True, eq=False)
class Place:
    """A machine with a workload and a space: all a study needs but its budget and seed."""

    name: str
    machine: Machine
    spec: StudySpec
    lengths: tuple[int, ...]
    prompt_tokens: int
    prior_data: PriorData

    @cached_property
    def space(self) -> SearchSpace:
        return SearchSpace.from_json(self.spec.space)

    @cached_property
    def task(self) -> Task:
        return Task.of(self.spec)

    @cached_property
    def candidates(self) -> tuple[Configuration, ...]:
        """Legal configurations that learn as the baseline does; of a large space as many as are drawn from it."""
        return self.space.candidates(self.spec.baseline, self.spec.resources, same_learning=True)

    def about(self, base: Configuration, free: Iterable[str]) -> tuple[Configuration, ...]:
        """Legal configurations that learn as the baseline does and differ from ``base`` in ``free`` knobs alone.

        With a knob go those that only it brings into play, and the steps of a rollout, counted in micro-batches.
        """
        names = frozenset(free)
        return self._listed(base, names | self._followers(names) | {STEPS})

    def _followers(self, names: frozenset[str]) -> set[str]:
        return {name for name in self.space.values if name in KNOBS and names & KNOBS[name].needs.keys()}

    @lru_cache(maxsize=50_000)  # noqa: B019 - places live as long as the program
    def _listed(self, base: Configuration, free: frozenset[str]) -> tuple[Configuration, ...]:
        narrow = self.space.about(base, free)
        return narrow.candidates(self.spec.baseline, self.spec.resources, same_learning=True)

    def seconds(self, configuration: Configuration) -> float:
        """Of a true cycle."""
        return sum(self.machine.phases(configuration).values())

    def faster(self, configuration: Configuration) -> float:
        """True logarithm of tokens/hour over the baseline's."""
        return math.log(self._baseline_s / self.seconds(configuration))

    @cached_property
    def _baseline_s(self) -> float:
        return self.seconds(self.spec.baseline)

    def gain(self, configuration: Configuration) -> float:
        """``faster``, times the share of processes whose memory suffices."""
        fits = self.machine.fits(configuration)
        return math.log(fits) + self.faster(configuration) if fits else -math.inf

    @cached_property
    def best_configuration(self) -> Configuration:
        """The fastest legal one that learns as the baseline does, as far as drawing and climbing finds it."""
        drawn = sorted(self.candidates[:: max(1, len(self.candidates) // DRAWN)], key=self.gain, reverse=True)
        return max((self._climbed(start) for start in drawn[:CLIMBS]), key=self.gain)

    def _climbed(self, base: Configuration) -> Configuration:
        """The best that changes of one knob, and then of two that bring no others into play, lead to."""
        single = [(name,) for name in self.space.values]
        plain = [name for name in self.space.values if not self._followers(frozenset((name,)))]
        for free in (*single, *itertools.combinations(plain, 2), *single):
            base = max((base, *self.about(base, free)), key=self.gain)
        return base

    @cached_property
    def best(self) -> float:
        """``gain`` of the best configuration."""
        return self.gain(self.best_configuration)


def h100(costs: Costs = Costs.PLAIN) -> Place:
    """The recorded study's machine, workload and baseline, 1.5B parameters and 128 rows per update, in the space that
    users of one GPU get."""
    with recorded.STUDY.open(encoding="utf-8") as file:
        head = json.loads(file.readline())
    gpu = head["hardware"]["gpus"][0]
    resources = Resources(
        gpus=1,
        cpu_cores=head["hardware"]["cores"],
        device="cuda",
        device_memory=gpu["memory"],
        host_memory=head["hardware"]["memory"],
        compute_capability=tuple(gpu["compute_capability"]),
        framework="trl",
        rows_per_update=head["rows_per_update"],
        num_generations=head["baseline"]["num_generations"],
        max_prompt_length=head["max_prompt_tokens"],
        max_completion_length=head["max_completion_tokens"],
        model=ModelFacts(**head["model"]),
        software=head["software"],
    )
    work = Workload(
        model="recorded", prompts="recorded", prompts_sha256="0" * 64,
        rewards=(RewardSpec(kind="reasoning_gym", name="recorded"),), rows_per_update=head["rows_per_update"],
        max_prompt_length=head["max_prompt_tokens"], max_completion_length=head["max_completion_tokens"],
    )  # fmt: skip
    space, baseline = SearchSpace.load("single-gpu").as_json(), Configuration(head["baseline"])
    spec = StudySpec("recorded", work, "trl", space, baseline, resources, sampler=DEFAULT_SAMPLER, python="none")
    lengths = tuple(head["recorded_lengths_tokens"])
    return Place(str(costs), H100(costs), spec, lengths, 20_000, PriorData(recorded.PROBE))


@dataclass
class Watching:
    """``ports.Observer`` and ``ports.StopToken``: sees nothing and stops nothing."""

    level: int = 0

    def event(self, event: Event) -> None: ...

    def trial(self, trial: Trial) -> None: ...

    def phase(self, trial: Trial, phase: CurrentPhase) -> None: ...

    def tick(self, spent_wall_s: float, predicted_end_s: float | None) -> None: ...


@dataclass(frozen=True)
class Verdict:
    """One study, judged by what is true. Seconds are of the budget."""

    budget_s: float
    seed: int
    search_trials: int
    """Search trials that ended with a verdict of their own: measured, ended early, or failed by their own fault."""
    proven: bool
    """The answer's gain was confirmed by a round, its interval excludes no gain, and it is faster."""
    falsely: bool
    """The answer claims a gain, confirmed or not, and is not faster."""
    reached: float
    """True tokens/hour of the answer over the best configuration's."""
    gain: float
    """True tokens/hour of the answer over the baseline's, minus 1."""
    covered: bool | None
    """The interval holds the true gain; ``None`` without one."""
    width: float | None
    """Half of the interval, in logarithms."""
    near_s: float
    """Until the end of the first search trial of a configuration within 5 % of the best; infinite where none was."""
    close_s: float
    """Until the gain of a configuration within 5 % of the best was proven; infinite where none was."""
    ooms: int
    """Search trials that ran out of memory."""
    oom_share: float
    """Of the time used, lost to trials that ran out of memory."""
    unused_s: float
    rounds: int
    started: int
    """Processes started."""
    ended_by: str
    found: tuple[str, ...] = field(default=(), compare=False)
    """A line for each trial."""


Arm = Callable[[Place, int], Proposer]
"""Place, seed -> who proposes."""


def run(
    place: Place, arm: Arm, budget_s: float, seed: int, at_once: int = 1, slower: float = 0.0, nodes: int = 1
) -> Verdict:
    """A whole study.

    Args:
        at_once: trials side by side, each on a GPU of its own.
        nodes: that the GPUs are on, equally many on each.
        slower: share by which every other trial that runs lengthens a cycle.
    """
    clock, store, watching = SimulatedClock(), open_store(":memory:"), Watching()
    study = store.create_study(place.spec, clock.now())
    runners = runners_of(place, clock, seed, at_once)
    sides = [(runner.clock, runner) for runner in runners if isinstance(runner.clock, LaneClock)]
    names = [f"node {1 + nodes * number // at_once}" for number in range(at_once)] if nodes > 1 else []
    crew = SimulatedCrew(sides, clock, watching, names) if sides else None
    for runner in runners if crew is not None else ():
        runner.pace = lambda: 1.0 + slower * (crew.running - 1)
    loop = StudyLoop(
        study=study, budget=Budget(wall_s=budget_s, at_once=at_once), store=store, proposer=arm(place, seed),
        runner=runners[0] if crew is None else None, crew=crew, clock=clock,
        observer=watching, stop=watching, directory_of=lambda trial: Path(str(trial.number)),
    )  # fmt: skip
    try:
        return judged(place, loop.run(), budget_s, seed, clock.monotonic(), runners)
    finally:
        store.close()


def runners_of(place: Place, clock: SimulatedClock, seed: int, at_once: int) -> list[SimulatedRunner]:
    """One for each GPU; what compilers keep is kept for all."""
    engines: Counter[str] = Counter()
    return [
        SimulatedRunner(
            place.machine, LaneClock(clock) if at_once > 1 else clock, seed, place.lengths, place.prompt_tokens,
            place.spec.workload.max_completion_length, engines=engines,
        )
        for _ in range(at_once)
    ]  # fmt: skip


def judged(
    place: Place, result: StudyResult, budget_s: float, seed: int, used_s: float, runners: Sequence[SimulatedRunner]
) -> Verdict:
    """What the study's answer is worth."""
    answer, trials = _answer(result.recommendation), result.trials
    gain = place.gain(answer.configuration) if answer is not None else 0.0
    faster = place.faster(answer.configuration) if answer is not None else 0.0
    interval = answer.gain if answer is not None else None
    claimed = interval is not None and interval.low > 0
    lost = sum(runner.lost_s for runner in runners) / (used_s * len(runners))
    started = sum(runner.restarts["started"] for runner in runners)
    return Verdict(
        budget_s=budget_s, seed=seed,
        search_trials=sum(t.kind is TrialKind.SEARCH and _decided(t) for t in trials),
        proven=claimed and answer.confirmed and faster > 0, falsely=claimed and faster <= 0,
        reached=math.exp(gain - place.best), gain=math.expm1(gain),
        covered=None if interval is None else interval.low <= math.expm1(faster) <= interval.high,
        width=None if interval is None or interval.low <= -1 else
        (math.log1p(interval.high) - math.log1p(interval.low)) / 2,
        near_s=_near_s(place, trials), close_s=_close_s(place, result.study, trials),
        ooms=sum(t.kind is TrialKind.SEARCH and _ran_out(t) for t in trials), oom_share=lost,
        unused_s=budget_s - used_s,
        rounds=len({t.pair for t in trials if t.kind is TrialKind.CONFIRM and t.fits}),
        started=started, ended_by=result.ended_by, found=tuple(lines(place, trials)),
    )  # fmt: skip


def _answer(recommendation: Recommendation | None) -> Any:
    return None if recommendation is None or not recommendation.rows else recommendation.rows[0]


def _decided(trial: Trial) -> bool:
    if trial.state is not TrialState.FAIL:
        return trial.state.is_finished
    failed = trial.outcome
    return failed is not None and not failed.inconclusive and failed.reason is not FailureReason.TIMEOUT


def _ran_out(trial: Trial) -> bool:
    return trial.outcome is not None and trial.outcome.reason is FailureReason.OOM


def _is_near(place: Place, configuration: Configuration) -> bool:
    """Within ``CLOSE`` of the best, and learning as the baseline does."""
    near = place.gain(configuration) >= place.best + math.log1p(-CLOSE)
    return near and same_learning(configuration, place.spec.baseline, place.spec.framework)


def _near_s(place: Place, trials: Sequence[Trial]) -> float:
    """Seconds until the first search trial of a configuration within ``CLOSE`` of the best had ended well."""
    for trial in trials:
        if trial.kind is TrialKind.SEARCH and trial.feasible and _is_near(place, trial.configuration):
            return float((trial.finished_at or 0.0) - (trials[0].started_at or 0.0))
    return math.inf


def _close_s(place: Place, study: Study, trials: Sequence[Trial]) -> float:
    """Seconds until the answer first was a proven one within ``CLOSE`` of the best."""
    began = trials[0].started_at if trials else None
    for count, trial in enumerate(trials, start=1):
        if trial.kind is not TrialKind.CONFIRM or trial.finished_at is None or began is None:
            continue
        found = _answer(recommend(study.spec, trials[:count], ""))
        near = found is not None and _is_near(place, found.configuration)
        if near and found.confirmed and found.gain is not None and found.gain.low > 0:
            return float(trial.finished_at - began)
    return math.inf


def lines(place: Place, trials: Sequence[Trial]) -> list[str]:
    """What was tried, for people: number, kind, seconds, true gain, what differs from the baseline."""
    found = []
    for trial in trials:
        changed = trial.configuration.difference(place.spec.baseline)
        what = ", ".join(f"{name} {after}" for name, (after, _) in changed.items() if name not in FOLLOW) or "baseline"
        factor = math.exp(place.gain(trial.configuration))
        ended = str(trial.state) if trial.outcome is None or trial.outcome.ok else trial.outcome.reason
        found.append(
            f"#{trial.number} {trial.kind} {trial.source} {trial.seconds or 0:.0f} s {ended} x{factor:.2f}: {what}"
        )
    return found


FOLLOW = ("gradient_accumulation_steps", "steps_per_generation")
"""They follow from the micro-batch."""
