"""View of the recommendation with its evidence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from api.dashboard.copies import Copy, archive_name, copies, export_command
from autotune.documents.study import plain, timestamp
from autotune.domain import Configuration, LengthFigure, RecommendationRow, Trial
from autotune.domain.differences import chosen_differences
from autotune.recommendation.comparison import keep, loss_words
from autotune.recommendation.export import Exported
from autotune.recommendation.reading import AnswerSource, StudyReading
from autotune.statistics.knob_shares import KnobShares, knob_shares
from autotune.statistics.lengths import figures_of
from autotune.wording.numbers import format_size
from autotune.wording.sentences import baseline_words, headline, nothing_words, over
from autotune.wording.text import clean

MOST_TRIALS = 40


@dataclass(frozen=True)
class AnswerView:
    """View of a study's current recommendation."""

    headline: str
    so_far: bool
    rows: tuple[RecommendationRow, ...]
    before: Configuration
    """Configuration that changes are stated against."""
    over: str
    """Name of the configuration that gains are stated over."""
    baseline: str
    notes: tuple[str, ...]
    ended: str
    kept: Mapping[str, str]
    """Loss in words if a knob that the first row changes keeps the baseline's value, by knob."""


@dataclass(frozen=True)
class AnswerRow:
    """A recommended configuration with its evidence."""

    place: int
    row: RecommendationRow
    lengths: tuple[LengthFigure, ...]
    worst: str
    support: tuple[Trial, ...]
    exported: Exported | str
    """Files that train with the row's configuration, or the reason why there are none."""
    copies: tuple[Copy, ...]


@dataclass(frozen=True)
class AnswerPage(AnswerView):
    """Content of the page of the recommendation."""

    found: StudyReading
    given: str
    evidence: tuple[AnswerRow, ...]
    reference: str
    fingerprint: tuple[tuple[str, str], ...]


def answer_view(found: StudyReading) -> AnswerView:
    """Returns the answer in words; without an answer, the reason."""
    answered, baseline = found.recommendation, found.study.spec.baseline
    rows = () if answered is None else answered.rows
    return AnswerView(
        headline=headline(rows[0], answered, baseline) if answered and rows else nothing_words(found.trials),
        so_far=found.source is AnswerSource.BEST_SO_FAR,
        rows=rows,
        before=baseline,
        over="" if answered is None else over(answered),
        baseline="" if answered is None else baseline_words(answered, baseline),
        notes=() if answered is None else tuple(clean(note) for note in answered.notes),
        ended="" if answered is None else clean(answered.ended_by),
        kept={} if not rows else _losses(found, rows[0]),
    )


def _losses(reading: StudyReading, row: RecommendationRow) -> Mapping[str, str]:
    """Returns the loss by knob, without knobs whose baseline's value no other configuration was measured with."""
    said = {}
    for name, (before, _) in chosen_differences(reading.study.spec.baseline, row.configuration).items():
        other = keep(reading, {name: before})
        if other is not None and other.configuration != reading.study.spec.baseline:
            said[clean(name)] = loss_words(reading, other)
    return said


def answer_page(found: StudyReading, exports: Sequence[Exported | str]) -> AnswerPage:
    """Returns the content of the page; ``exports`` has one entry for each row, in order."""
    answered, view = found.recommendation, answer_view(found)
    given = "" if answered is None or view.so_far else timestamp(answered.created_at) or ""
    return AnswerPage(
        **vars(view),
        found=found,
        given=given,
        evidence=tuple(
            _row(found, i + 1, row, exported) for i, (row, exported) in enumerate(zip(view.rows, exports, strict=True))
        ),
        reference="the baseline" if found.reference_word == "baseline" else "the first feasible trial",
        fingerprint=_fingerprint(found),
    )


def _row(found: StudyReading, place: int, row: RecommendationRow, exported: Exported | str) -> AnswerRow:
    study, by_number = found.study, {t.number: t for t in found.trials}
    load = study.spec.workload
    longest = load.max_prompt_length + load.max_completion_length
    passed = "passed" if row.worst_case_passed else "NOT passed"
    return AnswerRow(
        place=place,
        row=row,
        lengths=figures_of(row),
        worst=f"{passed}: a micro-batch of {longest} tokens a row, the longest this workload allows",
        support=tuple(by_number[n] for n in row.trials[:MOST_TRIALS] if n in by_number),
        exported=exported,
        copies=copies(
            study,
            row.configuration,
            exported,
            export_command(study, row=place),
            archive_name(study, row=place),
            f"copy-{place}",
        ),
    )


def first_shares(reading: StudyReading) -> KnobShares | None:
    """Returns the shares of the knobs that the first answer changes; ``None`` without an answer."""
    row = reading.first_row
    return None if row is None else knob_shares(reading.trials, reading.study.spec.baseline, row.configuration)


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
