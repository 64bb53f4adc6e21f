"""What a study ranks by where trials hold different numbers of GPUs: tokens/hour, or tokens per GPU-hour.

Eight GPUs made 1.25 times the tokens/hour of four here, so four are better by GPU-hour and eight by the hour.
"""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from autotune.documents.recommendation import row_json
from autotune.domain import Objective, StudySpec, Trial, TrialKind
from autotune.errors import UsageError
from autotune.insights.standings import best_first, standings
from autotune.proposals.forecasts import Task
from autotune.proposals.proposer import make_proposer
from autotune.proposals.translation import OptunaTrialStatus, evidence
from autotune.recommendation.recommend import recommend
from autotune.recommendation.whole_run import whole_run, whole_run_json, whole_run_words
from autotune.specification import build
from autotune.specification.request import ResolvedRequest
from autotune.store import open_store
from autotune.study.judging import Judge, judge_of
from autotune.wording.sentences import headline, row_gain_words
from search_spaces import legality
from search_spaces.batch import held_gpus, training_gpus
from search_spaces.configuration import KnobValue
from search_spaces.space import SearchSpace
from tests.support import factories as f
from tests.support.not_none import not_none

MACHINE = f.resources(gpus=8, device="cuda", device_memory=80 * f.GIB, rows_per_update=32, num_generations=4)


def on(gpus: int) -> f.domain.Configuration:
    accumulation = 32 // (2 * gpus)
    return f.configuration(
        training_gpus=gpus, gradient_accumulation_steps=accumulation, steps_per_generation=accumulation
    )


ALL, HALF = on(8), on(4)
SPEC = f.study_spec(resources=MACHINE, baseline=ALL)
PER_GPU = replace(SPEC, objective=Objective.PER_GPU_HOUR)
EIGHT_S, FOUR_S = 8.0, 10.0


def measured(spec: StudySpec) -> list[Trial]:
    found = [
        f.finished(0, kind=TrialKind.BASELINE, configuration=ALL, cycle_seconds=EIGHT_S),
        f.finished(1, configuration=HALF, cycle_seconds=FOUR_S),
    ]
    for pair in range(2):
        for place, (one, seconds) in enumerate(((ALL, EIGHT_S), (HALF, FOUR_S))):
            around = [seconds * 0.995, seconds, seconds * 1.005]
            number, kind = 2 + 2 * pair + place, TrialKind.CONFIRM
            found.append(f.finished(number, configuration=one, kind=kind, pair=pair, cycle_seconds=around))
    per_gpu = spec.objective is Objective.PER_GPU_HOUR
    return [t.with_(gpus=held_gpus(t.configuration, MACHINE), per_gpu=per_gpu) for t in found]


def test_the_objective_decides_the_answer() -> None:
    by_hour = recommend(SPEC, measured(SPEC), "x")
    by_gpu = recommend(PER_GPU, measured(PER_GPU), "x")
    assert by_hour.rows[0].configuration == ALL
    assert by_gpu.rows[0].configuration == HALF
    assert [s.configuration for s in standings(measured(PER_GPU), ALL, "trl")] == [HALF, ALL]
    assert [s.configuration for s in standings(measured(SPEC), ALL, "trl")] == [ALL, HALF]
    assert best_first(measured(PER_GPU))[0].configuration == HALF
    assert best_first(measured(SPEC))[0].configuration == ALL


