"""Further examples in the API's description: of one study, its trials and their files (a test validates them)."""

from __future__ import annotations

from typing import Any

from api.schemas.examples import BEGAN, CYCLE, LENGTHS, RECOMMENDATION, ROW, STUDY, TRIAL, answering
from autotune.documents.study import cycle_json, event_json, protocol_json
from autotune.domain import Event, Protocol

_PLACE: dict[str, Any] = {
    "name": "GPU 3",
    "node": None,
    "gpus": [{"index": 3, "uuid": "GPU-8f3c2a1e-5b7d-4e0f-9a6b-1c2d3e4f5a6b"}],
}

_RUNNING: dict[str, Any] = {
    **TRIAL,
    "number": 12,
    "state": "RUNNING",
    "tokens_per_hour": None,
    "speed_cycles": 0,
    "feasible": False,
    "worst_case_passed": False,
    "outcome": None,
    "host_peak_bytes": None,
    "finished_at": None,
    "wall_seconds": None,
    "place": _PLACE,
    "phase": "update",
    "cycle": 2,
    "cycle_kind": "recorded",
    "phase_age_seconds": 0.4,
}

_CYCLE: dict[str, Any] = {**cycle_json(CYCLE), "useful_share": 0.4857}
_PROTOCOL = protocol_json(Protocol(natural=1, lengths=LENGTHS))
_EVENT = event_json(Event("trial_finished", "trial 7: OK", trial=7, at=BEGAN + 51.0, id=16))
_REQUEST = event_json(
    Event("stop_requested", "stop was asked for through the API", {"by": "api"}, at=BEGAN + 60.0, id=17)
)

STUDIES_EXAMPLE = answering({"studies": [STUDY], "next_cursor": None})

STATUS_EXAMPLE = answering(
    {
        "study": {**STUDY, "status": "open"},
        "spent": {"wall_seconds": 540.0, "gpu_seconds": 0.0},
        "budget": {"wall_seconds": 1800.0, "max_trials": None, "gpu_hours": None, "trials_at_once": 1},
        "counts": {"states": {"COMPLETE": 10, "FAIL": 2, "RUNNING": 1}, "failures": {"OOM": 2}},
        "running": [_RUNNING],
        "places": [{**_PLACE, "state": "running", "trial": 12, "why": None, "gpu_busy_share": 0.97}],
        "avoided_gpus": ["trials avoid GPU 3: it has fallen off the bus (XID 79)"],
        "source": "best_so_far",
        "best": {**RECOMMENDATION, "ended_by": ""},
    }
)

TRIAL_EXAMPLE = answering(
    {"study": "first", "trial": {**TRIAL, "protocol": _PROTOCOL, "cycles": [_CYCLE], "place": _PLACE, "usage": None}}
)

CYCLES_EXAMPLE = answering({"study": "first", "trial": 7, "cycles": [_CYCLE], "next_cursor": None})

EVENTS_EXAMPLE = answering({"study": "first", "events": [_EVENT], "next_cursor": None})

REQUEST_EXAMPLE = answering({"event": _REQUEST}, 202)

MEMORY_EXAMPLE = answering(
    {
        "study": "first",
        "trial": 7,
        "attempt": 1,
        "memory_limit_bytes": 8589934592,
        "began_at": "2026-11-20T12:00:01.000Z",
        "host": [
            {"seconds": 1.0, "host_bytes": 1073741824, "phase": "load", "cycle": None},
            {"seconds": 12.0, "host_bytes": 2684354560, "phase": "update", "cycle": 0},
        ],
        "device": [],
    }
)

FINGERPRINTS_EXAMPLE = answering(
    {
        "study": "first",
        "fingerprints": [
            {
                "digest": "9f" * 32,
                "first_seen_at": "2026-11-20T12:00:00.000Z",
                "hardware": {
                    "cpu": "Intel(R) Xeon(R) Processor",
                    "cores": 26,
                    "memory_bytes": 236223201280,
                    "machine": "x86_64",
                    "driver": "580.95.05",
                    "gpus": [
                        {
                            "name": "NVIDIA H100 80GB HBM3",
                            "memory_bytes": 85520809984,
                            "compute_capability": "9.0",
                            "mig": False,
                        }
                    ],
                },
                "software": {"torch": "2.13.0", "trl": "1.16.0", "vllm": "0.31.0"},
                "workload": "5a" * 32,
            }
        ],
    }
)

EXPORT_EXAMPLE = answering(
    {
        "study": "first",
        "row": ROW,
        "files": [
            {"name": "grpo.yaml", "text": "per_device_train_batch_size: 4\n", "executable": False},
            {"name": "run.sh", "text": "#!/bin/sh\n...\n", "executable": True},
        ],
        "command": {"argv": ["{here}/run.sh"], "folder": "", "environment": {}},
        "seams": {},
        "launcher": None,
        "native": None,
        "native_sentence": None,
        "diff": None,
        "prompts": "prompts/train.jsonl",
        "server": False,
    }
)
