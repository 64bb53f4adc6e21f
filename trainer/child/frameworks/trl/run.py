"""Runs a TRL trial, from spec to the last cycle."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Tuple

from ...checks import TRL, check_version, refusing
from ...contract import StartupPart
from ...cycles import CyclePlan
from ...failures import IllegalSettingError
from ...model_facts import model_folder
from ...rewards import close_rewards
from ...trial import TrialContext
from . import engine, importing
from .server_rollout import Watch, watch_server

PLACES: Mapping[str, Tuple[str, str]] = {
    "max_num_seqs": ("scheduler_config", "max_num_seqs"),
    "max_num_batched_tokens": ("scheduler_config", "max_num_batched_tokens"),
    "chunked_prefill": ("scheduler_config", "enable_chunked_prefill"),
    "enforce_eager": ("model_config", "enforce_eager"),
    "rollout_quantization": ("model_config", "quantization"),
    "kv_cache_dtype": ("cache_config", "cache_dtype"),
    "kv_cache_memory_bytes": ("cache_config", "kv_cache_memory_bytes"),
    "prefix_caching": ("cache_config", "enable_prefix_caching"),
    "cuda_graph_max_batch": ("compilation_config", "max_cudagraph_capture_size"),
}
"""Knob -> (part, name) in the engine's ``vllm_config``; alike in vLLM 0.26 and 0.31."""
ROUNDING = ("rollout_quantization", "kv_cache_dtype")
"""Knobs that set a rounding: no figure may be recorded for a rounding that did not happen."""
FREE = (None, "none", "auto")
"""Values that leave the choice to the engine."""


def run_trial(trial: TrialContext) -> None:
    """Runs the trial until the protocol is completed. Raises the error of a failure (``failures.classify``)."""
    spec = trial.spec
    importing.before_import(spec)
    with trial.startup(StartupPart.IMPORT):
        build, drive = importing.bring_in(spec)
        from . import kept
    kept.begin(trial)
    trial.facts["versions"] = build.versions()
    check_version("TRL", build.versions()["trl"], TRL)
    importing.after_import(spec)
    longest = CyclePlan(spec.protocol).longest
    trial.open_meter()
    with trial.startup(StartupPart.LOAD):
        rewards = build.rewards_of(spec)
        config, updates = build.configure(spec, longest, trial.paths.scratch)
        folder = model_folder(spec.model, spec.revision or None, offline=True)
        model = build.load_model(spec, config, str(folder))
        convert(trial, model)
        dataset = build.load_prompts(spec.prompts, longest * updates, build.rows_per_update(config))
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
        drive.TrlLoop(trial, trainer, updates, watches[0] if watches else None).drive(trainer.train)
    finally:
        trial.facts.update(close_rewards(rewards))


def convert(trial: TrialContext, model: Any) -> None:
    """Converts ``model`` to FP8 if the trial requests it; the result is among the trial's facts.

    Raises IllegalSettingError if the model, machine or environment does not support it.
    """
    from ..hf_trainer import float8

    with refusing():
        done = float8.convert(model, trial.spec.seams, trial.spec.device)
    if done:
        trial.facts["float8"] = done
        trial.note("float8", done)


def install(trial: TrialContext, watches: List[Watch]) -> None:
    """Installs vLLM with the trial's arguments; adds the colocated engine's counters to ``watches`` once it is built.

    Raises IllegalSettingError for a vLLM or TRL that the patches do not support.
    """
    from . import kept

    spec = trial.spec

    def watch(llm: Any, engine_bytes: int) -> None:
        otherwise = has_otherwise(llm, spec.seams)
        if otherwise:
            trial.note("engine_has", otherwise)
        watches.append(kept.watch_of(trial, llm, engine_bytes))

    kept.hand_on(trial)
    try:
        engine.install_engine(spec.seams, spec.device, watch)
    except engine.EngineError as error:
        raise IllegalSettingError(str(error)) from error


def has_otherwise(llm: Any, seams: Mapping[str, Any]) -> Dict[str, Any]:
    """Returns knob -> the engine's value, for values that differ from the requested ones.

    vLLM changes some values with only a line in its log: it reduces a capture size, or disables prefix caching for some
    models. The knob would be measured without an effect.

    A setting that this vLLM does not have is skipped.

    Raises EngineError if the engine rounds in another way than requested.
    """
    config = getattr(getattr(llm, "llm_engine", None), "vllm_config", None)
    found: Dict[str, Any] = {}
    for knob, (part, name) in PLACES.items():
        place = getattr(config, part, None)
        if seams.get(knob) in FREE or not hasattr(place, name):
            continue
        has = getattr(place, name)
        fp8 = knob in ROUNDING and str(seams[knob]).startswith("fp8") and "fp8" in str(has).lower()
        if has != seams[knob] and not fp8:  # the format has several names
            found[knob] = has if isinstance(has, (bool, int, float, type(None))) else str(has)
    for knob in ROUNDING:
        if knob in found:
            raise engine.EngineError("%s %s: the engine has %s instead" % (knob, seams[knob], found[knob]))
    return found
