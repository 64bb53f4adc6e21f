"""Explains a recommendation: limits of its speed, contributions of knobs, and ruled-out configurations. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.domain import Configuration, RecommendationRow, StudySpec, Trial
from autotune.insights.related import began_words
from autotune.insights.why import RowReasons, RuledOut, RulingCause, Why, by_trials, failed_neighbours, neighbour_words
from autotune.proposals import dominance
from autotune.proposals.candidate_grid import CandidateGrid
from autotune.recommendation.reading import StudyReading
from autotune.statistics import evidence
from autotune.statistics.knob_shares import knob_shares
from search_spaces.errors import SpaceError
from search_spaces.space import SearchSpace

MOST_COUNTED = 10_000
"""Most combinations that are compared with a memory failure; a larger space is sampled."""


def explain(found: StudyReading) -> Why | None:
    """Returns the reasons; ``None`` without a recommendation, or for a space that this version cannot read."""
    spec, trials, recommendation = found.study.spec, tuple(found.trials), found.recommendation
    anchor = evidence.reference(trials, spec.baseline)
    if recommendation is None or not recommendation.rows or anchor is None:
        return None
    try:
        space = SearchSpace.from_json(spec.space)
    except SpaceError:
        return None
    answers = {n for row in recommendation.rows for n in row.trials}
    answers |= {t.number for t in trials if t.configuration == anchor.configuration}
    explanation = space.explain(spec.baseline, spec.resources)
    legality = [
        RuledOut(
            RulingCause.LEGALITY,
            name,
            count,
            explanation.examples[name].sentence.partition("; nearest legal")[0],
            exact=explanation.exact,
        )
        for name, count in explanation.removed.items()
    ]
    return Why(
        rows=tuple(_row(trials, row, spec.baseline) for row in recommendation.rows),
        ruled_out=(
            *legality,
            *_by_memory(spec, space, trials, explanation.legal),
            *by_trials(trials, sorted(answers), _faster(spec, trials, recommendation.rows)),
        ),
        combinations=explanation.combinations,
        legal=explanation.legal,
        tried=len({t.configuration for t in trials if t.started_at is not None}),
        exact=explanation.exact,
        began=began_words(found.study.beforehand),
    )


def _faster(spec: StudySpec, trials: Sequence[Trial], rows: Sequence[RecommendationRow]) -> frozenset[Configuration]:
    """Returns the configurations that measured faster than the recommended one of their row."""

    def answer(configuration: Configuration) -> float:
        same = evidence.same_learning(configuration, spec.baseline, spec.framework)
        return (rows[0] if same else rows[-1]).tokens_per_hour

    held = evidence.feasible(trials)
    return frozenset(c for c, runs in held.items() if evidence.speed(runs) > answer(c))


def _row(trials: Sequence[Trial], row: RecommendationRow, baseline: Configuration) -> RowReasons:
    failed = failed_neighbours(trials, row.configuration)
    beyond = [f"one step further, {neighbour_words(f)}" for f in failed if (f.cause or "").startswith("OOM")]
    shares = knob_shares(trials, baseline, row.configuration)
    return RowReasons(row.title, tuple(filter(None, (row.limit, *beyond))), shares, failed)


def _by_memory(spec: StudySpec, space: SearchSpace, trials: Sequence[Trial], legal: int) -> list[RuledOut]:
    """Returns memory failures, each with the number of legal combinations that need at least as much; these overlap."""
    regions = dominance.regions(trials, one_memory=spec.resources.device == "cpu")
    if not regions:
        return []
    candidates = space.candidates(spec.baseline, spec.resources, same_learning=False, limit=MOST_COUNTED)
    grid = CandidateGrid(candidates, (), ())
    found = []
    for region in regions:
        covered = ~grid.without((), [region])
        count = int(covered.sum())
        if not count:
            continue
        example = candidates[int(covered.argmax())]
        sentence = dominance.sentence(region, example)
        where = f"trial {region.trial}"
        scaled = round(count * legal / len(candidates)) if len(candidates) < legal else count
        found.append(RuledOut(RulingCause.MEMORY, where, scaled, sentence, (region.trial,), len(candidates) >= legal))
    return sorted(found, key=lambda r: -r.count)
