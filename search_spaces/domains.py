"""The choices of a space on one machine, divided into parts that can be enumerated.

A switch (a knob that others need, such as the rollout engine) is fixed in each part, so that knobs without effect can
be set to their inactive value. The batch knobs are one variable, because the accumulation follows from all of them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction

from search_spaces.baseline import capped, complete
from search_spaces.batch import MODEL_PARALLEL, batch_of, data_ranks, fit
from search_spaces.configuration import Configuration, KnobValue, Resources
from search_spaces.knobs import KNOBS, Effect
from search_spaces.legality.case import COMPARED, Case, Reference
from search_spaces.legality.knob_rules import inactive_value_of, resting
from search_spaces.native import UNSET, resolved
from search_spaces.product import spread

Values = Mapping[str, KnobValue]
Domains = dict[str, tuple[KnobValue, ...]]

BATCH_CHOICES = (
    "micro_batch_size",
    "num_generations",
    "steps_per_generation",
    "rollout_gpus",
    "training_gpus",
    *MODEL_PARALLEL,
    "logprob_rows",
)
MAX_BATCHES = 20_000
"""Most batch combinations that are enumerated; a larger set is sampled evenly."""


@dataclass(frozen=True)
class SpacePart:
    """All combinations with the same switches.

    ``context`` holds the fixed knobs. ``variables`` are independent choices; each option of a variable sets the same
    knobs, except an empty option, which leaves its knob to the framework.
    """

    context: dict[str, KnobValue]
    variables: tuple[tuple[dict[str, KnobValue], ...], ...]


@dataclass(frozen=True)
class Situation:
    """A search space on a machine, and the baseline that configurations are compared with."""

    baseline: Configuration
    domains: Domains
    resources: Resources
    reference: Reference
    same_rollouts: bool
    """True if each generation must serve the same number of updates as in the baseline."""

    @classmethod
    def of(
        cls,
        values: Mapping[str, tuple[KnobValue, ...]],
        fixed: Values,
        baseline: Values,
        resources: Resources,
        *,
        same_learning: bool,
    ) -> Situation:
        """Builds the situation; with ``same_learning``, drops values that change numerics or learning."""
        values = resolved(values, resources.framework, resources.device)
        whole = complete(baseline, resources, (*values, *fixed))
        allowed = Effect.SPEED if same_learning else Effect.LEARNING if resources.allow_learning else Effect.NUMERICS
        listed = {**values, **{name: (value,) for name, value in fixed.items()}}
        domains = {name: _allowed(name, found, whole.get(name), allowed) for name, found in listed.items()}
        micro = "micro_batch_size"
        if resources.per_micro_batch and micro in domains:  # the baseline's is the one that stays legal
            domains[micro] = tuple(dict.fromkeys((*domains[micro], whole[micro])))
        group = "num_generations"
        if (rows := resources.rows_per_update) and all(rows % int(n) for n in domains.get(group, ())):
            domains[group] = tuple(dict.fromkeys((*domains.get(group, ()), whole[group])))
        same_rollouts = KNOBS["steps_per_generation"].effect.rank > allowed.rank
        return cls(whole, domains, resources, Reference.of(whole, resources), same_rollouts)

    def parts(self) -> Iterator[SpacePart]:
        """Yields the parts in the order of the switches' values; every combination is in exactly one part."""
        needed = {n for name in {*self.domains, *self.baseline} if name in KNOBS for n in KNOBS[name].needs}
        switches = [name for name in self.domains if name in needed]
        seen: set[str] = set()
        made: dict[str, tuple[dict[str, KnobValue], ...]] = {}
        for choice in itertools.product(*(self.domains[name] for name in switches)):
            context = resting({**self._single(), **dict(zip(switches, choice, strict=True))}, self.resources)
            key = repr([context[name] for name in switches])
            if key not in seen:
                seen.add(key)
                yield self._part(context, switches, made)

    def _single(self) -> dict[str, KnobValue]:
        """Returns the baseline with every listed knob at its first value, which may be ``UNSET``."""
        return {**self.baseline, **{name: found[0] for name, found in self.domains.items()}}

    def _part(
        self, context: dict[str, KnobValue], switches: list[str], cache: dict[str, tuple[dict[str, KnobValue], ...]]
    ) -> SpacePart:
        """Builds one part; ``cache`` shares batches between parts that agree on the knobs which batches depend on."""
        free: Domains = {}
        case = Case(context, self.resources)
        for name, found in self.domains.items():
            if name in switches:
                continue
            rest = inactive_value_of(name, case)
            free[name] = found if rest is None or all(value == rest for value in found) else (context[name],)
        key = repr([(context.get(name), free.get(name)) for name in (*sorted(COMPARED), "logprob_rows")])
        if key not in cache:
            cache[key] = tuple(self._batches(context, free)) or (self._own_batch(),)
        batches = cache[key]
        context.update(batches[0])
        others = [(name, found) for name, found in free.items() if name not in BATCH_CHOICES]
        context.update({name: found[0] for name, found in others})
        for name, found in others:
            if UNSET in found:  # an option that does not set it must find it not set
                del context[name]
        variables = [tuple(_option(name, v) for v in found) for name, found in others if len(found) > 1]
        if len(batches) > 1:
            variables.insert(0, batches)
        return SpacePart(context, tuple(variables))

    def _batches(self, context: Values, free: Domains) -> Iterator[dict[str, KnobValue]]:
        """Yields the batch knobs of every listed batch once, including the accumulation."""
        names = [name for name in BATCH_CHOICES if name in free and name != "steps_per_generation"]
        steps = self._steps(free.get("steps_per_generation"))
        seen: set[tuple[KnobValue, ...]] = set()
        share = self._share(self.baseline)
        choices: list[tuple[KnobValue | Fraction, ...]] = [*(free[name] for name in names), steps]
        for *chosen, count in spread(choices, MAX_BATCHES):
            set_here = {n: v for n, v in zip(names, chosen, strict=True) if not isinstance(v, Fraction)}
            found = self._batch(context, set_here, count)
            key = tuple(found.values())
            if key not in seen and (not self.same_rollouts or self._share(found) == share):
                seen.add(key)
                yield found

    def _steps(self, values: tuple[KnobValue, ...] | None) -> tuple[KnobValue | Fraction, ...]:
        if values is not None and self.reference.reuse == 1 and not self.same_rollouts:
            return values
        # Rows per rollout stay as in the baseline; so does reuse, which is a matter of learning.
        return (self._share(self.baseline),)

    def _share(self, values: Values) -> Fraction:
        """Returns completions per generation / per update; above 1 if a generation serves several updates."""
        batch = batch_of(values, self.resources)
        return Fraction(batch.steps, batch.accumulation)

    def _own_batch(self) -> dict[str, KnobValue]:
        """Returns the baseline's batch, used if no listed batch has its number of updates per generation."""
        names = {*BATCH_CHOICES, "gradient_accumulation_steps"}
        return {name: value for name, value in self.baseline.items() if name in names}

    def _batch(
        self, context: Values, chosen: dict[str, KnobValue], steps: KnobValue | Fraction
    ) -> dict[str, KnobValue]:
        values = {**context, **chosen}
        batch = batch_of(values, self.resources)
        target = self.reference.rows or batch.rows
        accumulation, count = fit(
            data_ranks(values, self.resources), batch.micro, batch.group, steps, target, self.reference.reuse
        )
        found: dict[str, KnobValue] = {
            **chosen,
            "micro_batch_size": batch.micro,
            "num_generations": batch.group,
            "steps_per_generation": count,
            "gradient_accumulation_steps": accumulation,
        }
        if "logprob_rows" in values:
            found["logprob_rows"] = capped({**values, **found}, self.resources)["logprob_rows"]
        return found


def _option(name: str, value: KnobValue) -> dict[str, KnobValue]:
    return {} if value == UNSET else {name: value}


def _allowed(
    name: str, values: tuple[KnobValue, ...], usual: KnobValue | None, allowed: Effect
) -> tuple[KnobValue, ...]:
    """Returns the values with at most the effect ``allowed``; only the baseline's value ``usual`` if there is none."""
    if usual is None:
        return values
    kept = tuple(v for v in values if KNOBS[name].effect_between(usual, v).rank <= allowed.rank)
    return kept or (usual,)
