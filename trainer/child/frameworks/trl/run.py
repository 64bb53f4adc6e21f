"""A TRL trial, from spec to the last cycle."""

from __future__ import annotations

import os

from ...contract import StartupPart
from ...cycles import CyclePlan
from ...failures import IllegalSettingError
from ...model_source import model_folder
from ...rewards import reward_facts
from ...trial import Trial
from ...user_environment import put_environment


def run_trial(trial: Trial) -> None:
    """Returns when the protocol is fulfilled; what goes wrong is raised (see ``failures.classify``)."""
    spec = trial.spec
    put_environment(spec.passthrough)
    os.environ["HF_HUB_OFFLINE"] = "1"  # a folder or a cached commit needs no hub; one that is down must not matter
    with trial.startup(StartupPart.IMPORT):
        from . import build, loop
    trial.facts["versions"] = build.versions()
    build.check_version(build.versions()["trl"])
    if spec.protocol.recorded and not spec.protocol.lengths and not spec.protocol.natural:
        raise IllegalSettingError("recorded cycles need recorded lengths, or a natural cycle to take them from")
    plan = CyclePlan(spec.protocol)
    meter = trial.open_meter()
    if spec.device != "cuda":
        trial.guard_memory()
    with trial.startup(StartupPart.LOAD):
        rewards = build.rewards_of(spec)
        config, updates = build.configure(spec, plan.longest, trial.paths.scratch)
        folder = model_folder(spec.model, spec.revision or None, offline=True)
        model = build.load_model(spec, config, str(folder))
        # At least two rows share a prompt, so this many prompts serve every group size in the same order.
        dataset = build.load_prompts(spec.prompts, plan.longest * updates * build.rows_per_update(config) // 2)
    with trial.startup(StartupPart.ENGINE):
        trainer = build.build_trainer(spec, config, model, rewards, dataset)
    trial.guard_memory()
    try:
        loop.drive(trial, trainer, plan, updates, meter)
    finally:
        trial.facts.update(reward_facts(rewards))
