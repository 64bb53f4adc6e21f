"""One study on a simulated clock, from the baseline to the answer, and what its answer is worth by the truth.

The loop, the schedule, the proposer, the store (in memory) and the interval are those of ``autotune start``.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
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
from autotune.proposals.neighbours import LISTED, in_one_process
from autotune.recommendation.recommend import recommend
from autotune.store import open_store
from autotune.study.loop import StudyLoop, StudyResult
from benchmarks.decisions import recorded
from benchmarks.decisions.machine import H100, Costs, Machine
from benchmarks.decisions.runner import LaneClock, SimulatedClock, SimulatedCrew, SimulatedRunner
from search_spaces.configuration import ModelFacts
from search_spaces.space import SearchSpace
from trainer.child.contract import CurrentPhase

CLOSE = 0.05
"""What a proven configuration may lack of the best one's tokens/hour."""


@dataclass(frozen=True)
class Place:
    """A machine with a workload and a space: all a study needs but its budget and seed."""

    name: str
    machine: Machine
    spec: StudySpec
    lengths: tuple[int, ...]
    prompt_tokens: int
    prior_data: PriorData
    rows: tuple[Configuration, ...] = ()
    """All there is to try; empty: what the space allows."""

    @cached_property
    def space(self) -> SearchSpace:
        return _Once.from_json(self.spec.space)

    @cached_property
    def task(self) -> Task:
        return Task.of(self.spec)

    @cached_property
    def candidates(self) -> tuple[Configuration, ...]:
        """What may be proposed with the baseline's learning."""
        if self.rows:
            return self.rows
        where = (self.spec.baseline, self.spec.resources)
        drawn = self.space.candidates(*where, same_learning=True, limit=LISTED)
        opened = self.spec.baseline.with_(rollout_engine="vllm")
        return tuple(dict.fromkeys((*drawn, *in_one_process(self.space, *where)(opened))))

    def seconds(self, configuration: Configuration) -> float:
        """Of a true cycle."""
        return sum(self.machine.phases(configuration).values())

    def gain(self, configuration: Configuration) -> float:
        """True logarithm of tokens/hour over the baseline's; minus infinity of one that does not fit."""
        if self.machine.ooms(configuration) is not None:
            return -math.inf
        return math.log(self.seconds(self.spec.baseline) / self.seconds(configuration))

    @cached_property
    def best(self) -> float:
        """The highest ``gain`` of all candidates."""
        return max(self.gain(c) for c in self.candidates)


class _Once(SearchSpace):
    """Lists its candidates once: with the recorded space that takes ten seconds, and every study asks."""

    def candidates(self, *where: Any, **how: Any) -> Any:
        kept = _LISTED.setdefault(id(self), {})
        key = repr(sorted(how.items()))
        if key not in kept:
            kept[key] = super().candidates(*where, **how)
        return kept[key]


_LISTED: dict[int, dict[str, Any]] = {}


def h100(costs: Costs = Costs.PLAIN) -> Place:
    """The recorded study's: 1.5B parameters, 128 rows per update, TRL's defaults; the preset that a user of it gets."""
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
    space = SearchSpace.load("single-gpu")
    spec = StudySpec(
        "recorded",
        work,
        "trl",
        space.as_json(),
        space.complete(Configuration(head["baseline"]), resources),
        resources,
        sampler="grey",
        python="none",
    )
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
    """The answer names something faster than the baseline, its interval excludes no gain, and it is faster."""
    falsely: bool
    """The same, but it is not faster."""
    reached: float
    """True tokens/hour of the answer over the best configuration's."""
    gain: float
    """True tokens/hour of the answer over the baseline's, minus 1."""
    covered: bool | None
    """The interval holds the true gain; ``None`` without one."""
    width: float | None
    """Half of the interval, in logarithms."""
    close_s: float
    """Until a gain was proven for a configuration within 5 % of the best; infinite where none was."""
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
            place.spec.workload.max_completion_length, keep=place.spec.resources.device == "cuda", engines=engines,
        )
        for _ in range(at_once)
    ]  # fmt: skip


def judged(
    place: Place, result: StudyResult, budget_s: float, seed: int, used_s: float, runners: Sequence[SimulatedRunner]
) -> Verdict:
    """What the study's answer is worth."""
    answer = _answer(result.recommendation)
    gain = place.gain(answer.configuration) if answer is not None else 0.0
    interval = answer.gain if answer is not None else None
    claimed = interval is not None and interval.low > 0
    trials = result.trials
    lost = sum(runner.lost_s for runner in runners) / (used_s * len(runners))
    started = sum(runner.restarts["started"] for runner in runners)
    return Verdict(
        budget_s=budget_s, seed=seed,
        search_trials=sum(t.kind is TrialKind.SEARCH and _decided(t) for t in trials),
        proven=claimed and gain > 0, falsely=claimed and gain <= 0,
        reached=math.exp(gain - place.best), gain=math.expm1(gain),
        covered=None if interval is None else interval.low <= math.expm1(gain) <= interval.high,
        width=None if interval is None or interval.low <= -1 else
        (math.log1p(interval.high) - math.log1p(interval.low)) / 2,
        close_s=_close_s(place, result.study, trials), oom_share=lost, unused_s=budget_s - used_s,
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


def _close_s(place: Place, study: Study, trials: Sequence[Trial]) -> float:
    """Seconds until the answer first was a proven one within ``CLOSE`` of the best."""
    began = trials[0].started_at if trials else None
    for count, trial in enumerate(trials, start=1):
        if trial.kind is not TrialKind.CONFIRM or trial.finished_at is None or began is None:
            continue
        found = _answer(recommend(study.spec, trials[:count], ""))
        near = found is not None and place.gain(found.configuration) >= place.best + math.log1p(-CLOSE)
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
