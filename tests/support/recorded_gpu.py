"""Two trials recorded on an H100 with NVML's figures beside them (``tests/fixtures/h100_gpu``)."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from autotune import domain
from autotune.machine.gpu_samples import GpuSample, use_of
from autotune.machine.nvml import GpuReading
from autotune.settings import Settings
from autotune.store import open_store
from search_spaces.configuration import Configuration, ModelFacts
from tests.support import factories as make
from tests.support.recorded import record
from trainer.child.contract import parse_record

FOLDER = Path(__file__).parents[1] / "fixtures" / "h100_gpu"
ORDER = ("sync", "generate", "logprob", "reward", "update", "idle")
"""In which the phases of these trials' cycles follow each other; none comes twice."""
SM_MHZ_MAX = 1980.0
"""Of this GPU, by NVIDIA's data sheet."""
RENDERED = {"micro_batch_size": 8, "gradient_accumulation_steps": 16, "num_generations": 8}


def cycles(trial: int) -> list[domain.CycleRecord]:
    """As the child told them: without the GPU's use."""
    lines = (FOLDER / f"trial-{trial}-cycles.jsonl").read_text().splitlines()
    return [cycle for line in lines if isinstance(cycle := parse_record(line), domain.CycleRecord)]


def samples(found: Sequence[domain.CycleRecord]) -> list[GpuSample]:
    """The recorded NVML figures, each with the cycle and phase it fell into."""
    taken = []
    for row in csv.DictReader((FOLDER / "nvml.csv").open()):
        at = float(row["time"])
        cycle = next((c for c in found if c.started <= at <= c.started + c.seconds), None)
        reading = GpuReading(
            busy=float(row["gpu_busy_pct"]) / 100,
            memory_busy=float(row["memory_busy_pct"]) / 100,
            sm_mhz=float(row["sm_mhz"]),
            sm_mhz_max=SM_MHZ_MAX,
            watts=float(row["power_w"]),
        )
        taken.append(GpuSample(at, _phase(cycle, at), -1 if cycle is None else cycle.index, (reading,)))
    return taken


def _phase(cycle: domain.CycleRecord | None, at: float) -> str:
    end = cycle.started if cycle is not None else 0.0
    for name in ORDER if cycle is not None else ():
        end += cycle.phases.get(name, 0.0)
        if at <= end:
            return name
    return "idle"


def with_gpu(trial: int) -> list[domain.CycleRecord]:
    """The cycles as a study records them that looks at the GPU."""
    found = cycles(trial)
    return [replace(cycle, gpu=use_of(samples(found), cycle)) for cycle in found]


def trial(number: int) -> domain.Trial:
    """0: the baseline, TRL's defaults; 1: generation by vLLM."""
    engine = {"rollout_engine": "vllm" if number else "transformers"}
    return make.trial(
        number,
        configuration=Configuration({**RENDERED, "gradient_checkpointing": True, **engine}),
        rows_per_update=128,
        state=domain.TrialState.COMPLETE,
        outcome=domain.Outcome(),
        attempt=1,
        worst_case_passed=True,
        cycles=tuple(with_gpu(number)),
    )


def spec() -> domain.StudySpec:
    """Of the study they are of, as far as anything asks."""
    resources = make.resources(
        gpus=1,
        device="cuda",
        cpu_cores=16,
        device_memory=85_520_809_984,
        rows_per_update=128,
        num_generations=8,
        max_prompt_length=256,
        max_completion_length=96,
        model=ModelFacts(
            parameters=1_543_714_304,
            layers=28,
            hidden_size=1536,
            attention_heads=12,
            key_value_heads=2,
            vocabulary=151_936,
        ),
    )
    return make.study_spec("h100", baseline=trial(0).configuration, resources=resources, memory_limit=None)


def stored(settings: Settings) -> domain.Study:
    """Both trials as a study of that home, and as three rounds that confirmed the second."""
    store = open_store(settings.database)
    study = store.create_study(spec(), make.NOW)
    store.set_lengths(study.id, cycles(0)[3].lengths)
    store.save_fingerprint(study.id, make.fingerprint(hardware={"gpus": [{"name": "NVIDIA H100 80GB HBM3"}]}), make.NOW)
    for number in (0, 1):
        record(store, study, trial(number))
    for number in range(2, 8):
        confirmed = trial(number % 2).with_(number=number, kind=domain.TrialKind.CONFIRM, pair=number // 2 - 1)
        record(store, study, confirmed)
    found = store.study(study.id)
    store.close()
    return found
