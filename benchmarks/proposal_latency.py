"""How much work is a proposal? 1,000 recorded trials, 50,000 legal combinations.

``python -m benchmarks.proposal_latency [--trials 1000] [--proposals 60] [--sampler grey] [--anew] [--beside 31]``

The space is invented (nine knobs of the catalogue, 51,840 combinations, all taken as legal), and so are the trials:
phases follow a formula with noise, some trials ran out of memory. Each proposal is asked for after one more trial has
been recorded; some are asked for again of a new proposer that has read nothing. The trials are the same objects each
time, as they are in a study, which reads each finished one once (``study.history``); with ``--anew`` each proposal gets
trials that were made anew. With ``--beside N`` the newest N still run, and the proposal is for a place of its own.
Printed: median and 95th percentile of the CPU time of each call, which other programs on
the machine change less than its duration; then that of one fit of each model to all of the recorded trials, and to as
many as a proposal tells it of.
"""

from __future__ import annotations

import argparse
import itertools
import math
import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from autotune.domain import (
    Configuration,
    CycleKind,
    CycleRecord,
    FailureReason,
    Outcome,
    Phase,
    Pool,
    Protocol,
    Resources,
    Trial,
    TrialKind,
    TrialState,
)
from autotune.machine.linear_algebra import use_one_thread
from autotune.proposals.forecasts import Task
from autotune.proposals.grey.models import KEPT_FASTEST, KEPT_NEWEST, models_for
from autotune.proposals.proposer import TwoTrackProposer, named_sampler
from search_spaces.configuration import KnobValue, ModelFacts

