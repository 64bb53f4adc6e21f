"""``ports.Framework`` for scripted children: the settings are the configuration itself."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

from autotune.domain import FailureReason, Outcome, Pool
from autotune.ports import Assignment, Companion, Diagnosis, Place
from trainer.child.contract import TrialSpec

SERVER = Path(__file__).with_name("scripted_server.py").resolve()
KNOWN = {
    "CUDA out of memory": (FailureReason.OOM, Pool.DEVICE),
    "Cannot allocate memory": (FailureReason.OOM, Pool.HOST),
    "No available memory for the cache blocks": (FailureReason.OOM, Pool.ROLLOUT_CACHE),
}


class ScriptedFramework:
    """Renders for ``tests/support/scripted_child.py``; the script is the workload's ``passthrough["script"]``."""

    name = "scripted"

    def render(self, assignment: Assignment) -> TrialSpec:
        study, trial = assignment.study, assignment.trial
        workload = study.spec.workload
        return TrialSpec(
            trial=f"{study.id}/{trial.number}",
            framework=self.name,
            model=workload.model,
            prompts=workload.prompts,
            rewards=workload.rewards,
            settings=dict(trial.configuration),
            model_settings={},
            seams={},
            rows_per_update=trial.rows_per_update,
            max_prompt_length=workload.max_prompt_length,
            max_completion_length=workload.max_completion_length,
            protocol=trial.protocol,
            device=study.spec.resources.device,
            seed=study.spec.seed,
            memory_limit=study.spec.memory_limit,
            passthrough=workload.passthrough,
        )

    def companion(self, assignment: Assignment, spec: TrialSpec, place: Place) -> Companion | None:
        """``scripted_server.py``, if the script has a ``server``; the trial is told where in its settings."""
        script = spec.passthrough.get("script", {}).get("server")
        if script is None:
            return None
        name, url = f"scripted-{assignment.trial.number}", f"http://127.0.0.1:{place.port}"
        return Companion(
            argv=(script.get("python", sys.executable), str(SERVER), str(place.port), name, json.dumps(script)),
            spec=replace(spec, settings={**spec.settings, "server": url}),
            health=f"{url}/v1/models",
            answer=script.get("answer", f'"{name}"'),
            ready_s=float(script.get("ready_s", 20.0)),
            environment={"SCRIPTED": "server"},
            trial_environment={"SCRIPTED": "trial"},
        )

    def diagnose(self, text: str) -> Diagnosis | None:
        found = {text.rfind(words): words for words in KNOWN if words in text}
        if not found:
            return None
        words = found[max(found)]
        reason, pool = KNOWN[words]
        return Diagnosis(reason, pool, None, words, f"less of {pool.value} memory")

    def suggest(self, outcome: Outcome) -> str:
        return "take a smaller micro_batch_size" if outcome.reason is FailureReason.OOM else ""
