"""Used part of a study's budget, and the limit that will end the study."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from types import SimpleNamespace

from autotune.domain import StudyStatus
from autotune.recommendation.reading import StudyReading
from autotune.study.budget import searched
from autotune.wording.numbers import format_duration


@dataclass(frozen=True)
class Limit:
    """A limit of the budget."""

    name: str
    used: str
    of: str
    percent: str
    """Used share of the limit, 0.0 to 100.0."""
    first: bool
    """True for the limit with the largest used share, which will end the study."""

    @property
    def extension(self) -> tuple[str, tuple[tuple[int, str], ...]]:
        """The name of this limit in a request to extend it, and amounts to choose from, with labels."""
        return {
            "time": ("wall_seconds", ((600, "10 min"), (3600, "1 h"), (14400, "4 h"), (43200, "12 h"))),
            "GPU-hours": ("gpu_hours", ((1, "1"), (4, "4"), (16, "16"), (64, "64"))),
        }.get(self.name, ("trials", ((5, "5"), (20, "20"), (80, "80"))))


def budget_view(reading: StudyReading) -> SimpleNamespace:
    """Returns the budget bars of a study's page."""
    given, (wall_s, gpu_s) = reading.limits, reading.spent
    used = format_duration(wall_s) + (f" of {format_duration(given.wall_s)}" if given.wall_s else "")
    tried = searched(reading.trials)
    gpu_hours = _clean(gpu_s) / 3600.0
    if gpu_hours > 0 and not given.gpu_hours:  # a limit has its own bar
        used += f" and {gpu_hours:.2f} GPU-hours"
    known = [
        ("time", wall_s, given.wall_s, format_duration(wall_s), format_duration(given.wall_s or 0.0)),
        ("GPU-hours", gpu_hours, given.gpu_hours, f"{gpu_hours:.2f}", f"{_clean(given.gpu_hours):g}"),
        ("trials", float(tried), given.max_trials, str(tried), str(given.max_trials)),
    ]
    shares = {name: _share(amount, limit) for name, amount, limit, _, _ in known if limit}
    furthest = max(shares, key=lambda name: shares[name], default=None)
    limits = tuple(
        Limit(name, said, of, f"{100 * min(1.0, shares[name]):.1f}", name == furthest)
        for name, _, _, said, of in known
        if name in shares
    )
    return SimpleNamespace(used=used, limits=limits, ends=_ends(reading, furthest, shares.get(furthest or "", 0.0)))


def go_on_command(reading: StudyReading, command: str) -> str:
    """Returns the command that continues a study: ``command``, which began its last run, with twice the budget if the
    study has ended, else with the same budget and its extensions."""
    wall_s = reading.limits.wall_s
    if not wall_s or " " not in command:
        return command if " " in command else ""
    seconds = math.ceil(2 * wall_s if reading.study.status is StudyStatus.DONE else wall_s)
    budget = f"{seconds}s" if seconds % 60 else f"{seconds // 60}m"
    return re.sub(r" --budget[= ]\S+", "", command) + f" --budget {budget}"


def _ends(reading: StudyReading, furthest: str | None, share: float) -> str:
    if not reading.alive or furthest is None:
        return ""
    words = {"time": "the time limit", "GPU-hours": "the GPU-hours", "trials": "the number of trials"}[furthest]
    if share >= 1.0:
        return f"{words} {'are' if furthest == 'GPU-hours' else 'is'} used up"
    wall_s = _clean(reading.spent[0])
    left = wall_s * (1.0 - share) / share if share > 0 else math.inf
    when = f", in about {format_duration(left)} at this rate" if left < 1e9 else ""
    return f"{words} will end it{when}"


def _share(amount: float, limit: float) -> float:
    share = _clean(amount) / limit if limit > 0 else 0.0
    return share if math.isfinite(share) and share > 0 else 0.0


def _clean(value: float | None) -> float:
    return value if value is not None and math.isfinite(value) else 0.0
