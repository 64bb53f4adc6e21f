"""Keeps a colocated engine between two TRL trials of a warm worker, and resets everything else.

Kept: the imported packages, and a colocated engine with equal arguments. A trial creates all other objects again, as
in a process of its own. Weights are read again from their folder: the files are in the page cache, and a second copy in
the process would be memory that no real run has.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import inspect
import os
import random
import sys
import weakref
from dataclasses import dataclass
from types import FrameType
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

import numpy
import torch

from ...contract import NoteRecord, TrialSpec
from ...failures import MeterError
from ...trial import TrialContext
from ...user_environment import restore_environment
from ..hf_trainer.compiling import compiles
from .engine import ENGINE_KNOBS, MODULE, EngineWatch

OURS = "trl."
"""Prefix of the modules whose attributes patches replace."""


@dataclass
class Held:
    """A vLLM engine kept for the next trial."""

    engine: Any
    arguments: str
    """Arguments of the engine's constructor."""
    random: Tuple[Any, ...]
    """State of the random generators right after the engine was built: only building draws random numbers."""
    environment: Dict[str, str]
    """Environment variables that building the engine set."""
    watch: Optional[EngineWatch] = None


def fits(state: Mapping[str, Any], spec: TrialSpec) -> bool:
    """Tells whether this process runs ``spec`` as a new process would; called before anything is recorded.

    An engine is never rebuilt with other arguments: the first would leave memory behind.
    """
    if state.get("compiles", compiles(spec)) != compiles(spec) and spec.device != "cuda":
        return False  # torch was imported with TORCHDYNAMO_DISABLE, or without it
    return "engine" not in state or bool(state["wishes"] == _wishes(spec))


def begin(trial: TrialContext) -> None:
    """Records the state of the process that ``put_back`` restores, once the trial's packages are imported."""
    kept, spec = trial.kept, trial.spec
    if kept is None:
        return
    kept["restarted"] = "process" if "modules" not in kept else "none"
    kept.setdefault("modules", _attributes())
    kept.setdefault("environment", dict(os.environ))
    kept.setdefault("compiles", compiles(spec))
    kept.setdefault("wishes", _wishes(spec))


def _attributes() -> Dict[str, Dict[str, Any]]:
    """Returns module -> attributes that patches for knobs replace, to restore them afterwards."""
    found = {name: dict(vars(module)) for name, module in list(sys.modules.items()) if name.startswith(OURS)}
    generation = sys.modules.get(MODULE)
    if generation is not None and hasattr(generation, "VLLMGeneration"):
        found[MODULE + ":VLLMGeneration"] = {"sync_weights": generation.VLLMGeneration.sync_weights}
    return found


def _restore_attributes(before: Mapping[str, Mapping[str, Any]]) -> None:
    for name, attributes in before.items():
        module, _, inner = name.partition(":")
        place = sys.modules.get(module)
        if place is not None and inner:
            place = getattr(place, inner)
        for attribute, value in attributes.items():
            if place is not None and getattr(place, attribute, None) is not value:
                setattr(place, attribute, value)


def _wishes(spec: TrialSpec) -> str:
    """Returns, as text, the parts of a spec that determine the engine's arguments, which are compared as well."""
    given = spec.settings
    settings = sorted((name, value) for name, value in given.items() if "vllm" in name)
    seams = sorted((name, value) for name, value in spec.seams.items() if name in ENGINE_KNOBS)
    steps = given.get("steps_per_generation") or given.get("gradient_accumulation_steps")
    rows = (given.get("per_device_train_batch_size") or 0) * (steps or 0)  # TRL's own limit of sequences
    return repr((spec.model, spec.revision, settings, seams, rows))


def watch_leaks(trial: TrialContext, **things: Any) -> None:
    """Keeps weak references to ``things``, so that ``put_back`` reports objects that still exist."""
    if trial.kept is not None:
        watched = trial.kept.setdefault("watched", {})
        watched.update({name: weakref.ref(thing) for name, thing in things.items()})


def note(trial: TrialContext) -> None:
    """Writes a note with the worker, the trial's number in it, and ``restarted``: ``process`` or ``none``."""
    if trial.kept is not None:
        data = {**trial.kept["worker"], "restarted": trial.kept["restarted"]}
        trial.journal.write(NoteRecord("worker", data))


