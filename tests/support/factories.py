"""Frozen values for tests: every function gives a whole, legal value, and keyword arguments change parts of it.

The machine they tell of: a CPU, 8 rows per update in groups of 4, prompts <= 64 and completions <= 128 tokens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from autotune import domain
from autotune.documents.memory_timeline import MemoryTimeline, Point
from autotune.statistics.retries import BUDGET_ENDED
from search_spaces.configuration import KnobValue, ModelFacts
from trainer.child.contract import NoteRecord, StartupPart, StartupRecord, WorstCaseRecord

MIB = 1024 * 1024
GIB = 1024 * MIB
NOW = 1_790_000_000.0
"""UTC seconds at which everything here was made."""

ROWS = 8
MAX_PROMPT = 64
MAX_COMPLETION = 128
LENGTHS = (16, 24, 32, 40, 48, 64, 96, 128)
"""Recorded completion lengths, one for each row of an update."""

SHARES: Mapping[str, float] = {
    domain.Phase.GENERATE.value: 0.5,
    domain.Phase.REWARD.value: 0.02,
    domain.Phase.LOGPROB.value: 0.1,
    domain.Phase.UPDATE.value: 0.35,
    domain.Phase.SYNC.value: 0.01,
    domain.Phase.IDLE.value: 0.02,
}


def configuration(**knobs: KnobValue) -> domain.Configuration:
    """The baseline's knobs, some of them changed."""
    return domain.Configuration(
        {
            "micro_batch_size": 2,
            "gradient_accumulation_steps": 4,
            "num_generations": 4,
            "gradient_checkpointing": True,
            "precision": "fp32",
            "attn_implementation": "sdpa",
            "logprob_rows": 2,
        }
    ).with_(**knobs)


def numbered(number: int) -> domain.Configuration:
    """A configuration no other number has; for tests that care only that they differ."""
    return configuration(logprob_token_chunk=number + 1)


def reward(**changes: Any) -> domain.RewardSpec:
    return replace(domain.RewardSpec(kind="reasoning_gym", name="chain_sum", options={"min_terms": 2}), **changes)


def workload(**changes: Any) -> domain.Workload:
    base = domain.Workload(
        model="/models/small",
        prompts="/studies/1/prompts.jsonl",
        prompts_sha256="5" * 64,
        rewards=(reward(),),
        rows_per_update=ROWS,
        max_prompt_length=MAX_PROMPT,
        max_completion_length=MAX_COMPLETION,
        passthrough={"learning_rate": 1e-6, "beta": 0.0, "report_to": ["none"]},
        model_sha256="a" * 64,
    )
    return replace(base, **changes)


def resources(**changes: Any) -> domain.Resources:
    base = domain.Resources(
        gpus=0,
        cpu_cores=2,
        device="cpu",
        host_memory=16 * GIB,
        framework="trl",
        rows_per_update=ROWS,
        num_generations=4,
        max_prompt_length=MAX_PROMPT,
        max_completion_length=MAX_COMPLETION,
        model=ModelFacts(parameters=134_515_008, layers=30, hidden_size=576, vocabulary=49_152),
        software={"torch": "2.13.0", "trl": "1.16.0"},
    )
    return replace(base, **changes)


def protocol(**changes: Any) -> domain.Protocol:
    return replace(domain.Protocol(warmup=1, natural=0, recorded=3, maximum=0, lengths=LENGTHS), **changes)


def study_spec(name: str = "first", **changes: Any) -> domain.StudySpec:
    base = domain.StudySpec(
        name=name,
        workload=workload(),
        framework="trl",
        space={"knobs": {"micro_batch_size": [1, 2, 4, 8], "gradient_checkpointing": [True, False]}},
        baseline=configuration(),
        resources=resources(),
        sampler="tpe",
        seed=0,
        protocol=protocol(lengths=()),
        memory_limit=8 * GIB,
        python="/training/bin/python",
    )
    return replace(base, **changes)


def study(**changes: Any) -> domain.Study:
    return replace(domain.Study(id=1, spec=study_spec(), created_at=NOW, lengths=LENGTHS, revision=1), **changes)


def draft(kind: domain.TrialKind = domain.TrialKind.SEARCH, **changes: Any) -> domain.TrialDraft:
    base = domain.TrialDraft(
        kind=kind,
        configuration=configuration(),
        protocol=protocol(),
        rows_per_update=ROWS,
        source="baseline" if kind is domain.TrialKind.BASELINE else "tpe/headline",
    )
    return replace(base, **changes)


