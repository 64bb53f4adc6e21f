"""What a search knows before its first trial: found out once, stored, and the same after a resume."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune import wiring
from autotune.domain import Outcome, PriorKnowledge, Study, TrialKind, TrialState
from autotune.errors import UsageError
from autotune.ports import Store
from autotune.proposals.forecasts import PriorData
from autotune.proposals.samplers.grey import models_for
from autotune.proposals.times import PhaseTimes
from autotune.specification import prior_knowledge
from autotune.store import open_store
from tests.support import factories as f
from tests.support.recorded import record
from tests.support.timed_machine import task
from trainer.child.contract import Result

ANSWER: Mapping[str, Any] = {
    "device": "cpu",
    "name": "cpu x86_64",
    "flops": {"fp32": 1.5e11, "bf16": 3e11},
    "bandwidth": 1.2e10,
    "kernel_s": 2e-6,
}
SPACE = {"knobs": {"micro_batch_size": [1, 2, 4, 8], "precision": ["fp32", "bf16"], "logprob_rows": [1, 2, 4]}}


class Asked:
    """An interpreter whose probe is made up."""

    def __init__(self, ok: bool = True, message: str = "") -> None:
        self.result = Result(ok=ok, data=dict(ANSWER) if ok else {}, message=message)
        self.questions: list[tuple[Mapping[str, Any], str]] = []

    def __call__(self, hardware: Mapping[str, Any], device: str) -> Result:
        self.questions.append((dict(hardware), device))
        return self.result


@pytest.fixture
def store() -> Store:
    return open_store(":memory:")


def made(store: Store, sampler: str = "grey", name: str = "first") -> Study:
    return store.create_study(f.study_spec(name, sampler=sampler, space=SPACE), f.NOW)


def test_the_device_is_measured_once_and_kept_with_the_study(store: Store) -> None:
    said: list[str] = []
    python = Asked()
    study = prior_knowledge.begun(made(store), store, python, {"cpu": "this one"}, said.append)
    assert study.beforehand == PriorKnowledge(dict(ANSWER))
    assert store.study(study.id) == study
    assert prior_knowledge.begun(store.study(study.id), store, python, {"cpu": "this one"}, said.append) == study
    assert python.questions == [({"cpu": "this one"}, "cpu")]
    assert said == []


def test_who_waits_is_told_only_where_something_is_measured() -> None:
    class Kept:
        def __init__(self, known: bool) -> None:
            self.known = known

        def knows_speed(self, hardware: Mapping[str, Any], device: str) -> bool:
            return self.known

        def speed(self, hardware: Mapping[str, Any], device: str) -> Result:
            return Result(ok=True, data=dict(ANSWER))

    for known in (True, False):
        said: list[str] = []
        assert prior_knowledge.measuring(Kept(known), said.append)({}, "cpu").ok  # type: ignore[arg-type]
        assert bool(said) is not known


@pytest.mark.parametrize("sampler", ["tpe", "own:Sampler", "random"])
def test_who_forecasts_nothing_measures_nothing(store: Store, sampler: str) -> None:
    python = Asked()
    study = prior_knowledge.begun(made(store, sampler), store, python, {}, pytest.fail)
    assert study.beforehand is None
    assert python.questions == []


def test_a_study_that_has_trials_goes_on_as_it_began(store: Store) -> None:
    python, study = Asked(), made(store)
    store.add_trial(study.id, f.draft(TrialKind.BASELINE), f.NOW)
    store.start_attempt(study.id, 0, f.NOW)
    store.finish_trial(study.id, 0, TrialState.FAIL, f.oom(), f.NOW, 9.0, None)
    assert prior_knowledge.begun(store.study(study.id), store, python, {}, pytest.fail).beforehand is None
    assert python.questions == []
    assert prior_knowledge.prior_data(store.study(study.id), store).probe == {}


def test_a_probe_that_fails_is_told_and_not_tried_again(store: Store) -> None:
    said: list[str] = []
    study = prior_knowledge.begun(made(store), store, Asked(ok=False, message="no module named torch"), {}, said.append)
    assert study.beforehand == PriorKnowledge()
    assert "no module named torch" in said[-1]
    prior_knowledge.begun(store.study(study.id), store, Asked(), {}, pytest.fail)
    assert store.study(study.id).beforehand == PriorKnowledge()


def test_what_was_stored_decides_what_is_proposed_after_a_resume(store: Store) -> None:
    study = made(store)
    store.set_beforehand(study.id, PriorKnowledge(dict(ANSWER)))
    history = [f.finished(0, configuration=study.spec.baseline)]

    def proposals() -> list[Any]:
        there = store.study(study.id)
        proposer, trials = wiring.proposer_for(there.spec, prior_knowledge.prior_data(there, store)), list(history)
        found = []
        for number in range(1, 6):
            proposal = proposer.propose(trials, number)
            found.append(proposal)
            if proposal is not None:
                trials.append(f.finished(number, configuration=proposal[0], source=proposal[1]))
        return found

    assert proposals() == proposals()
    assert proposals()[0] is not None


def earlier(store: Store, name: str = "small", trials: int = 6, **resources: Any) -> Study:
    """A study on half of the cores that has measured something, its last trial running."""
    spec = f.study_spec(name, space=SPACE, resources=f.resources(**{"cpu_cores": 1, **resources}))
    study = store.create_study(spec, f.NOW)
    for number in range(trials):
        record(store, study, f.finished(number, configuration=f.numbered(number)))
    record(store, study, f.trial(trials, state=TrialState.RUNNING, configuration=f.numbered(trials)))
    return study


def test_it_begins_with_what_related_studies_have_measured_so_far(store: Store) -> None:
    said: list[str] = []
    there = earlier(store)
    earlier(store, "on other devices", device="cuda", gpus=1)
    earlier(store, "that measured nothing", trials=0)
    study = prior_knowledge.begun(made(store, name="here"), store, Asked(), {}, said.append)
    (found,) = study.beforehand.earlier
    assert (found.study_id, found.name, found.trials, found.distance) == (there.id, "small", tuple(range(6)), 1.0)
    assert said[-1] == "begins with 6 trials of study 'small': 1 cores instead of 2 (1.0 doublings away)"
    before = prior_knowledge.prior_data(study, store)
    store.finish_trial(there.id, 6, TrialState.COMPLETE, Outcome(), f.NOW, 1.0, 2 * f.GIB)
    assert prior_knowledge.prior_data(store.study(study.id), store) == before, "what it measured since does not count"
    (known,) = before.earlier
    assert [t.number for t in known.trials] == list(range(6))
    assert known.task.resources.cpu_cores == 1


def test_no_history_begins_with_none_and_is_kept(store: Store) -> None:
    earlier(store)
    study = prior_knowledge.begun(made(store, name="here"), store, Asked(), {}, lambda _: None, history=False)
    assert study.beforehand == PriorKnowledge(dict(ANSWER), (), history=False)
    assert prior_knowledge.begun(study, store, Asked(), {}, lambda _: None) == study


def test_a_study_that_began_with_history_is_not_continued_without(store: Store) -> None:
    earlier(store)
    study = prior_knowledge.begun(made(store, name="here"), store, Asked(), {}, lambda _: None)
    with pytest.raises(UsageError, match=r"'here' began with what study 'small' measured.*--no-history"):
        prior_knowledge.begun(study, store, Asked(), {}, lambda _: None, history=False)


@given(count=st.integers(0, 300), failed=st.sets(st.integers(0, 299)))
def test_of_many_trials_some_are_taken_spread_over_all(count: int, failed: set[int]) -> None:
    trials = [(f.failed if n in failed else f.finished)(n, configuration=f.numbered(n)) for n in range(count)]
    found = prior_knowledge.telling(trials)
    measured = [n for n in range(count) if n not in failed]
    assert list(found) == sorted(set(found))
    assert set(found) <= set(measured)
    assert len(found) == min(len(measured), prior_knowledge.MOST_TRIALS)
    assert found[:1] == tuple(measured[:1])


def hardware(answer: Mapping[str, Any], **changes: Any) -> Any:
    times = models_for(task(**changes), PriorData(answer)).times
    assert isinstance(times, PhaseTimes)
    return times.known.hardware


def test_the_models_use_the_probe_of_their_own_kind_of_device() -> None:
    found = hardware(ANSWER)
    assert (found.measured, found.bandwidth) == (True, 1.2e10)
    assert not hardware({}).measured
    assert not hardware({"flops": {}, "bandwidth": 1.0}).measured, "figures nobody can use"
    gpu = {**ANSWER, "device": "cuda", "name": "NVIDIA Something"}
    assert not hardware(gpu).measured, "a GPU says nothing of a study on the CPU"
    on_gpu = f.resources(device="cuda", gpus=1, device_memory=80 * f.GIB)
    assert hardware(gpu, resources=on_gpu).measured
    assert not hardware(ANSWER, resources=on_gpu).measured
