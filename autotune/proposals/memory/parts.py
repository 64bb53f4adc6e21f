"""What a peak is the sum of, in which phases it is looked at, and how well each formula is known beforehand.

A part's bytes are given by a formula; its coefficient is what measurements make of the formula, 1 before any. The
spreads here are relative standard deviations of coefficients. See docs/decisions/0029-memory-model.md for where they
are from.
"""

from __future__ import annotations

from enum import StrEnum


class Part(StrEnum):
    """A summand of the peak."""

    FLOOR = "floor"
    """Imports of the training process; on a GPU its CUDA context."""
    ENGINE_FLOOR = "engine floor"
    """Imports of a rollout engine in the same tree."""
    WEIGHTS = "weights"
    """What is trained, frozen weights under LoRA and a reference model included."""
    CASTS = "casts"
    """Copies of the weights in the precision of the products."""
    GRADIENTS = "gradients"
    BUCKETS = "buckets"
    """What gradients and weights are sent between ranks in."""
    OPTIMIZER = "optimizer"
    STEP = "optimizer step"
    """Temporaries of an unfused step."""
    ACTIVATIONS = "activations"
    SCORES = "attention scores"
    """Of attention that writes them out."""
    LOGITS = "logits"
    GENERATION = "generation"
    """Keys, values and logits of generation by transformers."""
    ENGINE_WEIGHTS = "engine weights"
    CACHE = "rollout cache"
    """The engine's share of memory less its weights."""
    WORKSPACE = "engine workspace"
    """Graphs and buffers outside the engine's share."""
    RESIDUE = "asleep"
    """What a sleeping engine keeps."""
    SYNC = "weight sync"
    """Weights that are whole, and buffers, while trained weights go to the engine."""
    OFFLOADED = "offloaded"
    """State and activations that wait in host memory."""
    WORKERS = "workers"
    """Processes that load data or compute rewards."""
    KEPT = "kept"
    """Freed memory an allocator was told to keep."""
    SLACK = "slack"
    """What allocators lose between what they handed out."""


class Moment(StrEnum):
    """When the peak may be; the largest of them counts."""

    GENERATE = "generate"
    SYNC = "sync"
    """Trained weights go to the engine, whose own weights are awake and whose cache may sleep."""
    LOGPROB = "logprob"
    UPDATE = "update"
    """The backward pass begins: activations, logits and everything that stays."""
    STEP = "step"
    """The optimizer's step: the activations are gone, its temporaries are there."""


PARTS = tuple(Part)
MOMENTS = tuple(Moment)
PLACE = {part: place for place, part in enumerate(PARTS)}
WHEN = {moment: place for place, moment in enumerate(MOMENTS)}

SPREADS: dict[Part, float] = {
    Part.FLOOR: 0.15,
    Part.ENGINE_FLOOR: 0.25,
    Part.WEIGHTS: 0.05,
    Part.CASTS: 0.3,
    Part.GRADIENTS: 0.1,
    Part.BUCKETS: 0.4,
    Part.OPTIMIZER: 0.05,
    Part.STEP: 0.8,
    Part.ACTIVATIONS: 0.25,
    Part.SCORES: 0.4,
    Part.LOGITS: 0.2,
    Part.GENERATION: 0.5,
    Part.ENGINE_WEIGHTS: 0.25,
    Part.CACHE: 0.1,
    Part.WORKSPACE: 0.6,
    Part.RESIDUE: 0.5,
    Part.SYNC: 0.1,
    Part.OFFLOADED: 0.3,
    Part.WORKERS: 0.5,
    Part.KEPT: 0.5,
    Part.SLACK: 0.6,
}
TRANSIENT = (Part.ACTIVATIONS, Part.SCORES, Part.LOGITS, Part.GENERATION, Part.KEPT)
TRANSIENT_SPREAD = 0.15
"""Of a factor all of ``TRANSIENT`` share: an allocator rounds them all in one way."""
UNPROVEN_SPREAD = {"cpu": 0.05, "cuda": 0.15}
"""Of a factor all parts share: no GPU has been measured yet."""
UNPROVEN_FRAMEWORK = 0.1
"""The same on top for frameworks other than TRL, none of which has been measured."""
OF_MODEL = (
    *(Part.WEIGHTS, Part.CASTS, Part.GRADIENTS, Part.BUCKETS, Part.OPTIMIZER, Part.STEP, Part.ACTIVATIONS),
    *(Part.SCORES, Part.LOGITS, Part.GENERATION, Part.ENGINE_WEIGHTS, Part.OFFLOADED, Part.KEPT, Part.SLACK),
    Part.SYNC,
)
"""Their formulas need the model's sizes."""
NOISE = 0.04
"""Relative spread of peaks around the fitted formulas, before a study has shown its own: 1.5 to 2.6 % between processes
of one configuration, and what the formulas miss of a configuration whatever their coefficients are."""
NOISE_BYTES = 20e6
"""The same in bytes, on top: between processes imports and caches differ by so much, however small the model is."""
NOISE_WEIGHT = 3.0
"""Measured peaks ``NOISE`` counts for."""
PHASE_NOISE = 3.0
"""A phase's own peak counts as so many times as noisy: memory freed by the phase before may still be held."""
