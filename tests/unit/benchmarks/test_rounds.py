"""Rounds of what is compared, within a time limit; and which configuration counts as competent."""

from __future__ import annotations

from autotune.domain import Configuration, Trial
from benchmarks.gpu.rounds import GUESS_S, expected_s, ratios, run_rounds
from tests.support import factories as f

BASE, FAST = f.configuration(), f.configuration(micro_batch_size=4, gradient_accumulation_steps=2)
OTHER = f.configuration(attn_implementation="eager")
CHOSEN = {"defaults": BASE, "competent": OTHER, "same learning": FAST}


class Machine:
    """Runs take ``seconds`` of a clock; those of ``broken`` fail, and one the end comes in is cut off."""

    def __init__(self, end: float, seconds: float = 10.0, broken: tuple[Configuration, ...] = ()) -> None:
        self.end, self.seconds, self.broken = end, seconds, broken
        self.now = 0.0
        self.kept: list[tuple[str, int]] = []
        self.bounds: list[float] = []

    def left(self) -> float:
        return self.end - self.now

    def run(self, configuration: Configuration, most_s: float) -> Trial:
        self.bounds.append(most_s)
        self.now += min(self.seconds, most_s)
        if configuration in self.broken or self.seconds > most_s:
            return f.failed(0, configuration=configuration, seconds=self.seconds)
        return f.finished(0, configuration=configuration, seconds=self.seconds, cycle_seconds=5.0)

    def keep(self, label: str, number: int, trial: Trial) -> None:
        self.kept.append((label, number))

    def rounds(self, took: float = 10.0) -> dict[str, list[Trial]]:
        return run_rounds(CHOSEN, dict.fromkeys(CHOSEN, took), self.run, self.left, self.keep)


def test_only_rounds_that_end_in_time_begin_and_every_second_one_is_turned_round() -> None:
    machine = Machine(end=95.0)
    found = machine.rounds()
    assert {label: len(runs) for label, runs in found.items()} == dict.fromkeys(CHOSEN, 3)
    order = list(CHOSEN)
    assert [label for label, _ in machine.kept] == [*order, *order[::-1], *order]
    assert [number for _, number in machine.kept] == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert machine.now <= machine.end


def test_a_round_the_end_came_within_counts_for_nobody_but_its_runs_are_kept() -> None:
    machine = Machine(end=25.0)
    assert machine.rounds(took=1.0) == {}
    assert [label for label, _ in machine.kept] == ["defaults", "competent", "same learning"]
    assert machine.bounds == [25.0, 15.0, 5.0]


def test_what_fails_is_left_out_and_the_others_go_on() -> None:
    machine = Machine(end=70.0, broken=(OTHER,))
    found = machine.rounds()
    assert sorted(found) == ["defaults", "same learning"]
    assert [label for label, _ in machine.kept].count("competent") == 1
    assert len(found["defaults"]) == len(found["same learning"]) >= 2
    assert Machine(end=70.0, broken=(OTHER, FAST)).rounds().keys() <= {"defaults"}


def test_the_ratios_name_what_they_are_over() -> None:
    ran = {
        "defaults": [f.finished(0, cycle_seconds=10.0)],
        "competent": [f.finished(0, cycle_seconds=5.0)],
        "same learning": [f.finished(0, cycle_seconds=2.5)],
    }
    assert ratios(ran) == [
        "competent / defaults: 2.00 (1 round, no interval)",
        "same learning / defaults: 4.00 (1 round, no interval)",
        "same learning / competent: 2.00 (1 round, no interval)",
    ]
    twice = {label: runs * 2 for label, runs in ran.items()}
    assert "95 % interval 4.00 to 4.00, 2 rounds" in ratios(twice)[1]
    assert ratios({}) == []


def test_a_run_is_expected_to_take_what_it_took_in_the_study() -> None:
    trials = [f.finished(0, configuration=BASE, seconds=80.0), f.finished(1, configuration=BASE, seconds=90.0)]
    assert expected_s(CHOSEN, trials) == {"defaults": 90.0, "competent": GUESS_S, "same learning": GUESS_S}
