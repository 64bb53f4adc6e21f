"""Report section on verification: long runs against the stated figures."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.domain import Study, Trial, TrialState
from autotune.insights.growth import growths
from autotune.recommendation.recommend import row_of
from autotune.report.found import against
from autotune.report.markdown import block
from autotune.statistics import evidence
from autotune.verify import long_run
from autotune.verify.compare_run import shape_of
from autotune.verify.length_model import predict_from
from autotune.verify.sentences import growth_lines, long_lines


def section(study: Study, trials: Sequence[Trial]) -> list[str]:
    """Compares long runs with the present figures of their configurations; empty without long runs."""
    said = []
    for trial in trials:
        if not long_run.is_long(trial) or trial.state is not TrialState.COMPLETE:
            continue
        verdict = verdict_of(study, trials, trial)
        if verdict is not None:
            natural, spec = long_run.natural(trial), study.spec
            memory = growths(natural, spec.memory_limit, spec.resources.device_memory)
            lines = [*long_lines(verdict), *growth_lines(memory, verdict.updates / verdict.cycles)]
            said += [f"Trial #{trial.number}, {against(trial, study)}:", block(lines)]
    how = (
        "Long runs at natural lengths in fresh processes. The prediction carries the stated figure over to the lengths "
        "of each cycle, phase by phase, by what the study's cycles at 1x, 2x and the maximum length took."
    )
    return [how, *said] if said else []


def verdict_of(study: Study, trials: Sequence[Trial], trial: Trial) -> long_run.LongVerdict | None:
    """Compares a long run with its configuration's present figure; ``None`` without one."""
    row = row_of(study.spec, trials, trial.configuration)
    if row is None:
        return None
    supporting = evidence.basis([t for t in trials if t.number in row.trials])
    prediction = predict_from(
        supporting,
        row.tokens_per_hour,
        shape_of(study, trial.configuration),
        long_run.alike(trials, trial.configuration),
    )
    return None if prediction is None else long_run.compare(prediction, long_run.natural(trial))