GIB = 1 << 30
ROWS = 64
AXES: Mapping[str, Sequence[KnobValue]] = {
    "micro_batch_size": (1, 2, 4, 8, 16, 32),
    "gradient_checkpointing": (True, False),
    "attn_implementation": ("eager", "sdpa", "flash_attention_2"),
    "logprob_rows": (1, 2, 4, 8, 16),
    "max_num_seqs": (4, 8, 16, 32, 64, 128),
    "optimizer": ("adamw_torch", "adamw_torch_fused", "adamw_8bit"),
    "kv_cache_memory_bytes": tuple(n * GIB // 4 for n in (1, 2, 4, 8)),
    "prefix_caching": (True, False),
    "activation_offload": (True, False),
}
FIXED: Mapping[str, KnobValue] = {"rollout_engine": "vllm", "rollout_mode": "colocate", "precision": "fp32"}
FAILS = 12
KEPT = KEPT_FASTEST + KEPT_NEWEST
"""Trials a proposal tells the models of."""
FITS = 7
RESOURCES = Resources(
    cpu_cores=2,
    host_memory=16 * GIB,
    framework="trl",
    rows_per_update=ROWS,
    num_generations=8,
    max_prompt_length=128,
    max_completion_length=256,
    model=ModelFacts(134_515_008, 30, 576, 9, 3, 49_152, 8192),
)
TASK = Task(RESOURCES, ROWS, 128, 256, memory_limit=8 * GIB)


def combinations() -> tuple[Configuration, ...]:
    """All of the space; the accumulation follows from the micro-batch."""
    every = (dict(zip(AXES, values, strict=True)) for values in itertools.product(*AXES.values()))
    return tuple(
        Configuration({**FIXED, **one, "gradient_accumulation_steps": max(1, ROWS // int(one["micro_batch_size"]))})
        for one in every
    )


def trial(number: int, configuration: Configuration) -> Trial:
    """What a trial of ``configuration`` leaves behind."""
    chance = random.Random(f"latency/{configuration.key}")  # noqa: S311 (repeatable on purpose)
    base = Trial(
        study_id=1,
        number=number,
        kind=TrialKind.SEARCH if number else TrialKind.BASELINE,
        configuration=configuration,
        protocol=Protocol(),
        rows_per_update=ROWS,
        source="grey/headline",
        startup={"spawn": 0.1, "import": 8.0, "load": 2.0, "engine": 20.0, "first_batch": 3.0},
        watchdog_peak=int(GIB * (2.0 + 0.1 * int(configuration["micro_batch_size"]))),
        seconds=60.0,
    )
    if number and chance.random() < 1 / FAILS and int(configuration["micro_batch_size"]) >= 16:
        outcome = Outcome(FailureReason.OOM, Phase.UPDATE.value, Pool.HOST, log_path="log.txt")
        return base.with_(state=TrialState.FAIL, outcome=outcome, watchdog_peak=8 * GIB)
    rows = int(configuration["micro_batch_size"])
    phases = {
        Phase.GENERATE.value: 3.0 + 40.0 / int(configuration["max_num_seqs"]),
        Phase.LOGPROB.value: 1.0 + 2.0 / int(configuration["logprob_rows"]),
        Phase.UPDATE.value: (4.0 + 8.0 / rows + 0.1 * rows) * (1.3 if configuration["gradient_checkpointing"] else 1.0),
    }
    cycles = tuple(_cycle(i, {n: s * math.exp(chance.gauss(0.0, 0.02)) for n, s in phases.items()}) for i in range(3))
    return base.with_(state=TrialState.COMPLETE, outcome=Outcome(), cycles=cycles, worst_case_passed=True)


def _cycle(index: int, phases: Mapping[str, float]) -> CycleRecord:
    return CycleRecord(
        index=index,
        cycle_kind=CycleKind.RECORDED,
        seconds=sum(phases.values()),
        phases=phases,
        completion_tokens=ROWS * 100,
        prompt_tokens=ROWS * 60,
        rows=ROWS,
        updates=1,
        computed_tokens=ROWS * 200,
    )


def proposer(candidates: Sequence[Configuration], sampler: str) -> TwoTrackProposer:
    """Over one track, which holds every candidate."""
    return TwoTrackProposer(
        headline=candidates,
        permitted=candidates,
        searched=tuple(AXES),
        baseline=candidates[0],
        complete_baseline=candidates[0],
        sampler=named_sampler(sampler).bind(TASK),
        seed=0,
        one_memory=True,
    )


def history(candidates: Sequence[Configuration], trials: int) -> list[Trial]:
    """The baseline and ``trials`` - 1 others, drawn evenly."""
    drawn = random.Random("latency").sample(range(1, len(candidates)), trials - 1)  # noqa: S311
    return [trial(0, candidates[0]), *(trial(n, candidates[i]) for n, i in enumerate(drawn, 1))]


def _anew(trials: Sequence[Trial]) -> list[Trial]:
    """Equal ones that nothing was worked out of yet."""
    return [replace(t, configuration=Configuration(dict(t.configuration.items()))) for t in trials]


def _beside(trials: Sequence[Trial], running: int) -> list[Trial]:
    """The same while the newest ``running`` have no result yet."""
    ended = len(trials) - running
    still = (replace(t, state=TrialState.RUNNING, outcome=None, cycles=()) for t in trials[ended:])
    return [*trials[:ended], *still]


def timed(
    trials: int, proposals: int, sampler: str, *, anew: bool = False, beside: int = 0
) -> tuple[list[float], list[float], str]:
    """CPU seconds of each proposal, of some by a new proposer, and who proposed last."""
    candidates = combinations()
    kept, made = proposer(candidates, sampler), history(candidates, trials)
    kept.propose(made, len(made))
    blocked, cold, source = [], [], ""
    for turn in range(proposals):
        number = len(made)
        made = _anew(made) if anew else made
        seen = _beside(made, beside) if beside else made
        here = made[:1] if beside else ()
        began = time.process_time()
        proposal = kept.propose_at(seen, number, here) if beside else kept.propose(seen, number)
        blocked.append(time.process_time() - began)
        if proposal is None:
            break
        if turn % 20 == 0:
            fresh = proposer(candidates, sampler)
            began = time.process_time()
            again = fresh.propose_at(seen, number, here) if beside else fresh.propose(seen, number)
            if again != proposal:
                raise RuntimeError("a proposal depends on what was read before")
            cold.append(time.process_time() - began)
        source = proposal[1]
        made.append(trial(number, proposal[0]))
    return blocked, cold, source


Fit = Callable[[Sequence[Trial]], object]


def fits(trials: int) -> list[tuple[str, list[float]]]:
    """What is fitted, and the CPU seconds of each of some fits."""
    made = history(combinations(), trials + 1)
    found = []
    for some in (made[1:], made[-KEPT:]):
        for name in ("times", "peaks"):
            found.append((f"fitting {name} to {len(some)} trials", [_cpu(_fit(name), some) for _ in range(FITS)]))
    return found


def _fit(name: str) -> Fit:
    models = models_for(TASK)
    model = models.times if name == "times" else models.peaks
    if model is None:
        raise RuntimeError(f"there is no model of {name}")
    return lambda trials: model.fitted(TASK, trials)


def _cpu(fit: Fit, trials: Sequence[Trial]) -> float:
    began = time.process_time()
    fit(trials)
    return time.process_time() - began


def line(label: str, seconds: Sequence[float]) -> str:
    """``label: p50 12 ms, p95 20 ms, at most 25 ms, n 60``."""
    ordered = sorted(seconds)
    high = ordered[min(len(ordered) - 1, math.ceil(0.95 * len(ordered)) - 1)]
    middle, most = statistics.median(ordered), ordered[-1]
    figures = f"p50 {1e3 * middle:.0f} ms, p95 {1e3 * high:.0f} ms, at most {1e3 * most:.0f} ms"
    return f"{label}: {figures}, n {len(ordered)}"


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--proposals", type=int, default=60)
    parser.add_argument("--sampler", default="grey")
    parser.add_argument("--anew", action="store_true")
    parser.add_argument("--beside", type=int, default=0)
    asked = parser.parse_args()
    use_one_thread()  # as a study does
    blocked, cold, source = timed(asked.trials, asked.proposals, asked.sampler, anew=asked.anew, beside=asked.beside)
    beside = f", {asked.beside} of them running" if asked.beside else ""
    print(
        f"{math.prod(len(v) for v in AXES.values())} combinations, {asked.trials} trials recorded{beside}, by {source}"
    )
    print(line("a proposal (CPU time)", blocked))
    print(line("the same by a new proposer (CPU time)", cold))
    if asked.sampler == "grey":
        for label, seconds in fits(asked.trials):
            print(line(f"{label} (CPU time)", seconds))


if __name__ == "__main__":
    main()