def test_both_gains_are_stated_with_intervals_that_move_together() -> None:
    answer = not_none(recommend(PER_GPU, measured(PER_GPU), "x"))
    row = answer.rows[0]
    by_gpu, by_hour = not_none(row.gain_in(Objective.PER_GPU_HOUR)), not_none(row.gain_in(Objective.PER_HOUR))
    assert by_gpu == row.gain
    assert by_gpu.value == pytest.approx(0.6, abs=0.01)
    assert by_hour.value == pytest.approx(-0.2, abs=0.01)
    assert by_gpu.low > 0 > by_hour.high
    for mine, other in ((by_gpu.low, by_hour.low), (by_gpu.high, by_hour.high)):
        assert 1 + mine == pytest.approx(2 * (1 + other))
    document = row_json(row)
    assert document["gain_per_gpu_hour"]["value"] == by_gpu.value
    assert document["gain_per_hour"]["value"] == pytest.approx(by_hour.value)
    assert (document["gpus"], document["objective"]) == (4, "tokens-per-gpu-hour")
    said = row_gain_words(row)
    assert said.index("tokens per GPU-hour") < said.index("tokens/hour")
    assert "with 4 GPUs instead of 8" in said
    assert "tokens per GPU-hour over the baseline" in headline(row, answer, ALL)


def test_hours_and_money_are_those_of_the_gpus_each_side_holds() -> None:
    trials = measured(PER_GPU)
    run = not_none(whole_run(PER_GPU, trials, recommend(PER_GPU, trials, "x"), 360, price=2.0))
    document = not_none(whole_run_json(run))
    hours, cost = document["hours"], document["cost"]
    assert (document["gpus_before"], document["gpus"]) == (8, 4)
    assert hours["before"]["value"] == pytest.approx(0.8, rel=0.01)
    assert hours["after"]["value"] == pytest.approx(1.0, rel=0.01)
    assert hours["saved"]["value"] == pytest.approx(-0.2, rel=0.05)
    assert cost["before"]["value"] == pytest.approx(2.0 * 8 * 0.8, rel=0.01)
    assert cost["after"]["value"] == pytest.approx(2.0 * 4 * 1.0, rel=0.01)
    assert cost["saved"]["value"] == pytest.approx(2.0 * (6.4 - 4.0), rel=0.03)
    for figures in (hours, cost, document["gpu_hours"]):
        for which in ("before", "after", "saved"):
            assert figures[which]["low"] < figures[which]["value"] < figures[which]["high"]
    scale, saved = whole_run_words(run)
    assert "GPU-hours 4.0 instead of 6.4" in scale
    assert "the interval includes no hours saved" in saved
    assert "no GPU-hours saved" not in saved


def test_where_every_trial_held_as_many_it_is_said_that_both_rank_alike() -> None:
    trials = [t.with_(configuration=ALL, gpus=8) for t in measured(PER_GPU) if t.configuration == ALL]
    alike, other = not_none(recommend(PER_GPU, trials, "x")), not_none(recommend(PER_GPU, measured(PER_GPU), "x"))
    assert any("held 8 GPUs" in note and "rank alike" in note for note in alike.notes)
    assert not any("rank alike" in note for note in other.notes)
    silent = not_none(recommend(SPEC, trials, "x"))
    assert not any("rank alike" in note for note in silent.notes)


def test_the_samplers_are_told_the_objective() -> None:
    values = {e.configuration: e.value for e in evidence(measured(PER_GPU))}
    assert values[HALF] - values[ALL] == pytest.approx(math.log(1.6))
    plain = {e.configuration: e.value for e in evidence(measured(SPEC))}
    assert plain[HALF] - plain[ALL] == pytest.approx(math.log(0.8))
    assert list(Task.of(PER_GPU).log_divisors([ALL, HALF])) == pytest.approx([math.log(8), math.log(4)])
    assert not Task.of(SPEC).log_divisors([ALL, HALF]).any()


