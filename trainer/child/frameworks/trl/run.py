"""Runs a TRL trial, from spec to the last cycle."""

from __future__ import annotations

from typing import Any, List

from ...checks import TRL, check_lengths, check_version
from ...contract import StartupPart
from ...cycles import CyclePlan
from ...failures import IllegalSettingError
from ...model_source import model_folder
from ...rewards import close_rewards, reward_facts
from ...trial import TrialContext
from . import engine, engine_values, importing, ranks
from .server_rollout import Watch, watch_server


def run_trial(trial: TrialContext) -> None:
    """Runs the trial until the protocol is fulfilled. Raises the error of a failure (``failures.classify``)."""
    spec = trial.spec
    importing.before_import(spec)
    with trial.startup(StartupPart.IMPORT):
        build, drive = importing.bring_in(spec)
        from . import kept
    kept.begin(trial)
    trial.facts["versions"] = build.versions()
    check_version("TRL", build.versions()["trl"], TRL)
    ranks.after_import(spec)
    check_lengths(spec)
    plan = CyclePlan(spec.protocol)
    meter = trial.open_meter()
    trial.guard_memory(early=True)
    with trial.startup(StartupPart.LOAD):
        rewards = build.rewards_of(spec)
        config, updates = build.configure(spec, plan.longest, trial.paths.scratch)
        folder = model_folder(spec.model, spec.revision or None, offline=True)
        model = build.load_model(spec, config, str(folder))
        convert(trial, model)
        # At least two rows share a prompt, so this many prompts serve every group size in the same order.
        dataset = build.load_prompts(spec.prompts, plan.longest * updates * build.rows_per_update(config) // 2)
    watches: List[Watch] = []
    with trial.startup(StartupPart.ENGINE):
        if spec.settings.get("use_vllm"):
            install(trial, watches)
        trainer = build.build_trainer(spec, config, model, rewards, dataset)
        watches += watch_server(trainer)
    kept.watch_leaks(trial, model=model, trainer=trainer)
    kept.note(trial)
    trial.guard_memory()
    try:
        drive.drive(trial, trainer, plan, updates, meter, watches[0] if watches else None)
    finally:
        trial.facts.update(reward_facts(rewards))
        close_rewards(rewards)


def convert(trial: TrialContext, model: Any) -> None:
    """Converts ``model`` to FP8 if the trial asks for it; the result is among the trial's facts.

    Raises IllegalSettingError if the model, machine or environment does not support it.
    """
    from ..hf_trainer import float8

    try:
        done = float8.convert(model, trial.spec.seams, trial.spec.device)
    except float8.Float8Error as error:
        raise IllegalSettingError(str(error)) from error
    if done:
        trial.facts["float8"] = done
        trial.note("float8", done)


def install(trial: TrialContext, watches: List[Watch]) -> None:
    """Installs vLLM with the trial's arguments; adds the colocated engine's watch to ``watches`` once it is built.

    Raises IllegalSettingError for a vLLM or TRL that the seams do not know.
    """
    from . import kept

    spec = trial.spec

    def built(llm: Any, held: int) -> None:
        otherwise = engine_values.has_otherwise(llm, spec.seams)
        if otherwise:
            trial.note("engine_has", otherwise)
        watches.append(kept.watch_of(trial, llm, held))

    kept.hand_on(trial)
    try:
        engine.install_engine(spec.seams, spec.device, built)
    except engine.EngineError as error:
        raise IllegalSettingError(str(error)) from error
