"""A machine's clock may be set back in the middle of a study."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.domain import Budget, Outcome, Trial
from autotune.machine.clock import ForwardClock
from autotune.recommendation.reading import AnswerSource, read_study
from autotune.store import open_store
from search_spaces.space import SearchSpace
from tests.support import factories as f
from tests.support.fakes import FakeClock
from tests.support.not_none import not_none
from tests.support.simulated import SimulatedRunner, study_loop

SPACE = SearchSpace.from_json({"knobs": {"micro_batch_size": [1, 2, 4, 8], "precision": ["fp32", "bf16"]}})
HOUR_S = 3600.0


class SetBack(FakeClock):
    """Its time of day can be moved; what it counts goes on."""

    behind = 0.0

    def now(self) -> float:
        return super().now() - self.behind


@given(st.lists(st.floats(0, 2e9), min_size=1, max_size=30))
def test_no_time_is_before_one_told_earlier(moments: list[float]) -> None:
    machine = SetBack()
    clock, times = ForwardClock(machine), []
    for moment in moments:
        machine.behind = FakeClock.now(machine) - moment
        times.append(clock.now())
        assert times[-1] >= machine.now() - 1e-6
    assert times == sorted(times)
    clock.not_before(times[-1] + 5.0)
    machine.behind += HOUR_S
    assert clock.now() > times[-1] + 5.0


class Study:
    """Runs of a study on one clock; ``at`` a trial it is set back by an hour."""

    def __init__(self) -> None:
        self.clock, self.store = SetBack(), open_store(":memory:")
        self.spec = f.study_spec(space=SPACE.as_json(), sampler="random")
        self.study = self.store.create_study(self.spec, self.clock.now())

    def run(self, trials: int, at: int | None = None) -> None:
        def tamper(trial: Trial) -> Outcome | None:
            if trial.number == at:
                self.clock.behind += HOUR_S
            return None

        runner = SimulatedRunner(self.clock, tamper=tamper)
        study_loop(self.store, self.study.id, self.clock, Budget(max_trials=trials), runner=runner).run()


@pytest.mark.parametrize("at", [1, 3])
def test_the_recommendation_of_a_study_whose_clock_went_back_stands(at: int) -> None:
    node = Study()
    node.run(4, at)
    found = read_study(node.store, node.study)
    assert found.source is AnswerSource.RECOMMENDATION
    ended = [t.finished_at for t in found.trials]
    assert ended == sorted(ended, key=float)  # type: ignore[arg-type]
    assert [e.at for e in node.store.events(1)] == sorted(e.at for e in node.store.events(1))


def test_what_ended_after_the_answer_is_known_to_have() -> None:
    """The clock goes back between two runs of the tuner."""
    node = Study()
    node.run(3)
    before = not_none(node.store.recommendation(1))
    node.clock.behind += HOUR_S
    node.run(4)
    found = read_study(node.store, node.study)
    assert found.source is AnswerSource.RECOMMENDATION
    assert not_none(found.stored).created_at > before.created_at
    assert max(t.finished_at or 0.0 for t in found.trials) > before.created_at
