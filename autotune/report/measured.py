"""Report sections on the measurement: how the figures were measured, how to repeat them, and their limits."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autotune.domain import CycleKind, Recommendation, Study, Trial, TrialKind
from autotune.report.markdown import block, code
from autotune.statistics import evidence
from autotune.wording.numbers import format_duration
from autotune.wording.sentences import level_words
from autotune.wording.text import clean
from search_spaces.knobs import moving_lengths
from trainer.child.contract import StartupPart

MINIMUM_GROUPS = 100
"""Groups below which the share of groups with differing rewards is too uncertain to rank on."""


def protocol(study: Study, trials: Sequence[Trial]) -> list[str]:
    """Describes the measurement protocol and the noise of the figures, a paragraph each."""
    how, load = study.spec.protocol, study.spec.workload
    longest = load.max_prompt_length + load.max_completion_length
    said = [
        f"Every trial is a real run of {code(study.spec.framework)} in fresh processes. Before anything is timed, one "
        f"micro-batch of {longest} tokens a row, the longest this workload allows, goes through; a configuration that "
        "cannot hold it is not feasible.",
        f"Then {how.recorded} whole cycles (generate, reward, log-probabilities, update, weight sync) are timed on the "
        "wall clock. In each, every row's completion has a length recorded from the baseline's own, so that all "
        f"configurations do the same work.{_own_lengths(study, trials)} The warm-up does not count.",
        "A search trial has as many of these cycles as it takes to tell that it cannot win or that more would not "
        "decide, 8 at most; one that cannot win is stopped, and of it only an upper bound is stated.",
        "Tokens/hour are distinct completion tokens, each counted once, per hour of cycle time over all GPUs held: the "
        f"median of a trial's undisturbed cycles. A cycle is disturbed if more than {how.outside_cpu_limit:.0%} of the "
        "CPU time is taken from it by other programs. A disturbance only slows a cycle down, so such a cycle is "
        "repeated, and where repeats are used up it is a bound and no figure.",
        _confirmed(trials) + "Intervals are two-sided 95 % ones" + _surer(trials),
    ]
    return [line for line in (*said, _noise(trials), startup_sentence(trials)) if line]


def _own_lengths(study: Study, trials: Sequence[Trial]) -> str:
    baseline = moving_lengths(study.spec.baseline)
    if all(moving_lengths(t.configuration) == baseline for t in trials):
        return ""
    return (
        " At another temperature completions become longer or shorter, so trials at it have the lengths that the first "
        "of them recorded from its own."
    )


def _confirmed(trials: Sequence[Trial]) -> str:
    if not any(t.kind is TrialKind.CONFIRM for t in trials):
        return ""
    return (
        "Leaders were run again in fresh processes in turn with the baseline; a cycle at maximum length follows, "
        "and one cycle at twice the recorded lengths. Stated figures of confirmed rows come from these runs alone. "
    )


def _surer(trials: Sequence[Trial]) -> str:
    if not evidence.on_several_nodes(trials):
        return "."
    return f"; on several nodes that of a confirmed gain is one of {level_words(evidence.ON_SEVERAL_NODES)}."


def _noise(trials: Sequence[Trial]) -> str:
    cycles = [c for t in trials for c in t.cycles if c.cycle_kind is CycleKind.RECORDED and c.rank == 0]
    lost, noisy = sum(not c.accepted for c in cycles), sum(c.accepted and c.noisy for c in cycles)
    spread = math.sqrt(evidence.process_noise(trials).process.variance)
    return (
        f"Two processes of one configuration are taken to differ by {spread:.1%} (standard deviation of one; by "
        f"recorded studies and this study's repeats). Of {len(cycles)} timed cycles {lost} were discarded and {noisy} "
        "are bounds."
    )


def reproduce(study: Study, recommendation: Recommendation | None) -> list[str]:
    """Lists the commands that repeat the result, and the conditions of a repetition."""
    spec = study.spec
    name = shlex.quote(clean(spec.name))
    commands = [f"autotune best {name}"]
    if recommendation is not None and recommendation.rows:
        commands += [
            f"autotune export {name}     # the files, and the command that trains with them",
            f"autotune verify {name}     # runs that command and compares its tokens/hour",
            f"autotune verify {name} --updates 500     # longer, with the lengths that the policy comes to",
            f"autotune retry {recommendation.rows[0].trials[-1]} {name}",
        ]
    said = (
        f"Sampler {code(spec.sampler)}, seed {spec.seed}: with the same stored trials the search proposes the same "
        "again. Times differ from run to run by the noise above."
    )
    return [block(commands), said]


def limits(study: Study, trials: Sequence[Trial], recommendation: Recommendation | None, legal: int | None) -> str:
    """Lists the limits of the report's figures, a sentence each."""
    said = [
        "Learning: rewards, losses and convergence over many updates. A trial takes a handful of updates.",
        "Steady state of a long run: checkpoints, evaluation, logging services, thermal limits.",
        "Other models, prompts, lengths, machines or versions than those above.",
    ]
    tried = len({t.configuration for t in trials})
    if legal is not None and tried < legal:
        said.append(f"{legal - tried} of the {legal} legal combinations of the space were not run.")
    if recommendation is not None and any(not row.confirmed and row.gain is not None for row in recommendation.rows):
        said.append("A confirmation of every row: those marked so rest on search trials, which flatter a winner.")
    natural = (c for t in trials for c in t.cycles if c.cycle_kind is CycleKind.NATURAL and c.rank == 0)
    groups = sum(c.groups for c in natural)
    if groups < MINIMUM_GROUPS:
        said.append(
            f"The share of groups whose rewards differ: {groups} groups ran at natural lengths, too few to tell."
        )
    if not any(t.kind is TrialKind.CONFIRM for t in trials):
        said.append("Anything beside the baseline in turn: no trial was confirmed.")
    if not study.spec.resources.gpus:
        said.append("GPUs: everything ran on the CPU.")
    return "\n".join(f"- {line}" for line in said)


@dataclass(frozen=True)
class Startups:
    """Start-up seconds, summed over the last attempts of some trials."""

    trials: int
    wall: float
    """Wall seconds of these trials, start-up included."""
    parts: Mapping[str, float]
    """Start-up seconds by ``StartupPart`` value, in the order of the start-up."""

    @property
    def share(self) -> float:
        """Start-up time as a share of ``wall``."""
        return sum(self.parts.values()) / self.wall if self.wall > 0 else 0.0


def startups(trials: Sequence[Trial]) -> Startups | None:
    """Sums the start-up times of ``trials``; ``None`` if no trial recorded one."""
    started = [trial for trial in trials if trial.startup and trial.seconds]
    if not started:
        return None
    names = dict.fromkeys([p.value for p in StartupPart] + sorted({n for t in started for n in t.startup}))
    sums = {name: sum(t.startup.get(name, 0.0) for t in started) for name in names}
    whole = sum(t.seconds or 0.0 for t in started)
    return Startups(len(started), whole, {n: s for n, s in sums.items() if any(n in t.startup for t in started)})


def startup_sentence(trials: Sequence[Trial]) -> str:
    """Returns ``Starting up took 31 % of 12 trials' time; in the mean of a trial: spawn 0.1 s, ...``, or empty text."""
    found = startups(trials)
    if found is None:
        return ""
    each = (f"{n.replace('_', ' ')} {format_duration(s / found.trials)}" for n, s in found.parts.items())
    who = "one trial's" if found.trials == 1 else f"{found.trials} trials'"
    return f"Starting up took {found.share:.0%} of {who} time; in the mean of a trial: {', '.join(each)}."
