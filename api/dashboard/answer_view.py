"""View of the recommendation with its evidence."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import SimpleNamespace

from api.dashboard import links
from api.dashboard.copies import archive_name, copies, export_command
from api.dashboard.filters import KNOB
from autotune.documents.study import plain, timestamp
from autotune.domain import CycleKind, RecommendationRow, TrialKind
from autotune.domain.differences import chosen_differences
from autotune.errors import UsageError
from autotune.insights.usage_words import roof_words
from autotune.recommendation.comparison import keep, loss_words
from autotune.recommendation.export import Exported
from autotune.recommendation.reading import AnswerSource, StudyReading
from autotune.recommendation.whole_run import check_asked, whole_run, whole_run_words
from autotune.statistics.knob_shares import KnobShares, knob_shares
from autotune.statistics.lengths import cycles_at, figures_of
from autotune.wording.numbers import format_size, percent
from autotune.wording.sentences import baseline_words, headline, nothing_words, over
from autotune.wording.text import clean, knob_value

MOST_TRIALS = 40
LONGEST_NUMBER = 20
MANY_CUT = 0.25
"""Share of completions cut off at the length limit, from which the recommendation warns of it."""


def cost_of(reading: StudyReading, query: Iterable[tuple[str, str]]) -> SimpleNamespace:
    """Returns sentences on the cost of a run of ``updates`` at the ``price`` of a GPU-hour, both from the query; or the
    error in the query."""
    given = {name: clean(value)[:LONGEST_NUMBER] for name, value in query}
    cost = SimpleNamespace(updates=given.get("updates", ""), price=given.get("price", ""), lines=(), problem="")
    if not cost.updates:
        return cost
    try:
        count, each = int(cost.updates), float(cost.price) if cost.price else None
        check_asked(count, each)
        run = whole_run(reading.study.spec, reading.trials, reading.recommendation, count, each)
        cost.lines = () if run is None else whole_run_words(run)
    except UsageError as error:
        cost.problem = str(error).replace("--", "")
    except ValueError:
        cost.problem = "expected a whole number of updates, and a price such as 2.50"
    return cost


def answer_view(reading: StudyReading) -> SimpleNamespace:
    """Returns the recommendation in words; without one, the reason."""
    answered, baseline = reading.recommendation, reading.study.spec.baseline
    rows = () if answered is None else answered.rows
    return SimpleNamespace(
        headline=headline(rows[0], answered, baseline) if answered and rows else nothing_words(reading.trials),
        so_far=reading.source is AnswerSource.BEST_SO_FAR,
        rows=rows,
        before=baseline,
        over="" if answered is None else over(answered),
        baseline="" if answered is None else baseline_words(answered, baseline),
        notes=() if answered is None else (*map(clean, answered.notes), *_cut_words(reading)),
        ended="" if answered is None else clean(answered.ended_by),
        trials_with=lambda name, configuration: (
            links.study_page(reading.study.id, [(KNOB + name, knob_value(configuration.get(name)))]) + "#trials"
        ),
        speed=lambda row: roof_words(reading.study, reading.fingerprint, reading.trials, row),
        kept={} if not rows else _losses(reading, rows[0]),
    )


def _cut_words(reading: StudyReading) -> tuple[str, ...]:
    """Returns a sentence if the limit cut off many completions of the baseline's natural cycles; none otherwise."""
    cycles = [c for t in reading.trials if t.kind is TrialKind.BASELINE for c in cycles_at(t, CycleKind.NATURAL)]
    shares = [c.clipped_share for c in cycles if c.clipped_share is not None]
    cut = sum(shares) / len(shares) if shares else 0.0
    if cut < MANY_CUT:
        return ()
    limit = reading.study.spec.workload.max_completion_length
    advice = "the study says little of a run with longer ones; a larger --max-completion-length shows them"
    return (f"{percent(cut)} of the completions ended at the limit of {limit} tokens: {advice}",)


def _losses(reading: StudyReading, row: RecommendationRow) -> Mapping[str, str]:
    """Returns changed knob -> loss in speed if it keeps the baseline's value, for knobs of which that was measured."""
    said = {}
    for name, (before, _) in chosen_differences(reading.study.spec.baseline, row.configuration).items():
        other = keep(reading, {name: before})
        if other is not None and other.configuration != reading.study.spec.baseline:
            said[clean(name)] = loss_words(reading, other)
    return said


def answer_page(
    reading: StudyReading, exports: Sequence[Exported | str], query: Iterable[tuple[str, str]] = ()
) -> SimpleNamespace:
    """Returns the content of the recommendation's page; ``exports``: one for each recommended row, in order."""
    answered, view = reading.recommendation, answer_view(reading)
    given = "" if answered is None or view.so_far else timestamp(answered.created_at) or ""
    return SimpleNamespace(
        **vars(view),
        found=reading,
        given=given,
        evidence=tuple(_row(reading, i, *each) for i, each in enumerate(zip(view.rows, exports, strict=True), 1)),
        fingerprint=_fingerprint(reading),
        cost=cost_of(reading, query),
    )


def _row(reading: StudyReading, place: int, row: RecommendationRow, exported: Exported | str) -> SimpleNamespace:
    study, by_number = reading.study, {t.number: t for t in reading.trials}
    load = study.spec.workload
    longest = load.max_prompt_length + load.max_completion_length
    passed = "passed" if row.worst_case_passed else "NOT passed"
    command, name = export_command(study, row=place), archive_name(study, row=place)
    return SimpleNamespace(
        place=place,
        row=row,
        lengths=figures_of(row),
        worst=f"{passed}: a micro-batch of {longest} tokens a row, the longest this workload allows",
        support=tuple(by_number[n] for n in row.trials[:MOST_TRIALS] if n in by_number),
        exported=exported,
        copies=copies(study, row.configuration, exported, command, name, f"copy-{place}"),
    )


def first_shares(reading: StudyReading) -> KnobShares | None:
    """Returns each changed knob's share of the first row's gain; ``None`` without a recommendation."""
    row = reading.first_row
    return None if row is None else knob_shares(reading.trials, reading.study.spec.baseline, row.configuration)


def _fingerprint(reading: StudyReading) -> tuple[tuple[str, str], ...]:
    seen = reading.fingerprint
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
