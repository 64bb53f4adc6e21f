"""Examples in the API's description: made up, of the shapes that are sent (a test validates them)."""

from __future__ import annotations

from typing import Any

TRIAL: dict[str, Any] = {
    "number": 7,
    "kind": "search",
    "state": "COMPLETE",
    "source": "moves/micro_batch_size",
    "attempt": 1,
    "pair": None,
    "configuration": {
        "gradient_accumulation_steps": 2,
        "gradient_checkpointing": False,
        "micro_batch_size": 4,
        "num_generations": 4,
        "precision": "bf16",
    },
    "changes": {
        "gradient_accumulation_steps": {"baseline": 4, "here": 2},
        "micro_batch_size": {"baseline": 2, "here": 4},
    },
    "rows_per_update": 8,
    "tokens_per_hour": 322560.0,
    "gpus": 0,
    "tokens_per_hour_per_gpu": None,
    "at_most_tokens_per_hour": None,
    "speed_cycles": 3,
    "feasible": True,
    "emulated": False,
    "worst_case_passed": True,
    "outcome": {
        "ok": True,
        "reason": None,
        "phase": None,
        "pool": None,
        "message": "",
        "suggestion": "",
        "sentence": "OK",
        "log_path": "/home/me/.local/share/autotune/runs/1-first/7/1/log.txt",
        "fresh_worker": True,
        "ceiling": None,
    },
    "startup_seconds": {"import": 2.0, "load": 1.5},
    "host_peak_bytes": 2684354560,
    "device_peak_bytes": None,
    "created_at": "2026-11-20T12:00:00.000Z",
    "started_at": "2026-11-20T12:00:01.000Z",
    "finished_at": "2026-11-20T12:00:51.000Z",
    "wall_seconds": 50.0,
}

ROW: dict[str, Any] = {
    "title": "same learning as the baseline",
    "configuration": TRIAL["configuration"],
    "changes": ["gradient_accumulation_steps: 4 -> 2", "micro_batch_size: 2 -> 4"],
    "tokens_per_hour": 322560.0,
    "tokens_per_hour_low": 318000.0,
    "tokens_per_hour_high": 327000.0,
    "gpus": 0,
    "tokens_per_hour_per_gpu": None,
    "maximum_length_tokens_per_hour": 301000.0,
    "at_lengths": [
        {"at": "1x", "tokens_per_hour": 322560.0, "mean_completion_tokens": 56.0, "cycles": 9},
        {"at": "2x", "tokens_per_hour": None, "mean_completion_tokens": None, "cycles": 0},
        {"at": "maximum", "tokens_per_hour": 301000.0, "mean_completion_tokens": 128.0, "cycles": 2},
    ],
    "gain": {"value": 0.42, "low": 0.39, "high": 0.45, "pairs": 3, "cycles": 9},
    "objective": "tokens-per-hour",
    "gain_per_hour": {"value": 0.42, "low": 0.39, "high": 0.45, "pairs": 3, "cycles": 9},
    "gain_per_gpu_hour": None,
    "confirmed": True,
    "worst_case_passed": True,
    "phase_shares": {"generate": 0.5, "logprob": 0.1, "reward": 0.02, "update": 0.38},
    "limit": "generation takes half of a cycle",
    "host_peak_bytes": 2684354560,
    "device_peak_bytes": None,
    "headroom_share": 0.37,
    "trials": [7, 12, 14, 16],
}

RECOMMENDATION: dict[str, Any] = {
    "study": "first",
    "rows": [ROW],
    "baseline": "ok",
    "reference": 0,
    "ended_by": "the time budget is used up",
    "notes": [],
    "fingerprint": "9f" * 32,
    "created_at": "2026-11-20T12:10:00.000Z",
}

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

_STEP: dict[str, Any] = {"knob": "micro_batch_size", "before": 2, "after": 4}

_WHY: dict[str, Any] = {
    "rows": [
        {
            "title": "same learning as the baseline",
            "limits": ["generation takes half of a cycle"],
            "knobs": [
                {
                    "knob": "micro_batch_size",
                    "value": 4,
                    "changed": True,
                    "contrasts": [
                        {
                            "changes": [_STEP],
                            "gain": ROW["gain"],
                            "before_trials": [0, 13, 15],
                            "after_trials": [7, 12, 14, 16],
                            "phase_shares": {"update": -0.25, "logprob": -0.05},
                        }
                    ],
                    "together": None,
                    "elsewhere": [],
                    "fates": [
                        {
                            "change": {"knob": "micro_batch_size", "before": 4, "after": 8},
                            "trial": 9,
                            "cause": "OOM in update (host)",
                            "at_least": None,
                        }
                    ],
                    "words": [
                        "micro_batch_size 2 -> 4: +42.0 % (95 % interval +39.0 % to +45.0 %), #0, #13, #15 -> #7, #12, "
                        "#14, #16; of the cycle update -25.0 %, logprob -5.0 %",
                        "micro_batch_size 4 -> 8: OOM in update (host), #9",
                    ],
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
            "neighbours": [
                {
                    "trial": 3,
                    "knob": "micro_batch_size",
                    "there": 2,
                    "here": 4,
                    "gain": 0.31,
                    "sentence": "micro_batch_size 2 -> 4: +31.0 % (trial 3)",
                }
            ],
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
