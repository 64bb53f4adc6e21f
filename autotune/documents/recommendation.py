"""The public JSON of a recommendation; names and units as in ``autotune.documents.study``."""

from __future__ import annotations

from autotune.documents.study import Document, configuration_json, fields_json, plain, timestamp
from autotune.domain import Gain, LengthFigure, Objective, Recommendation, RecommendationRow
from autotune.statistics.lengths import figures_of


def recommendation_json(recommendation: Recommendation) -> Document:
    """What a study hands back; intervals are two-sided 95 %, that of a gain its ``level``."""
    return {
        "study": plain(recommendation.study),
        "rows": [row_json(row) for row in recommendation.rows],
        "baseline": plain(recommendation.baseline),
        "reference": recommendation.reference,
        "ended_by": plain(recommendation.ended_by),
        "notes": plain(recommendation.notes),
        "fingerprint": plain(recommendation.fingerprint),
        "created_at": timestamp(recommendation.created_at),
    }


def row_json(row: RecommendationRow) -> Document:
    """One configuration with its evidence."""
    return {
        "title": plain(row.title),
        "configuration": configuration_json(row.configuration),
        "changes": plain(row.changes),
        "tokens_per_hour": plain(row.tokens_per_hour),
        "tokens_per_hour_low": plain(row.low),
        "tokens_per_hour_high": plain(row.high),
        "gpus": row.gpus,
        "tokens_per_hour_per_gpu": plain(row.tokens_per_hour_per_gpu),
        "maximum_length_tokens_per_hour": plain(row.maximum_tokens_per_hour),
        "at_lengths": [length_json(figure) for figure in figures_of(row)],
        "gain": None if row.gain is None else gain_json(row.gain),
        "objective": row.objective.value,
        "gain_per_hour": _gain(row, Objective.PER_HOUR),
        "gain_per_gpu_hour": _gain(row, Objective.PER_GPU_HOUR),
        "confirmed": row.confirmed,
        "worst_case_passed": row.worst_case_passed,
        "phase_shares": plain(row.phase_shares),
        "limit": plain(row.limit),
        "host_peak_bytes": row.host_peak,
        "device_peak_bytes": row.device_peak,
        "headroom_share": plain(row.headroom),
        "trials": list(row.trials),
    }


def _gain(row: RecommendationRow, objective: Objective) -> Document | None:
    found = row.gain_in(objective)
    return None if found is None or (objective is Objective.PER_GPU_HOUR and not row.gpus) else gain_json(found)


def gain_json(gain: Gain) -> Document:
    """Ratios minus one: 0.25 is 25 % faster."""
    return fields_json(gain)


def length_json(figure: LengthFigure) -> Document:
    """Tokens/hour at 1x, 2x or the maximum length; ``null`` where that was not measured."""
    return fields_json(figure, {"mean_length": "mean_completion_tokens"})