def hand_on(trial: TrialContext) -> None:
    """Patches TRL's engine constructor to return the kept engine; call it before the other patches.

    The constructor raises ``MeterError`` if the engine would be built with other arguments.
    """
    kept = trial.kept
    if kept is None:
        return
    generation: Any = importlib.import_module(MODULE)
    build = getattr(generation, "LLM", None)
    if build is None:
        return  # no vLLM here: ``install_engine`` says so

    def engine(*args: Any, **kwargs: Any) -> Any:
        arguments = repr((args, sorted(kwargs.items())))
        held: Optional[Held] = kept.get("engine")
        if held is None:
            before = dict(os.environ)
            built = build(*args, **kwargs)
            changed = {name: value for name, value in os.environ.items() if before.get(name) != value}
            kept["engine"] = Held(built, arguments, _random(), changed)
            return built
        if held.arguments != arguments:
            raise MeterError("this process holds a rollout engine with other arguments")
        os.environ.update(held.environment)
        # As its worker did (vLLM 0.31, vllm/v1/worker/gpu_worker.py:201); this trial's TF32 was set since.
        torch.set_float32_matmul_precision(os.environ.get("VLLM_FLOAT32_MATMUL_PRECISION", "highest"))
        _set_random(held.random)
        gc.collect()
        gc.freeze()  # as vLLM does when it has built an engine
        return held.engine

    generation.LLM = engine


def watch_of(trial: TrialContext, engine: Any, held_bytes: int) -> EngineWatch:
    """Returns the engine's counters; a kept engine keeps those of its first trial."""
    held: Optional[Held] = None if trial.kept is None else trial.kept.get("engine")
    if held is None or held.engine is not engine:
        return EngineWatch(engine, held_bytes)
    held.watch = held.watch or EngineWatch(engine, held_bytes)
    return held.watch


def _random() -> Tuple[Any, ...]:
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
    return random.getstate(), numpy.random.get_state(), torch.get_rng_state(), cuda


def _set_random(state: Tuple[Any, ...]) -> None:
    random.setstate(state[0])
    numpy.random.set_state(state[1])
    torch.set_rng_state(state[2])
    if state[3]:
        torch.cuda.set_rng_state_all(state[3])


def put_back(state: Dict[str, Any]) -> str:
    """Cleans up after a trial: releases trainer, model and optimizer, and undoes patches.

    Returns:
        The parts of the trial that could not be released; empty if there are none.
    """
    _restore_attributes(state["modules"])
    restore_environment(state["environment"])
    gc.unfreeze()  # vLLM had the model and the trainer, which were there before its engine, left out of collections
    held: Optional[Held] = state.get("engine")
    if held is not None:
        vars(held.engine).pop("generate", None)  # the trial's lengths
    shared = importlib.import_module("accelerate.state")  # all accelerators of the process share these
    shared.AcceleratorState._reset_state()
    shared.GradientState._reset_state()
    end_compile_workers()
    _clear_frames()
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    return ", ".join(_survivors(state.pop("watched", {})))


def end_compile_workers() -> None:
    """Ends the processes of torch's compiler, one for each core; it starts them again on demand.

    A worker with other processes is not used for another trial, because they might belong to the last one.
    """
    compiling: Any = sys.modules.get("torch._inductor.async_compile")
    shut_down = getattr(compiling, "shutdown_compile_workers", None)
    if shut_down is not None:
        shut_down()


def _clear_frames() -> None:
    """Clears the variables of calls that have returned.

    vLLM keeps the errors of optional imports that failed in the first trial, and with them every frame of that call,
    ``run_trial`` with its model and trainer among them.
    """
    several = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
    for frame in [found for found in gc.get_objects() if isinstance(found, FrameType)]:
        if not frame.f_code.co_flags & several:
            with contextlib.suppress(RuntimeError):  # it is still running
                frame.clear()


def _survivors(watched: Dict[str, Callable[[], Any]]) -> List[str]:
    """Returns the objects of the trial that are still referenced; empties a surviving trainer or model."""
    left = []
    for name, reference in sorted(watched.items(), reverse=True):  # the trainer first: the others hang on it
        thing = reference()
        if isinstance(thing, torch.nn.Module):
            for tensor in (*thing.parameters(), *thing.buffers()):  # other owners of a tensor keep it
                tensor.grad, tensor.data = None, torch.empty(0, dtype=tensor.dtype, device=tensor.device)
            left += [name] if any(tensor.numel() for tensor in (*thing.parameters(), *thing.buffers())) else []
        elif thing is not None:
            vars(thing).clear()
        del thing
        gc.collect()
    return left