def test_a_stopped_trials_bound_is_in_tokens_per_hour_and_ranked_in_the_objective() -> None:
    trials = measured(PER_GPU)
    looked = f.protocol(looks=(3, 5, 8), recorded=8)
    slow = f.trial(9, configuration=on(8).with_(gradient_checkpointing=False), protocol=looked)
    running = slow.with_(gpus=8, per_gpu=True, cycles=tuple(f.cycle(i, seconds=8.0) for i in range(3)))
    judge = judge_of(PER_GPU, running, trials, lambda: 1e9)
    assert isinstance(judge, Judge)
    judge.see(running)
    assert judge.ceiling is not None, "as fast as the baseline, but four GPUs have 1.6 times as much by GPU-hour"
    assert judge.ceiling.at_most > 0.9 * (running.with_(state=trials[0].state).tokens_per_hour or 0.0)
    assert judge.ceiling.at_most < judge.ceiling.best_at_least
    ended = running.with_(state=f.domain.TrialState.PRUNED, outcome=f.domain.Outcome(ceiling=judge.ceiling))
    (observation,) = evidence([ended])
    assert observation.standing is OptunaTrialStatus.CENSORED
    assert observation.value == pytest.approx(math.log(judge.ceiling.at_most / 8))
    by_hour = not_none(judge_of(SPEC, running.with_(per_gpu=False), measured(SPEC), lambda: 1e9))
    by_hour.see(running.with_(per_gpu=False))
    assert by_hour.ceiling is None


def _second_choice(objective: Objective) -> int:
    """GPUs of the first proposal that is no opening."""
    space = {"knobs": {"training_gpus": [1, 2, 4, 8], "gradient_checkpointing": [True, False]}}
    spec = replace(SPEC, space=space, objective=objective, sampler="grey")
    proposer = make_proposer(SearchSpace.from_json(space), ALL, MACHINE, "grey", 0, task=Task.of(spec))
    per_gpu = objective is Objective.PER_GPU_HOUR
    trials = [f.finished(0, kind=TrialKind.BASELINE, configuration=ALL, cycle_seconds=8.0)]
    while True:
        trials[-1] = trials[-1].with_(gpus=held_gpus(trials[-1].configuration, MACHINE), per_gpu=per_gpu)
        proposed = not_none(proposer.propose(trials, len(trials)))
        configuration, source = proposed
        if source.startswith("grey"):
            return training_gpus(configuration, MACHINE)
        trials.append(f.finished(len(trials), configuration=configuration, cycle_seconds=6.4))


def test_grey_looks_where_the_objective_is_good() -> None:
    assert _second_choice(Objective.PER_GPU_HOUR) < _second_choice(Objective.PER_HOUR)


def test_a_trial_is_stored_with_the_gpus_it_holds() -> None:
    store = open_store(":memory:")
    study = store.create_study(PER_GPU, 1.0)
    store.add_trial(study.id, f.draft(configuration=HALF), 1.0)
    (stored,) = store.trials(study.id)
    assert (stored.gpus, stored.per_gpu, stored.divisor) == (4, True, 4)
    assert store.study(study.id).spec.objective is Objective.PER_GPU_HOUR
    store.close()


def test_the_objective_is_part_of_the_identity() -> None:
    assert PER_GPU.digest != SPEC.digest


def test_gpu_hours_of_a_cpu_run_are_refused() -> None:
    asked = ResolvedRequest(objective=Objective.PER_GPU_HOUR)
    with pytest.raises(UsageError, match="this is a CPU run"):
        build.specification(asked, SPEC.workload, SearchSpace.from_json(SPEC.space), ALL, f.resources())


@pytest.mark.parametrize(
    ("values", "held", "said"),
    [
        ({"training_gpus": 4}, 4, ""),
        ({}, 8, ""),
        ({"training_gpus": 9}, 8, "8 of 8 GPUs are left"),
        ({"training_gpus": 4, "rollout_engine": "vllm", "rollout_mode": "server", "rollout_gpus": 2}, 6, ""),
        ({"training_gpus": 7, "rollout_engine": "vllm", "rollout_mode": "server", "rollout_gpus": 2}, 8, "6 of 8"),
    ],
)
def test_training_has_the_gpus_it_asks_for(values: dict[str, KnobValue], held: int, said: str) -> None:
    assert held_gpus(values, MACHINE) == held
    found = [v.sentence for v in legality.check(f.domain.Configuration(values), MACHINE) if v.rule == "training_split"]
    assert ([said in sentence for sentence in found] == [True]) if said else not found
