"""Predicts a run from its study: seconds, memory and other configurations at other lengths (``Tuned``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from autotune.domain import Configuration, RecommendationRow, Study, Trial
from autotune.proposals.forecasts import SURE, Task
from autotune.proposals.memory import MemoryModel
from autotune.recommendation.export import supporting
from autotune.recommendation.recommend import row_of
from autotune.statistics import evidence
from autotune.verify.compare_run import CycleShape, shape_of
from autotune.verify.length_model import CycleWork, LengthPrediction, predict_from
from autotune.wording.text import brief, clean


@dataclass(frozen=True)
class TunedRun:
    """Predictions for one of a study's configurations, as used by a training run."""

    study: Study
    configuration: Configuration
    prediction: LengthPrediction
    others: Mapping[Configuration, LengthPrediction]
    """The other feasible configurations that learn as the run's configuration does."""
    memory: MemoryModel

    @property
    def name(self) -> str:
        """Name of the study."""
        return clean(self.study.spec.name)

    @property
    def mean_length(self) -> float:
        """Mean completion length in tokens that the study measured."""
        return self.prediction.mean_length

    @property
    def longest_allowed(self) -> int:
        """Largest completion length in tokens that the study allows for."""
        return self.study.spec.workload.max_completion_length

    def seconds(self, mean: float, longest: float) -> float:
        """Predicts the seconds of an optimizer step with completions of these lengths."""
        return _cycle_s(self.prediction, mean, longest) / self.prediction.shape.updates

    def fits(self, longest: float) -> float:
        """Returns the probability that the configuration fits in memory if the longest completion has this length."""
        return self._fits(self.configuration, longest)

    def setting_for(self, longest: float) -> str:
        """Names the largest micro-batch that is sure to fit at this length, with the same completions per update."""
        rows, steps = (int(self.configuration.get(n, 1)) for n in ("micro_batch_size", "gradient_accumulation_steps"))
        for fewer in (n for n in range(rows - 1, 0, -1) if rows % n == 0):
            changed = {"micro_batch_size": fewer, "gradient_accumulation_steps": steps * rows // fewer}
            tried = self.configuration.with_(**{n: v for n, v in changed.items() if n in self.configuration})
            if self._fits(tried, longest) >= SURE:
                words = ", ".join(f"{name} {value}" for name, value in changed.items() if name in tried)
                return f"{words} fits up to {longest:,.0f}"
        return "no smaller micro-batch is sure to fit"

    def faster(self, mean: float, longest: float) -> tuple[str, float] | None:
        """Returns the fastest other configuration at these lengths that is sure to fit, and its gain in tokens/hour."""
        own = _rate(self.prediction, mean, longest)
        rates = {c: _rate(p, mean, longest) for c, p in self.others.items() if self._fits(c, longest) >= SURE}
        best = max(rates, key=rates.__getitem__, default=None)
        if best is None or rates[best] <= own:
            return None
        return f"the configuration with {brief(best, self.configuration)}", rates[best] / own - 1.0

    def _fits(self, configuration: Configuration, longest: float) -> float:
        task = replace(self.memory.task, max_completion_length=max(1, round(longest)))
        return float(replace(self.memory, task=task).forecast([configuration]).fits[0])


def tuned_run(
    study: Study, trials: Sequence[Trial], row: RecommendationRow, limit: float | None = None
) -> TunedRun | None:
    """Prepares a study's predictions for one of its configurations; ``None`` if its speed was not measured.

    Args:
        limit: memory in bytes, of one GPU or on a CPU of the host; by default the study's.
    """
    spec, task = study.spec, Task.of(study.spec)
    own = _prediction(study, trials, row)
    if own is None:
        return None
    others: dict[Configuration, LengthPrediction] = {}
    for configuration in evidence.feasible(trials):
        if configuration == row.configuration:
            continue
        if not evidence.same_learning(configuration, row.configuration, spec.framework):
            continue
        other = row_of(spec, trials, configuration)
        if other is not None and (found := _prediction(study, trials, other)) is not None:
            others[configuration] = found
    memory = MemoryModel.before(task).fitted(task, trials)
    if limit is not None and spec.resources.gpus:
        task = replace(task, resources=replace(spec.resources, device_memory=round(limit)))
    elif limit is not None:
        task = replace(task, memory_limit=round(limit))
    return TunedRun(study, row.configuration, own, others, replace(memory, task=task))


def _prediction(study: Study, trials: Sequence[Trial], row: RecommendationRow) -> LengthPrediction | None:
    alike = [t for t in trials if t.configuration == row.configuration]
    shape = shape_of(study, row.configuration)
    return predict_from(supporting(row, trials), row.tokens_per_hour, shape, alike)


def _generations(shape: CycleShape) -> float:
    return shape.rows / shape.generation_rows


def _cycle_s(prediction: LengthPrediction, mean: float, longest: float) -> float:
    """Predicts the seconds per cycle; an update's completions are padded to the longest."""
    shape, once = prediction.shape, prediction.at_once
    longer = longest - once.longest / _generations(shape)
    computed = max(0.0, once.computed + shape.trained_rows * longer)
    work = CycleWork(longest * _generations(shape), shape.rows * mean, computed)
    return sum(prediction.seconds_of(work).values())


def _rate(prediction: LengthPrediction, mean: float, longest: float) -> float:
    """Predicts completion tokens per second."""
    return prediction.shape.rows * mean / _cycle_s(prediction, mean, longest)
