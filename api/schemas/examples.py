"""Examples in the API's description: made up, of the shapes that are sent (a test validates them)."""

from __future__ import annotations

from typing import Any

from autotune.documents.recommendation import recommendation_json, row_json
from autotune.documents.study import trial_json
from autotune.domain import (
    Configuration,
    CycleKind,
    CycleRecord,
    Gain,
    LengthFigure,
    Outcome,
    Peaks,
    ProcessUse,
    Protocol,
    Recommendation,
    RecommendationRow,
    Trial,
    TrialKind,
    TrialState,
)

BEGAN = 1795176000.0
LENGTHS = (16, 24, 32, 40, 48, 64, 96, 128)
_BY_THREAD = {"generate": 2.4, "reward": 0.1, "logprob": 0.5, "update": 1.8}
_BY_ALL = {"generate": 4.7, "reward": 0.1, "logprob": 1.0, "update": 3.7}
CYCLE = CycleRecord(
    index=3,
    cycle_kind=CycleKind.RECORDED,
    started=1795176031.0,
    seconds=5.0,
    phases={"generate": 2.5, "reward": 0.1, "logprob": 0.5, "update": 1.9},
    completion_tokens=448,
    prompt_tokens=96,
    computed_tokens=1120,
    rows=8,
    updates=1,
    lengths=LENGTHS,
    clipped_share=0.0,
    peaks={"update": Peaks(host=2684354560)},
    cpu_seconds=9.8,
    drift=0.004,
    outside_cpu=0.01,
    reference_seconds=0.0052,
    groups=2,
    zero_std_groups=1,
    reward_mean=0.25,
    loss=0.0,
    grad_norm=0.8,
    process=ProcessUse(
        main_thread=_BY_THREAD,
        all_threads=_BY_ALL,
        system_seconds=0.3,
        minor_faults=40211,
        preempted=12,
        gc_seconds=0.02,
        new_shapes=0,
    ),
)
"""A figure that is added to ``CycleRecord`` is ``null`` here until somebody gives it a value."""

_BASELINE = Configuration(
    {
        "gradient_accumulation_steps": 4,
        "gradient_checkpointing": False,
        "micro_batch_size": 2,
        "num_generations": 4,
        "precision": "bf16",
    }
)
_FASTER = Configuration({**_BASELINE, "gradient_accumulation_steps": 2, "micro_batch_size": 4})

TRIAL = trial_json(
    Trial(
        study_id=1,
        number=7,
        kind=TrialKind.SEARCH,
        configuration=_FASTER,
        protocol=Protocol(),
        rows_per_update=8,
        state=TrialState.COMPLETE,
        attempt=1,
        source="moves/micro_batch_size",
        outcome=Outcome(log_path="/home/me/.local/share/autotune/runs/1-first/7/1/log.txt"),
        cycles=(CYCLE,) * 3,
        startup={"import": 2.0, "load": 1.5},
        worst_case_passed=True,
        watchdog_peak=2684354560,
        created_at=BEGAN,
        started_at=BEGAN + 1.0,
        finished_at=BEGAN + 51.0,
        seconds=50.0,
    ),
    _BASELINE,
)

_ROW = RecommendationRow(
    title="same learning as the baseline",
    configuration=_FASTER,
    tokens_per_hour=322560.0,
    low=318000.0,
    high=327000.0,
    gain=Gain(0.42, 0.39, 0.45, pairs=3, cycles=9),
    confirmed=True,
    worst_case_passed=True,
    phase_shares={"generate": 0.5, "logprob": 0.1, "reward": 0.02, "update": 0.38},
    limit="generation takes half of a cycle",
    host_peak=2684354560,
    device_peak=None,
    headroom=0.37,
    trials=(7, 12, 14, 16),
    changes=("gradient_accumulation_steps: 4 -> 2", "micro_batch_size: 2 -> 4"),
    maximum_tokens_per_hour=301000.0,
    lengths=(
        LengthFigure("1x", 322560.0, 56.0, 9),
        LengthFigure("2x", None, None, 0),
        LengthFigure("maximum", 301000.0, 128.0, 2),
    ),
)
ROW = row_json(_ROW)
RECOMMENDATION = recommendation_json(
    Recommendation("first", (_ROW,), "ok", 0, "the time budget is used up", (), "9f" * 32, BEGAN + 600.0)
)

