"""``python -m benchmarks.side_by_side HOME STUDY STUDY...``: live studies of one workload by different samplers.

    autotune start ... --budget 20m --sampler tpe --name by-tpe
    autotune start ... --budget 20m --sampler grey --no-history --name by-grey

One after the other, on a quiet machine; without ``--no-history`` the second would begin with what the first measured.
Of each is printed what it spent, its search trials, those that ran out of memory in the first 30 and their share of the
seconds, and what it found: the fastest figure over its own baseline's (a machine that has grown slower meets both),
when it had it, and after how many trials it lacked at most 10 and 5 % of the best gain of all. Figures are those of
search trials, before any is confirmed: what looks fastest is partly luck. One study each says little of samplers;
``benchmarks.search`` replays many.

vLLM compiles a model once for a folder of caches, for a minute and in memory of its own. Where that fell into one of
the studies it is said: run both again, with what is compiled by then.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from autotune.domain import FailureReason, Study, Trial, TrialKind
from autotune.domain.differences import spec_differences
from autotune.errors import AutotuneError, UsageError
from autotune.settings import read_settings
from autotune.store import open_store
from autotune.wording.numbers import format_duration
from trainer.child.contract import StartupPart

FIRST = 30
SHARES = (0.10, 0.05)
"""What may be missing of the best gain."""
UNLIKE = ("sampler", "seed")
"""What may differ between the studies."""
ENGINE = (StartupPart.SERVER.value, StartupPart.ENGINE.value, StartupPart.CAPTURE.value)
COMPILING_S, COMPILING = 10.0, 2.0
"""Seconds by which, and times as long as in the other study, a start that compiled takes at least."""
HEADS = (
    *("study", "sampler", "spent", "search trials", f"OOMs in {FIRST}", "lost to them", "fastest / baseline"),
    *("at trial", "after", *(f"to {share:.0%}" for share in SHARES)),
)


@dataclass(frozen=True)
class Search:
    """One study."""

    name: str
    sampler: str
    spent_s: float
    baseline: float
    """Tokens/hour."""
    trials: tuple[Trial, ...]
    """Search trials that say something, in their order."""
    longest_start: float = 0.0
    """Seconds of the longest start of a rollout engine in any of its trials."""

    @property
    def ooms(self) -> int:
        return sum(_ran_out(t) for t in self.trials[:FIRST])

    @property
    def lost(self) -> float:
        """Share of the first trials' seconds."""
        spent = sum(t.seconds or 0.0 for t in self.trials[:FIRST])
        return sum(t.seconds or 0.0 for t in self.trials[:FIRST] if _ran_out(t)) / spent if spent else 0.0

    @property
    def gains(self) -> tuple[float, ...]:
        """After each search trial, the fastest so far over the baseline; the baseline is 1."""
        found, best = [], 1.0
        for trial in self.trials:
            if trial.feasible and trial.tokens_per_hour and not trial.emulated:
                best = max(best, trial.tokens_per_hour / self.baseline)
            found.append(best)
        return tuple(found)

    def reached(self, gain: float) -> int | None:
        """Search trials until the fastest so far has at least ``gain``; 0 is the baseline."""
        return next((n for n, found in enumerate((1.0, *self.gains)) if found >= gain), None)


def search_of(study: Study, trials: Sequence[Trial], spent_s: float) -> Search:
    """A study as a search.

    Raises:
        UsageError: its baseline has no figure to compare with.
    """
    ordered = sorted(trials, key=lambda t: t.number)
    first = next((t for t in ordered if t.kind is TrialKind.BASELINE), None)
    baseline = first.tokens_per_hour if first is not None and first.feasible else None
    if not baseline:
        raise UsageError(f"study {study.spec.name!r}: its baseline has no tokens/hour")
    own = [t for t in ordered if t.kind is TrialKind.SEARCH and t.state.is_finished and not t.inconclusive]
    longest = max((_engine_s(t) for t in ordered), default=0.0)
    return Search(study.spec.name, study.spec.sampler, spent_s, baseline, tuple(own), longest)


def check(studies: Sequence[Study]) -> None:
    """Raises ``UsageError`` where they are not of one workload, or one began with what another had measured."""
    first = studies[0]
    for other in studies[1:]:
        found = [d for d in spec_differences(first.spec, other.spec) if d.partition(":")[0] not in UNLIKE]
        if found:
            raise UsageError(f"studies {first.spec.name!r} and {other.spec.name!r} are not alike: {'; '.join(found)}")
    ids = {study.id for study in studies}
    for study in studies:
        begun = [e.name for e in (study.beforehand.earlier if study.beforehand else ()) if e.study_id in ids]
        if begun:
            raise UsageError(f"study {study.spec.name!r} began with what {begun[0]!r} measured: start it --no-history")


def compiled(searches: Sequence[Search]) -> list[str]:
    """Studies in which an engine's start took much longer than in the quickest other: most likely it compiled there."""
    found = []
    for search in searches:
        least = min((s.longest_start for s in searches if s is not search and s.longest_start > 0), default=math.inf)
        if search.longest_start > max(COMPILING * least, least + COMPILING_S):
            found.append(
                f"study {search.name!r}: an engine took {format_duration(search.longest_start)} to start, in another "
                f"study at most {format_duration(least)}: it was probably compiled there, so they are not alike"
            )
    return found


def table(searches: Sequence[Search]) -> list[str]:
    """Markdown."""
    best = max(gain for search in searches for gain in (1.0, *search.gains))
    lines = [HEADS, ("---",) * len(HEADS), *(_cells(search, best) for search in searches)]
    return ["| " + " | ".join(cells) + " |" for cells in lines]


def _cells(search: Search, best: float) -> tuple[str, ...]:
    own = max((1.0, *search.gains))
    at = search.reached(own) or 0
    after = sum(t.seconds or 0.0 for t in search.trials[:at])
    goals = (search.reached(best * (1.0 - share)) for share in SHARES)
    return (
        search.name,
        search.sampler,
        format_duration(search.spent_s),
        str(len(search.trials)),
        str(search.ooms),
        f"{search.lost:.1%}",
        f"{own:.2f}",
        str(at),
        format_duration(after),
        *("not reached" if goal is None else str(goal) for goal in goals),
    )


def _engine_s(trial: Trial) -> float:
    """Of the engine's start; of a trial that failed in it all that it took."""
    if trial.outcome is not None and trial.outcome.phase in ENGINE:
        return trial.seconds or 0.0
    return sum(trial.startup.get(part, 0.0) for part in ENGINE)


def _ran_out(trial: Trial) -> bool:
    return trial.outcome is not None and trial.outcome.reason is FailureReason.OOM


def main(arguments: Sequence[str]) -> int:
    """Returns the exit status: 2 for bad input, with a sentence."""
    if len(arguments) < 3:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        store = open_store(read_settings(environ={}, home=Path(arguments[0])).database)
        try:
            studies = [store.study(name) for name in arguments[1:]]
            check(studies)
            found = [search_of(s, store.trials(s.id), store.spent(s.id)[0]) for s in studies]
        finally:
            store.close()
    except AutotuneError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print("\n".join([*table(found), *compiled(found)]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