def peaks(host: int | None = 2 * GIB, **changes: Any) -> domain.Peaks:
    return domain.Peaks(**{"host": host, **changes})


def cycle(
    index: int = 0, *, seconds: float = 10.0, lengths: Sequence[int] = LENGTHS, **changes: Any
) -> domain.CycleRecord:
    """A RECORDED cycle of rank 0; tokens follow from ``lengths``, phases from ``seconds``."""
    rows = len(lengths)
    whole: dict[str, Any] = {
        "index": index,
        "cycle_kind": domain.CycleKind.RECORDED,
        "seconds": seconds,
        "phases": {name: share * seconds for name, share in SHARES.items()},
        "completion_tokens": sum(lengths),
        "prompt_tokens": 40 * rows,
        "rows": rows,
        "updates": 1,
        "computed_tokens": rows * (40 + max(lengths, default=0)),
        "lengths": tuple(lengths),
        "peaks": {"update": peaks(), "generate": peaks(host=3 * GIB // 2), "cycle": peaks()},
        "cpu_seconds": 1.8 * seconds,
        "drift": 0.004,
        "outside_cpu": 0.01,
        "clipped_share": 0.125,
        "groups": rows // 4,
        "zero_std_groups": 0,
        "reward_mean": 0.25,
        "loss": 0.01,
        "grad_norm": 0.8,
        "started": NOW + seconds * index,
    }
    return domain.CycleRecord(**{**whole, **changes})


def startup(part: StartupPart = StartupPart.LOAD, seconds: float = 1.5) -> StartupRecord:
    return StartupRecord(part=part, seconds=seconds)


def worst_case(**changes: Any) -> WorstCaseRecord:
    base = WorstCaseRecord(
        rows=2, prompt_tokens=MAX_PROMPT, completion_tokens=MAX_COMPLETION, seconds=4.0, peaks=peaks(host=5 * GIB // 2)
    )
    return replace(base, **changes)


def note(name: str = "setting", **data: Any) -> NoteRecord:
    return NoteRecord(name=name, data=data or {"torch_num_threads": 2})


def oom(**changes: Any) -> domain.Outcome:
    base = domain.Outcome(
        reason=domain.FailureReason.OOM,
        phase=domain.Phase.UPDATE.value,
        pool=domain.Pool.HOST,
        message="the process tree reached 8.1 GiB of 8.0 GiB",
        suggestion="try micro_batch_size 1",
        log_path="/studies/1/trials/1/1/log.txt",
    )
    return replace(base, **changes)


def failure(reason: domain.FailureReason, **changes: Any) -> domain.Outcome:
    return replace(domain.Outcome(reason=reason, message=f"ended as {reason.value}"), **changes)


def trial(number: int = 0, kind: domain.TrialKind | None = None, **changes: Any) -> domain.Trial:
    """A WAITING trial; trial 0 is the baseline."""
    kind = kind or (domain.TrialKind.BASELINE if number == 0 else domain.TrialKind.SEARCH)
    whole: dict[str, Any] = {
        "study_id": 1,
        "number": number,
        "kind": kind,
        "configuration": configuration() if number == 0 else numbered(number),
        "protocol": protocol(),
        "rows_per_update": ROWS,
        "source": "baseline" if number == 0 else "tpe/headline",
        "created_at": NOW + 60 * number,
    }
    return domain.Trial(**{**whole, **changes})


def finished(
    number: int = 0, *, cycle_seconds: float | Sequence[float] = 10.0, cycles: int = 3, **changes: Any
) -> domain.Trial:
    """A COMPLETE, feasible trial; ``cycle_seconds`` is one duration for all cycles or one for each."""
    durations = [cycle_seconds] * cycles if isinstance(cycle_seconds, int | float) else list(cycle_seconds)
    whole: dict[str, Any] = {
        "state": domain.TrialState.COMPLETE,
        "attempt": 1,
        "outcome": domain.Outcome(),
        "cycles": tuple(cycle(i, seconds=s) for i, s in enumerate(durations)),
        "startup": {"import": 2.0, "load": 1.5, "first_batch": 3.0},
        "worst_case_passed": True,
        "watchdog_peak": 5 * GIB // 2,
        "started_at": NOW + 60 * number,
        "finished_at": NOW + 60 * number + 50,
        "seconds": 50.0,
    }
    return trial(number, **{**whole, **changes})


def stopped(number: int = 1, *, at_most: float = 171_234.0, cycles: int = 3, **changes: Any) -> domain.Trial:
    """A PRUNED trial: it can reach ``at_most`` tokens/hour, and trial 0 has more."""
    ceiling = domain.Ceiling(at_most, at_most + 19_000.0, rival=0, cycles=cycles, physical=cycles < 3)
    ended = {"state": domain.TrialState.PRUNED, "outcome": domain.Outcome(ceiling=ceiling)}
    return finished(number, cycle_seconds=11.0, cycles=cycles, **{**ended, **changes})


def failed(number: int = 1, outcome: domain.Outcome | None = None, **changes: Any) -> domain.Trial:
    """A trial that ended as ``outcome`` (an OOM of the host in the update unless told), before any speed cycle."""
    base = trial(
        number,
        state=domain.TrialState.FAIL,
        attempt=1,
        outcome=outcome or oom(),
        startup={"import": 2.0, "load": 1.5},
        watchdog_peak=8 * GIB,
        started_at=NOW + 60 * number,
        finished_at=NOW + 60 * number + 20,
        seconds=20.0,
    )
    return base.with_(**changes)


def broken_off(number: int = 0, **changes: Any) -> domain.Trial:
    """A trial that the end of the study's budget stopped."""
    return failed(number, failure(domain.FailureReason.CANCELLED, message=BUDGET_ENDED), **changes)


def event(kind: str = "trial_started", message: str = "trial 0 started", **changes: Any) -> domain.Event:
    return replace(domain.Event(kind=kind, message=message, data={"attempt": 1}, trial=0, at=NOW), **changes)


def fingerprint(**changes: Any) -> domain.Fingerprint:
    base = domain.Fingerprint(
        hardware={"cpu": "example", "cores": 2, "memory": 16 * GIB, "gpus": []},
        software={"python": "3.11.7", "torch": "2.13.0", "trl": "1.16.0"},
        workload="b" * 64,
    )
    return replace(base, **changes)


def gain(**changes: Any) -> domain.Gain:
    return replace(domain.Gain(value=0.4, low=0.3, high=0.5, pairs=3, cycles=9), **changes)


def recommendation_row(**changes: Any) -> domain.RecommendationRow:
    base = domain.RecommendationRow(
        title="same learning as the baseline",
        configuration=configuration(micro_batch_size=4, gradient_accumulation_steps=2),
        tokens_per_hour=226_000.0,
        low=220_000.0,
        high=232_000.0,
        gain=gain(),
        confirmed=True,
        worst_case_passed=True,
        phase_shares=dict(SHARES),
        limit="the update takes 35 % of a cycle",
        host_peak=3 * GIB,
        device_peak=None,
        headroom=0.625,
        trials=(0, 3, 7),
        changes=("micro_batch_size: 2 -> 4", "gradient_accumulation_steps: 4 -> 2"),
        maximum_tokens_per_hour=180_000.0,
    )
    return replace(base, **changes)


def recommendation(**changes: Any) -> domain.Recommendation:
    base = domain.Recommendation(
        study="first",
        rows=(recommendation_row(),),
        baseline="ok",
        reference=0,
        ended_by="budget: 10m of wall time",
        notes=("one trial was repeated",),
        fingerprint=fingerprint().digest,
        created_at=NOW,
    )
    return replace(base, **changes)


def point(seconds: float = 1.0, used: int = GIB, phase: str = "update", cycle: int = 0) -> Point:
    return Point(seconds, used, phase, cycle)


def timeline(**changes: Any) -> MemoryTimeline:
    """Of an attempt of one cycle and a half on a CPU: most after 4 seconds, in update of cycle 0."""
    host = (
        point(0.0, GIB // 4, "", -1),
        point(1.0, GIB, "load", -1),
        point(2.0, 3 * GIB // 2, "generate", 0),
        point(3.0, 2 * GIB, "update", 0),
        point(4.0, 3 * GIB, "update", 0),
        point(6.5, 2 * GIB, "generate", 1),
    )
    return replace(MemoryTimeline(began_at=NOW, host=host), **changes)
