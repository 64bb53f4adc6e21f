"""Decisions on recorded costs: the machine is as recorded, and what a study decides on it in eight minutes."""

from __future__ import annotations

import json
import statistics
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.domain import CycleKind, Pool
from benchmarks.decisions import __main__ as command
from benchmarks.decisions import record, recorded, report, studies
from benchmarks.decisions.machine import H100, Costs
from benchmarks.decisions.runner import SimulatedCrew
from benchmarks.decisions.studies import Place, Verdict, h100, run
from benchmarks.worlds.arms import ARMS


@pytest.fixture(scope="module")
def place() -> Place:
    """The recorded machine with the space of one GPU's users."""
    return h100()


@pytest.fixture(scope="module")
def verdicts(place: Place) -> list[Verdict]:
    """Three studies of eight minutes."""
    return [run(place, ARMS["ours"], 480.0, seed) for seed in range(3)]


def test_eight_minutes_at_the_recorded_costs_prove_a_gain_by_a_round(place: Place, verdicts: list[Verdict]) -> None:
    assert {"precision", "num_generations"} <= set(place.space.values), "the space is the shipped one"
    assert all(v.proven and not v.falsely and v.rounds >= 1 for v in verdicts)
    assert all(v.unused_s >= -10 for v in verdicts), "no more than the grace"


def test_the_same_seed_gives_the_same_study(place: Place, verdicts: list[Verdict]) -> None:
    assert run(place, ARMS["ours"], 480.0, 0) == verdicts[0]


def test_the_machine_is_pinned_at_what_was_recorded(place: Place) -> None:
    baseline, machine = place.spec.baseline, H100()
    assert sum(machine.phases(baseline).values()) == pytest.approx(statistics.median(recorded.PLAIN_STEP_S), rel=0.05)
    vllm = baseline.with_(rollout_engine="vllm")
    cycles = [s for process in recorded.VLLM_S for s in process]
    assert sum(machine.phases(vllm).values()) == pytest.approx(statistics.fmean(cycles), rel=0.05)
    assert (machine.peaks(vllm, 0.5)["update"].device_used or 0) / 2**30 == pytest.approx(52.7, abs=0.5)
    full = vllm.with_(gpu_memory_utilization=0.8)
    assert machine.ooms(full, 0.5) == ("first_batch", Pool.DEVICE), "as recorded"
    assert (machine.fits(vllm), machine.fits(full)) == (1.0, 0.0)
    wide = vllm.with_(micro_batch_size=32)
    assert machine.phases(wide)["update"] == pytest.approx(recorded.UPDATE_32_S)


def test_on_a_cold_machine_imports_are_refused_once_and_a_process_serves_three_trials(place: Place) -> None:
    baseline, cold = place.spec.baseline, H100(Costs.COLD)
    for configuration, refused in ((baseline, 10.0), (baseline.with_(rollout_engine="vllm"), 19.5)):
        first, later = (cold.start(configuration, engines, kept=False) for engines in (0, 1))
        assert first.unnamed - later.unnamed == pytest.approx(refused)
        assert later.parts["import"] > 9, "nothing is forked"
    assert first.parts["engine"] == recorded.COLD_ENGINE_S > 2 * later.parts["engine"]
    assert [cold.keeps(baseline, served) for served in (1, 2, 3)] == [True, True, False]
    assert H100().keeps(baseline, 99)
    first_timed, next_one = (cold.factor(baseline, CycleKind.RECORDED, place, kept=True) for place in (1, 2))
    assert first_timed > 1.3 * next_one, "it is repeated to settle"


def test_on_the_last_visits_machine_vllm_crashes_always_or_once(place: Place) -> None:
    vllm = place.spec.baseline.with_(rollout_engine="vllm")
    always, once = H100(Costs.LAST), H100(Costs.ONCE)
    assert [bool(always.start(vllm, engines, kept=False).crash) for engines in range(3)] == [True, True, True]
    assert [bool(once.start(vllm, engines, kept=False).crash) for engines in range(3)] == [True, False, False]
    assert once.start(vllm, 1, kept=False).parts["engine"] == recorded.COLD_ENGINE_S, "nothing was compiled before"
    assert (always.fits(vllm), once.fits(vllm)) == (0.0, 1.0)
    cycle = sum(always.phases(place.spec.baseline).values())
    assert cycle == pytest.approx(8.6, rel=0.05), "the mean of the recorded baseline's timed cycles"


@pytest.mark.parametrize(("costs", "budget"), [(Costs.COLD, 400.0), (Costs.COLD, 480.0), (Costs.ONCE, 480.0)])
def test_a_gain_is_proven_on_the_visits_costs_and_in_time(costs: Costs, budget: float) -> None:
    for seed in range(2):
        verdict = run(h100(costs), ARMS["ours"], budget, seed)
        assert verdict.proven, verdict.found
        assert not verdict.falsely
        assert verdict.search_trials >= 2
        assert verdict.unused_s >= -10, "the answer is there ten seconds after the budget at the latest"


@pytest.mark.parametrize("costs", list(Costs))
def test_no_study_outlasts_its_budget_by_more_than_ten_seconds(costs: Costs) -> None:
    verdict = run(h100(costs), ARMS["ours"], 300.0, 1)
    assert verdict.unused_s >= -10
    assert not verdict.falsely


def test_the_figures_name_what_was_never_reached(verdicts: list[Verdict]) -> None:
    never = [replace(v, close_s=float("inf")) for v in verdicts]
    found = report.figures(never)
    assert found["seconds_to_proven"] is None
    assert found["close_share"] == 0
    assert json.dumps(found)


def test_an_answer_without_a_round_proves_nothing(place: Place) -> None:
    verdict = run(place, ARMS["ours"], 200.0, 0)
    assert verdict.rounds == 0
    assert not verdict.proven


def test_a_recorded_study_is_read_again_and_not_run_again(
    verdicts: list[Verdict], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "studies.jsonl"
    never = replace(verdicts[1], close_s=float("inf"))
    record.append(file, "h100", "ours", verdicts[0])
    record.append(file, "h100", "ours", never)
    assert record.read(file) == {("h100", "ours", 480.0, 0): verdicts[0], ("h100", "ours", 480.0, 1): never}
    ran = []
    monkeypatch.setattr(record, "run", lambda *key, **more: ran.append((*key[2:], more)) or verdicts[2])
    words = ["--arms", "ours", "--budget", "480", "--studies", "3", "--record", str(file), "--json"]
    assert command.main(words) == 0
    assert ran == [(480.0, 2, 1, {"nodes": 1})], "two of the three were there"
    assert json.loads(capsys.readouterr().out)["budgets"]["480"]["studies"] == 3
    assert len(record.read(file)) == 3
    assert command.main(words) == 0
    assert len(ran) == 1


def test_places_are_shared_out_over_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    crews = []

    class Seen(SimulatedCrew):
        def __init__(self, *given: object, **named: object) -> None:
            super().__init__(*given, **named)  # type: ignore[arg-type]
            crews.append(self)

    monkeypatch.setattr(studies, "SimulatedCrew", Seen)
    verdict = run(h100(), ARMS["own-random"], 240.0, 0, at_once=4, nodes=2)
    assert crews[0].nodes == ("node 1", "node 1", "node 2", "node 2")
    assert verdict.search_trials > 0
