"""What was scored, as Markdown and as plain data. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from autotune.domain import Gain
from benchmarks.intervals.fitting import DEGREES, likeliest
from benchmarks.intervals.looks import Looks
from benchmarks.intervals.recordings import Recording
from benchmarks.intervals.scoring import NEW, OLD, UNSEEN, Again, Score, WarmUps
from benchmarks.intervals.simulation import ROUNDS

METHODS = (NEW, UNSEEN, OLD)
POWER = (*METHODS, "known")
HEAD = (
    "recording",
    "sd",
    "rounds",
    *(f"covers, {name}" for name in METHODS),
    *(f"proves 1.5, {name}" for name in POWER),
    *(f"width, {name}" for name in METHODS),
)


def as_text(scores: Sequence[Score], again: Sequence[Again], warm: WarmUps, looks: Sequence[Looks]) -> str:
    """Tables."""
    lines = [f"| {' | '.join(HEAD)} |", f"|{'---|' * len(HEAD)}"]
    lines += [_row(score, rounds) for score in scores for rounds in range(1, ROUNDS + 1)]
    lines += ["", "The recorded study of the H100 (2026-11-27), vLLM over TRL's defaults, one round:", ""]
    lines += [f"* {one.method}: {_words(one.gain)}" for one in again]
    lines += [
        "",
        f"Trials that lose a cycle as a warm-up, of {warm.trials} recorded on CPUs: {warm.recorded:.2%}; with",
    ]
    lines += [
        f"the cycles turned round {warm.turned:.2%}, shuffled {warm.shuffled:.2%}. Of stationary normal trials of"
    ]
    lines += ["three cycles, and what that adds to the logarithm of their speed on average:", ""]
    lines += [f"* sd {sd:.2f}: {share:.2%}, {warm.shift[sd]:+.5f}" for sd, share in warm.stationary.items()]
    return "\n".join([*lines, "", *_looks(looks)])


def _looks(looks: Sequence[Looks]) -> list[str]:
    """By recording and in all."""
    lines = [
        "Studies that look after each round, five at most: how many call a leader faster that is not, as it is and",
        "with 95 % at every look, and how many have proven a true 1.5 times by round 1, 2, 3, 4 and 5:",
        "",
        "| recording | studies | false | false, 95 % | true ones | proven by 1 | 2 | 3 | 4 | 5 |",
        f"|{'---|' * 10}",
    ]
    whole = Looks(
        "all", *(sum(getattr(one, name) for one in looks) for name in ("studies", "false", "without", "provable")),
        tuple(sum(counts) for counts in zip(*(one.proven for one in looks), strict=True)),
    )  # fmt: skip
    for one in (*looks, whole):
        wrong = [f"{count / one.studies:.1%}" for count in (one.false, one.without)]
        right = [f"{count / max(1, one.provable):.0%}" for count in one.proven]
        cells = [one.recording, str(one.studies), *wrong, str(one.provable), *right]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _row(score: Score, rounds: int) -> str:
    tallies = {name: score.tallies[name, rounds] for name in POWER}
    cells = [score.recording.name, f"{math.sqrt(score.recording.variance):.3f}", str(rounds)]
    cells += [f"{tallies[name].coverage:.1%}" for name in METHODS]
    cells += [f"{tallies[name].power:.0%}" for name in POWER]
    cells += [f"{tallies[name].width:.3f}" for name in METHODS]
    return f"| {' | '.join(cells)} |"


def _words(gain: Gain) -> str:
    said = "proven" if gain.low > 0 else "not proven"
    return f"{gain.value:+.1%} (95 % interval {gain.low:+.1%} to {gain.high:+.1%}), {said}"


def as_json(scores: Sequence[Score], again: Sequence[Again], warm: WarmUps, looks: Sequence[Looks]) -> dict[str, Any]:
    """The same as plain data; shares are 0 to 1."""
    return {
        "recordings": {
            score.recording.name: {
                str(rounds): {
                    name: {"coverage": tally.coverage, "power": tally.power, "width": tally.width}
                    for (name, at), tally in score.tallies.items()
                    if at == rounds
                }
                for rounds in range(1, ROUNDS + 1)
            }
            for score in scores
        },
        "recorded_study": {
            one.method: {"gain": one.gain.value, "low": one.gain.low, "high": one.gain.high} for one in again
        },
        "looks": {
            one.recording: {
                "false": one.false / one.studies,
                "without": one.without / one.studies,
                "proven": [count / max(1, one.provable) for count in one.proven],
            }
            for one in looks
        },
        "warm_up": {
            "recorded": warm.recorded,
            "turned": warm.turned,
            "shuffled": warm.shuffled,
            "stationary": {str(sd): share for sd, share in warm.stationary.items()},
            "shift": {str(sd): shift for sd, shift in warm.shift.items()},
        },
    }


def fit_table(found: Sequence[Recording]) -> str:
    """The recordings' spreads, and the likelihood of priors of the process variance."""
    lines = ["| recording | processes | degrees | sd | of it cycles | of it processes |", "|---|---|---|---|---|---|"]
    for one in found:
        own = math.sqrt(max(0.0, one.variance - one.cycles))
        spreads = f"{math.sqrt(one.variance):.3f} | {math.sqrt(one.cycles):.3f} | {own:.3f}"
        lines.append(f"| {one.name} | {len(one.processes)} | {one.degrees:.0f} | {spreads} |")
    lines += ["", "| device | degrees | likeliest sd | log likelihood |", "|---|---|---|---|"]
    for name, on_gpu in (("CPU", False), ("GPU", True)):
        for degrees in DEGREES:
            prior, score = likeliest([one for one in found if one.on_gpu is on_gpu], degrees)
            lines.append(f"| {name} | {degrees:.0f} | {math.sqrt(prior.variance):.4f} | {score:.2f} |")
    return "\n".join(lines)
