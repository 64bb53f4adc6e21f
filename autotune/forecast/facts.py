"""Builds a plan's question from a few facts, without a model's files; assumes missing facts. Pure.

It reads no folder, file or address, so that a network request cannot make it open one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from autotune.errors import UsageError
from autotune.forecast.answer import Machine
from autotune.forecast.architecture import Architecture
from autotune.forecast.gpus import GPUS, KnownGpu, gpu_named
from autotune.forecast.question import PlanRequest, Question
from autotune.frameworks import framework_named
from autotune.machine.data_sheets import sheet_of
from autotune.proposals.memory.settings import dimensions
from autotune.specification.build import planned
from autotune.wording.text import clean
from search_spaces.configuration import ModelFacts
from search_spaces.knobs import FRAMEWORKS
from search_spaces.space import SearchSpace
from search_spaces.space_file import preset_for

GPUS_OF_A_NODE = 8
MOST_GPUS = 1024
MOST_ROWS = 65_536
MOST_TOKENS = 1_000_000


@dataclass(frozen=True)
class Facts:
    """Known facts about a training job and its machine; ``None``: not given."""

    model: ModelFacts
    gpu: str | None
    """Words of a GPU's name."""
    gpus: int | None = None
    """Number of GPUs over all nodes."""
    memory: int | None = None
    """Usable bytes of a GPU; ``None``: all of its memory."""
    name: str | None = None
    """Name of the model; only displayed."""
    framework: str | None = None
    rows_per_update: int | None = None
    max_prompt_length: int | None = None
    """Longest prompt in tokens."""
    max_completion_length: int | None = None
    """Longest completion in tokens."""


def question_of(facts: Facts) -> tuple[Question, tuple[str, ...]]:
    """Returns the question, and sentences on the assumed facts.

    Raises:
        UsageError: too little is known, or no forecast exists for such a machine or training.
    """
    kind = _kind(facts.gpu)
    gpu = kind if facts.memory is None else replace(kind, memory=min(kind.memory, facts.memory))
    framework = _checked(facts)
    shape = architecture_of(facts.model)
    gpus, nodes = _split(1 if facts.gpus is None else facts.gpus)
    machine = Machine(gpu.name, gpu.memory, gpus, nodes)
    request = PlanRequest(
        model=facts.name or f"a model of {shape.parameters / 1e9:.3g} billion parameters",
        architecture=shape,
        framework=framework,
        rows_per_update=facts.rows_per_update,
        max_prompt_length=facts.max_prompt_length,
        max_completion_length=facts.max_completion_length,
    )
    name = preset_for(gpus, nodes)
    space, left_out = planned(SearchSpace.load(name), framework_named(framework))
    question = Question(request.load(machine), machine, gpu, name, space, left_out)
    return question, (*_presumed(facts, question), *question.notes)


def architecture_of(facts: ModelFacts) -> Architecture:
    """Returns a decoder with these facts; guesses others from its size. Raises ``UsageError`` without a size."""
    if facts.parameters is None or facts.parameters <= 0:
        raise UsageError("params_b is needed, or the model of a study here")
    size = dimensions(facts)
    width, heads = max(1, round(size.width)), max(1, round(size.heads))
    note = "the model's layers are guessed from its number of parameters, which makes every figure less certain"
    return Architecture(
        family="",
        layers=max(1, round(size.layers)),
        hidden_size=width,
        heads=heads,
        kv_heads=max(1, round(size.kv_heads)),
        head_size=max(1, width // heads),
        vocabulary=round(size.vocabulary),
        max_positions=facts.max_positions,
        parameters=facts.parameters,
        active=facts.parameters,
        notes=(note,) if size.doubt else (),
        guessed=bool(size.doubt),
    )


def known_gpu(word: str) -> KnownGpu | None:
    """Returns a GPU by its common name or its driver's (``NVIDIA H100 80GB HBM3``); ``None`` without figures for it."""
    try:
        return gpu_named(word)
    except UsageError:
        sheet = sheet_of(word)
    return next((gpu for gpu in GPUS.values() if gpu.figures is sheet), None)


def _kind(word: str | None) -> KnownGpu:
    if word is None:
        raise UsageError("gpu is needed")
    found = known_gpu(word)
    if found is None:
        raise UsageError(f"there are no figures for gpu {clean(word)!r} here; known are {', '.join(GPUS)}")
    return found


def _checked(facts: Facts) -> str:
    """Returns the framework. Raises ``UsageError`` if it is unknown, or a number is too large."""
    framework = facts.framework or FRAMEWORKS[0]
    if framework.casefold() not in FRAMEWORKS:
        raise UsageError(f"framework {clean(framework)!r} is not known; known are {', '.join(FRAMEWORKS)}")
    limits = (
        ("rows_per_update", facts.rows_per_update, MOST_ROWS),
        ("max_prompt_tokens", facts.max_prompt_length, MOST_TOKENS),
        ("max_completion_tokens", facts.max_completion_length, MOST_TOKENS),
    )
    for name, value, most in limits:
        if value is not None and value > most:
            raise UsageError(f"{name} {value} is more than is looked at, which is {most}")
    return framework.casefold()


def _split(gpus: int) -> tuple[int, int]:
    """Returns (GPUs of a node, nodes). Raises ``UsageError``."""
    if gpus < 1:
        raise UsageError("gpus must be at least 1")
    if gpus > MOST_GPUS:
        raise UsageError(f"gpus {gpus} is more than is looked at, which is {MOST_GPUS}")
    if gpus <= GPUS_OF_A_NODE:
        return gpus, 1
    if gpus % GPUS_OF_A_NODE:
        raise UsageError(f"gpus {gpus} does not fill nodes of {GPUS_OF_A_NODE}")
    return GPUS_OF_A_NODE, gpus // GPUS_OF_A_NODE


def _presumed(facts: Facts, question: Question) -> tuple[str, ...]:
    load, machine = question.load, question.machine
    said = (
        (facts.gpus, "1 GPU" if machine.nodes == 1 else ""),
        (facts.framework, f"framework {load.framework}"),
        (facts.rows_per_update, f"{load.rows_per_update} rows per update"),
        (facts.max_prompt_length, f"prompts of at most {load.max_prompt_length} tokens"),
        (facts.max_completion_length, f"completions of at most {load.max_completion_length} tokens"),
    )
    found = [words for value, words in said if value is None and words]
    found.append(f"completions of {load.mean_completion:g} tokens on average")
    found.append(f"groups of {load.num_generations} completions")
    if machine.nodes > 1:
        found.append(f"nodes of {machine.gpus} GPUs")
    return (f"presumed: {', '.join(found)}",)
