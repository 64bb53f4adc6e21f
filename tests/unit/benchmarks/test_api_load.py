"""What the API's benchmark counts and when it asks."""

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.settings import read_settings
from autotune.store import open_store
from benchmarks.api import Asked, table
from benchmarks.load import due_times, quantile
from benchmarks.many_trials import fill


@given(values=st.lists(st.floats(0, 1e6), min_size=1, max_size=300), share=st.sampled_from([0.5, 0.95, 0.99, 1.0]))
def test_a_quantile_is_a_value_that_enough_do_not_exceed(values: list[float], share: float) -> None:
    found = quantile(values, share)
    assert found in values
    assert sum(v <= found for v in values) >= share * len(values) - 1e-9
    assert sum(v < found for v in values) < share * len(values) + 1e-9


def test_of_nothing_there_is_no_quantile() -> None:
    assert math.isnan(quantile([], 0.5))


@pytest.mark.parametrize(("clients", "rate", "seconds"), [(200, 1.0, 60.0), (3, 2.5, 4.0), (1, 10.0, 0.3)])
def test_each_client_asks_at_its_rate_and_not_all_at_once(clients: int, rate: float, seconds: float) -> None:
    schedule = due_times(clients, rate, seconds, 7)
    assert schedule == due_times(clients, rate, seconds, 7)
    assert len(schedule) == clients
    for due in schedule:
        assert all(0 <= at < seconds for at in due)
        assert abs(len(due) - seconds * rate) <= 1
        assert all(later - at == pytest.approx(1 / rate) for at, later in itertools.pairwise(due))
    assert clients == 1 or len({due[0] for due in schedule}) == clients


def test_a_study_of_many_trials_is_one_the_store_could_have_written(tmp_path: object) -> None:
    settings = read_settings({"AUTOTUNE_HOME": str(tmp_path)})
    settings.home.prepare()
    study = fill(settings.home.database, 40)
    store = open_store(settings.database)
    trials = store.trials(study.id)
    assert [t.number for t in trials] == list(range(40))
    assert len({t.configuration for t in trials}) >= 39
    assert sum(t.feasible for t in trials) == 36
    assert all(len(t.cycles) == 3 and t.cycles[0].phases for t in trials if t.feasible)
    assert all(t.state.is_finished and t.outcome is not None for t in trials)
    assert store.last_event_id(study.id) == 40
    assert store.events(study.id)[-1].trial == 39
    store.close()


def test_the_table_says_what_was_missed() -> None:
    figures = {"p50": 0.01, "p95": 0.02, "p99": 0.2, "requests": 9}
    found = {
        "latencies_s": {"trials page": figures},
        "statuses": {"200": 8, "0": 1},
        "writer_slower": 0.2,
        "write_alone_s": {"mean": 0.001},
        "write_beside_s": {"mean": 0.0012},
        "saturation_answers_a_second": 300.0,
        "listeners_that_heard_all": 3,
        "slow_listener_dropped": False,
        "first_reading_s": 1.0,
    }
    text = table(Asked(10, 1.0, 9, 1.0, 3, 0), found)
    assert text.count("missed") == 2
    assert "NOT dropped" in text
    assert "| trials page | 10.0 | 20.0 | 200.0 | 9 |" in text