STUDY: dict[str, Any] = {
    "id": 1,
    "name": "first",
    "status": "done",
    "created_at": "2026-11-20T12:00:00.000Z",
    "revision": 211,
    "digest": "3c" * 32,
    "framework": "trl",
    "model": "Qwen/Qwen2.5-0.5B",
    "rewards": [{"kind": "reasoning_gym", "name": "chain_sum"}],
    "rows_per_update": 8,
    "max_prompt_tokens": 64,
    "max_completion_tokens": 128,
    "gpus": 0,
    "device": "cpu",
    "memory_limit_bytes": 8589934592,
    "sampler": "tpe",
    "objective": "tokens-per-hour",
    "seed": 0,
    "python": "/home/me/train/bin/python",
    "baseline": {"gradient_accumulation_steps": 4, "micro_batch_size": 2},
    "recorded_lengths_tokens": [16, 24, 32, 40, 48, 64, 96, 128],
}

_SHARES: dict[str, Any] = {
    "knobs": [
        {
            "changes": [{"knob": "micro_batch_size", "before": 2, "after": 4}],
            "gain": 0.42,
            "low": 0.31,
            "high": 0.54,
            "proven": True,
            "words": "micro_batch_size 4: +42 % (+31 to +54 %)",
        }
    ],
    "together": {"gain": 0.42, "low": 0.31, "high": 0.54, "proven": True},
    "elsewhere": 0.0,
    "trials": 12,
    "words": "together +42 % by all 12 trials; proven: micro_batch_size",
}

_WHY: dict[str, Any] = {
    "rows": [
        {
            "title": "same learning as the baseline",
            "limits": ["generation takes half of a cycle"],
            "shares": _SHARES,
            "failed_neighbours": [
                {
                    "change": {"knob": "micro_batch_size", "before": 4, "after": 8},
                    "trial": 9,
                    "cause": "OOM in update (host)",
                    "at_least": None,
                }
            ],
        }
    ],
    "ruled_out": [
        {
            "by": "memory",
            "name": "trial 9",
            "count": 6,
            "exact": True,
            "sentence": "trial 9 ran out of memory in update with micro_batch_size 8, which asks for no more",
            "trials": [9],
        }
    ],
    "combinations": 32,
    "legal": 24,
    "tried": 12,
    "exact": True,
    "began": ["23 trials of study 'small': 4 cores instead of 2 (1.0 doublings away)"],
}

TRIALS_DOCUMENT: dict[str, Any] = {"study": "first", "trials": [TRIAL], "next_cursor": "WyJzcGVlZCIsIDAsIC0xLjAsIDdd"}
ANSWER_DOCUMENT: dict[str, Any] = {
    "study": "first",
    "source": "recommendation",
    "recommendation": RECOMMENDATION,
    "why": _WHY,
}
MATCHES_DOCUMENT: dict[str, Any] = {
    "items": [
        {
            "match": "nearest",
            "distance": 1.0,
            "differences": [
                {
                    "name": "max_completion_tokens",
                    "wanted": 256,
                    "study": 128,
                    "distance": 1.0,
                    "sentence": "max_completion_tokens 128 instead of 256: 1 doubling",
                }
            ],
            "study": STUDY,
            "source": "recommendation",
            "row": ROW,
            "recommendation": RECOMMENDATION,
            "shares": _SHARES,
        }
    ],
    "next_cursor": None,
    "reason": "no study is exactly of what was asked for; the first here differs in max_completion_tokens; nothing is "
    "predicted here: each item was measured",
}


def answering(document: dict[str, Any], status: int = 200) -> dict[int | str, dict[str, Any]]:
    """``responses=`` of a route whose answer looks like ``document``."""
    return {status: {"content": {"application/json": {"example": document}}}}


TRIALS_EXAMPLE = answering(TRIALS_DOCUMENT)
MATCHES_EXAMPLE = answering(MATCHES_DOCUMENT)
ANSWER_EXAMPLE = {"application/json": {"example": ANSWER_DOCUMENT}}
