"""``ports.Framework`` for scripted children: the settings are the configuration itself."""

from __future__ import annotations

from autotune.domain import FailureReason, Outcome, Pool
from autotune.ports import Assignment, Diagnosis
from trainer.child.contract import TrialSpec

KNOWN = {
    "CUDA out of memory": (FailureReason.OOM, Pool.DEVICE),
    "Cannot allocate memory": (FailureReason.OOM, Pool.HOST),
    "No available memory for the cache blocks": (FailureReason.OOM, Pool.ROLLOUT_CACHE),
}


class ScriptedFramework:
    """Renders for ``tests/scripted_child.py``; the script is the workload's ``passthrough["script"]``."""

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

    def diagnose(self, text: str) -> Diagnosis | None:
        found = {text.rfind(words): words for words in KNOWN if words in text}
        if not found:
            return None
        words = found[max(found)]
        reason, pool = KNOWN[words]
        return Diagnosis(reason, pool, None, words, f"less of {pool.value} memory")

    def suggest(self, outcome: Outcome) -> str:
        return "take a smaller micro_batch_size" if outcome.reason is FailureReason.OOM else ""
