"""The recommendation with everything it rests on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from api.dashboard import links
from api.dashboard.card import Card, card
from api.dashboard.copies import Copy, copies, export_command, launcher_words
from api.dashboard.trials_view import reference_is_baseline
from autotune.documents.study import plain, timestamp
from autotune.domain import Recommendation, RecommendationRow, Trial
from autotune.insights.standings import outcome_word
from autotune.recommendation.export import Exported
from autotune.recommendation.reading import AnswerSource, StudyReading
from autotune.statistics.lengths import figures_of
from autotune.wording.numbers import format_size, rate
from autotune.wording.sentences import baseline_words, headline, measured_words, nothing_words
from autotune.wording.text import clean

MOST_TRIALS = 40


@dataclass(frozen=True)
class Support:
    """A trial a figure rests on."""

    number: int
    href: str
    kind: str
    outcome: str
    speed: str
    cycles: str


@dataclass(frozen=True)
class AnswerRow:
    """One row with its evidence."""

    row: int
    card: Card
    lengths: tuple[tuple[str, str, str, str], ...]
    """At, tokens/hour, mean completion, cycles."""
    worst: str
    support: tuple[Support, ...]
    refused: str
    copies: tuple[Copy, ...]
    launcher: str
    archive: str
    """Address of the files as one download; empty if there are none."""


@dataclass(frozen=True)
class AnswerPage:
    """The whole page."""

    id: int
    name: str
    headline: str
    so_far: bool
    given: str
    rows: tuple[AnswerRow, ...]
    baseline: str
    reference: str
    notes: tuple[str, ...]
    ended: str
    fingerprint: tuple[tuple[str, str], ...]
    digest: str
    document: str
    """Address of the same as JSON."""


def answer_page(found: StudyReading, exports: Sequence[Exported | str]) -> AnswerPage:
    """The page; ``exports`` are of the rows, in their order."""
    study, answered = found.study, found.recommendation
    rows = () if answered is None else answered.rows
    return AnswerPage(
        id=study.id,
        name=clean(study.spec.name) or f"study {study.id}",
        headline=_headline(found, answered),
        so_far=found.source is AnswerSource.BEST_SO_FAR,
        given=""
        if answered is None or found.source is AnswerSource.BEST_SO_FAR
        else timestamp(answered.created_at) or "",
        rows=tuple(
            _row(found, answered, i + 1, row, exported)
            for i, (row, exported) in enumerate(zip(rows, exports, strict=True))
            if answered is not None
        ),
        baseline="" if answered is None else baseline_words(answered, study.spec.baseline),
        reference="the baseline" if reference_is_baseline(found) else "the first feasible trial",
        notes=() if answered is None else tuple(clean(note) for note in answered.notes),
        ended="" if answered is None else clean(answered.ended_by),
        fingerprint=_fingerprint(found),
        digest="" if found.fingerprint is None else found.fingerprint.digest,
        document=f"/api/v1/studies/{study.id}/recommendation",
    )


def _headline(found: StudyReading, answered: Recommendation | None) -> str:
    if answered is None:
        return nothing_words(found.trials)
    if not answered.rows:
        return nothing_words(found.trials)
    return headline(answered.rows[0], answered, found.study.spec.baseline)


def _row(
    found: StudyReading, answered: Recommendation, place: int, row: RecommendationRow, exported: Exported | str
) -> AnswerRow:
    study = found.study
    refused = exported if isinstance(exported, str) else ""
    lengths = tuple(
        (
            figure.at,
            rate(figure.tokens_per_hour) if figure.tokens_per_hour is not None else "not measured",
            "-" if figure.mean_length is None else f"{figure.mean_length:.0f} tokens",
            str(figure.cycles) if figure.cycles else "-",
        )
        for figure in figures_of(row)
    )
    load = study.spec.workload
    longest = load.max_prompt_length + load.max_completion_length
    passed = "passed" if row.worst_case_passed else "NOT passed"
    return AnswerRow(
        row=place,
        card=card(row, answered, study.spec.baseline),
        lengths=lengths,
        worst=f"{passed}: a micro-batch of {longest} tokens a row, the longest this workload allows",
        support=_support(found, row.trials),
        refused=refused,
        copies=copies(study, row.configuration, exported, export_command(study, row=place), f"copy-{place}"),
        launcher=launcher_words(exported),
        archive="" if refused else f"/studies/{study.id}/export/{place}.zip",
    )


def _support(found: StudyReading, numbers: Sequence[int]) -> tuple[Support, ...]:
    by_number = {t.number: t for t in found.trials}
    return tuple(_one(found, by_number[n]) for n in numbers[:MOST_TRIALS] if n in by_number)


def _one(found: StudyReading, trial: Trial) -> Support:
    return Support(
        number=trial.number,
        href=links.trial_page(found.study.id, trial.number),
        kind=trial.kind.value.replace("_", " ") + (f", round {trial.pair}" if trial.pair is not None else ""),
        outcome=outcome_word(trial),
        speed=measured_words(trial),
        cycles=str(len(trial.speed_cycles())),
    )


def _fingerprint(found: StudyReading) -> tuple[tuple[str, str], ...]:
    seen = found.fingerprint
    if seen is None:
        return ()
    hardware = [(clean(n), _words(n, v)) for n, v in sorted(plain(seen.hardware).items()) if v not in (None, [], {})]
    software = [(clean(n), clean(v)) for n, v in sorted(seen.software.items())]
    return (*hardware, *software, ("workload", clean(seen.workload)[:16]))


def _words(name: str, value: object) -> str:
    if name == "memory" and isinstance(value, int):
        return format_size(value)
    if isinstance(value, list):
        return ", ".join(clean(one) for one in value)
    return clean(value)
