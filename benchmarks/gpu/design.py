"""Which configurations are tried, and in which order. Pure: the same arguments give the same design."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autotune.domain import Configuration, Resources
from autotune.proposals.sweep import spread
from search_spaces import legality
from search_spaces.configuration import KnobValue
from search_spaces.knobs import KNOBS
from search_spaces.knobs.model import Restart, show
from search_spaces.knobs.restart import RESTART
from search_spaces.legality.batch_rules import RULES
from search_spaces.space import SearchSpace
from search_spaces.unset import UNSET

BASELINE_EVERY = 10
"""Trials between two of the baseline, so that a drift of the machine is seen."""
FEWEST, MOST = 60, 100
ROUNDS = 3
"""Interleaved rounds of the baselines and the best, in fresh processes."""
POOL = 20_000
"""Candidates the design is chosen from."""


@dataclass(frozen=True)
class Entry:
    """One planned trial."""

    role: str
    """``baseline``, ``competent`` (vLLM beside the training, all else TRL's defaults), ``design`` or ``confirm``."""
    configuration: Configuration
    pair: int | None = None
    """Round of a confirmation."""


def strong_defaults(baseline: Configuration, space: SearchSpace, resources: Resources) -> Configuration | None:
    """The baseline with completions by vLLM beside the training; ``None`` where that is not legal."""
    found = space.complete({**_acting_anywhere(baseline), "rollout_engine": "vllm"}, resources)
    return found if legality.is_legal(found, resources, baseline) else None


def _acting_anywhere(baseline: Configuration) -> dict[str, KnobValue]:
    """Without the knobs only vLLM has: they rest in the baseline, and begin at the framework's defaults."""
    return {name: value for name, value in baseline.items() if "rollout_engine" not in KNOBS[name].needs}


def plan(
    space: SearchSpace, baseline: Configuration, resources: Resources, trials: int, seed: int, alike: int = 1
) -> tuple[Entry, ...]:
    """``trials`` trials: the baseline first and every ``BASELINE_EVERY``, the competent one, and the design between.

    With ``alike`` above 1 it is a split-plot design (Jones and Nachtsheim, 2009, "Split-plot designs: what, why, and
    how"): so many trials in a row agree in all that would need another process or engine, and share one. Its
    baselines stand between two such rows.
    """
    candidates = space.candidates(baseline, resources, same_learning=False, limit=POOL, seed=seed)
    own = strong_defaults(baseline, space, resources)
    first = [Entry("baseline", baseline)] + ([Entry("competent", own)] if own is not None else [])
    taken = [entry.configuration for entry in first]
    chosen = (candidates[place] for place in spread(candidates, taken, trials, seed))
    entries, due = first, BASELINE_EVERY
    while len(entries) < trials:
        if len(entries) >= due:
            entries.append(Entry("baseline", baseline))
            due += BASELINE_EVERY
            continue
        leader = next(chosen, None)
        if leader is None:
            break
        found = [leader, *beside(leader, space, baseline, resources, alike - 1, seed)]
        entries += [Entry("design", c) for c in found[: trials - len(entries)]]
    return tuple(entries)


def beside(
    leader: Configuration, space: SearchSpace, baseline: Configuration, resources: Resources, count: int, seed: int
) -> list[Configuration]:
    """At most ``count`` others that can share a process with ``leader``, spread over what is then still free."""
    if count < 1:
        return []
    narrow = space.about(leader, [n for n in space.values if RESTART.get(n, Restart.PROCESS) is Restart.NONE])
    found = narrow.candidates(baseline, resources, same_learning=False, limit=POOL, seed=seed)
    return [found[place] for place in spread(found, [leader], count, seed)]


def confirmation(configurations: Sequence[Configuration], rounds: int = ROUNDS) -> tuple[Entry, ...]:
    """``rounds`` of ``configurations``, each second one turned round, so that a drift favours nobody."""
    once = list(dict.fromkeys(configurations))
    if len(once) < 2:
        return ()
    return tuple(
        Entry("confirm", configuration, pair)
        for pair in range(rounds)
        for configuration in (once if pair % 2 == 0 else once[::-1])
    )


def left_out(
    space: SearchSpace, baseline: Configuration, resources: Resources, candidates: Sequence[Configuration]
) -> list[str]:
    """What of the space no candidate has: a sentence for each knob, with the rule that keeps its values out."""
    missing = space.require.problem(resources)
    if missing is not None:
        return [f"the whole space: {missing}"]
    found, resting = [], []
    for name, values in space.values.items():
        there = {candidate.get(name) for candidate in candidates}
        gone = [value for value in values if value not in there and value not in ("accumulation", UNSET)]
        if not gone:
            continue
        broken = legality.check(baseline.with_(**{name: gone[0]}), resources, baseline)
        because = next((v for v in broken if v.rule not in _CONSEQUENCES), None)
        if because is None and any(v.rule == "knob_acts" for v in broken):
            resting.append(name)
            continue
        sentence = because.sentence if because else "no legal combination has it here."
        shown = ", ".join(show(value) for value in gone)
        found.append(f"{name} {shown}: {sentence.partition('; nearest legal')[0].rstrip('.')}")
    return found + ([f"with that rest: {', '.join(resting)}"] if resting else [])


_CONSEQUENCES = ("knob_acts", *(rule.name for rule in RULES))
"""Of something else that is missing, or mended by another batch."""


def spare(
    space: SearchSpace, baseline: Configuration, resources: Resources, plan: Sequence[Entry], seed: int
) -> list[Entry]:
    """What takes the place of a plan's vLLM trials, should the trial of the competent one be refused."""
    dropped = sum(e.configuration.get("rollout_engine") == "vllm" for e in plan[2:])
    candidates = space.candidates(baseline, resources, same_learning=False, limit=POOL, seed=seed)
    others = [c for c in candidates if c.get("rollout_engine") != "vllm"]
    if not dropped or not others:
        return []
    taken = [e.configuration for e in plan if e.configuration.get("rollout_engine") != "vllm"]
    return [Entry("design", others[place]) for place in spread(others, taken, dropped, seed)]
