"""The public JSON of a recommendation; names and units as in ``autotune.documents.study``."""

from __future__ import annotations

from autotune.documents.study import Document, fields_json, plain, timestamp
from autotune.domain import Gain, Objective, Recommendation, RecommendationRow
from autotune.statistics.lengths import figures_of


def recommendation_json(recommendation: Recommendation) -> Document:
    """Converts a recommendation to JSON. Intervals are two-sided 95 %, that of a gain its ``level``."""
    rows = [row_json(row) for row in recommendation.rows]
    return {
        **fields_json(recommendation, {"rows": ""}),
        "rows": rows,
        "created_at": timestamp(recommendation.created_at),
    }


_ROW = {
    **dict.fromkeys(("gain", "lengths", "reference_gpus"), ""),
    "low": "tokens_per_hour_low",
    "high": "tokens_per_hour_high",
    "maximum_tokens_per_hour": "maximum_length_tokens_per_hour",
    "host_peak": "host_peak_bytes",
    "device_peak": "device_peak_bytes",
    "headroom": "headroom_share",
}


def row_json(row: RecommendationRow) -> Document:
    """Converts one recommended configuration with its evidence to JSON."""
    return {
        **fields_json(row, _ROW),
        "tokens_per_hour_per_gpu": plain(row.tokens_per_hour_per_gpu),
        "at_lengths": [fields_json(figure, {"mean_length": "mean_completion_tokens"}) for figure in figures_of(row)],
        "gain": None if row.gain is None else gain_json(row.gain),
        "gain_per_hour": _gain(row, Objective.PER_HOUR),
        "gain_per_gpu_hour": _gain(row, Objective.PER_GPU_HOUR),
    }


def _gain(row: RecommendationRow, objective: Objective) -> Document | None:
    found = row.gain_in(objective)
    return None if found is None or (objective is Objective.PER_GPU_HOUR and not row.gpus) else gain_json(found)


def gain_json(gain: Gain) -> Document:
    """Converts a gain to JSON: ratios minus one, so 0.25 is 25 % faster."""
    return fields_json(gain)
