"""Leaders, references, noise and gains."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest

from autotune.domain import Configuration, FailureReason, Gain, Trial, TrialKind
from autotune.statistics import components, evidence, noise
from autotune.statistics.evidence import Row
from autotune.statistics.noise import NoisePrior
from autotune.study import judging
from tests.support import factories as f
from tests.support.not_none import not_none
from tests.support.properties import is_full

FASTER = f.configuration(micro_batch_size=4, gradient_accumulation_steps=2)
FOUR_TO_TWO = f.configuration(num_generations=2)
BASELINE = f.configuration()


def test_leader_of_each_row_is_the_fastest_feasible_one() -> None:
    trials = [
        f.finished(0, cycle_seconds=10.0),
        f.finished(1, configuration=FASTER, cycle_seconds=8.0),
        f.finished(2, configuration=FOUR_TO_TWO, cycle_seconds=5.0),
    ]
    found = {leader.row: leader.configuration for leader in evidence.leaders(trials, BASELINE, "trl")}
    assert found == {Row.SAME_LEARNING: FASTER, Row.PERMITTED: FOUR_TO_TWO}


def test_one_row_when_the_same_configuration_leads_both() -> None:
    trials = [f.finished(0), f.finished(1, configuration=FASTER, cycle_seconds=5.0)]
    assert [leader.row for leader in evidence.leaders(trials, BASELINE, "trl")] == [Row.SAME_LEARNING]


def test_a_configuration_that_failed_once_leads_nothing() -> None:
    trials = [
        f.finished(0),
        f.finished(1, configuration=FASTER, cycle_seconds=1.0),
        f.failed(2, configuration=FASTER, kind=TrialKind.CONFIRM),
    ]
    assert [leader.configuration for leader in evidence.leaders(trials, BASELINE, "trl")] == [BASELINE]


@pytest.mark.parametrize("reason", [FailureReason.INFRA, FailureReason.CANCELLED])
def test_a_failure_that_is_not_its_own_costs_a_configuration_nothing(reason: FailureReason) -> None:
    trials = [
        f.finished(0),
        f.finished(1, configuration=FASTER, cycle_seconds=1.0),
        f.failed(2, f.failure(reason), configuration=FASTER),
    ]
    assert evidence.leaders(trials, BASELINE, "trl")[0].configuration == FASTER


def test_worst_case_not_passed_is_not_feasible() -> None:
    trials = [f.finished(0), f.finished(1, configuration=FASTER, cycle_seconds=1.0, worst_case_passed=False)]
    assert evidence.leaders(trials, BASELINE, "trl")[0].configuration == BASELINE


def test_reference_is_the_baseline_or_the_first_that_held() -> None:
    later, first = f.finished(3, cycle_seconds=5.0), f.finished(2, configuration=FASTER, cycle_seconds=9.0)
    assert evidence.reference([f.finished(0), first, later], BASELINE).number == 0  # type: ignore[union-attr]
    assert (
        evidence.reference([f.failed(0, kind=TrialKind.BASELINE, configuration=BASELINE), first, later], BASELINE)
        == first
    )
    assert evidence.reference([f.failed(0, configuration=BASELINE)], BASELINE) is None


def test_confirmations_replace_the_flattering_search_figure() -> None:
    runs = [
        f.finished(1, configuration=FASTER, cycle_seconds=5.0),
        f.finished(2, configuration=FASTER, kind=TrialKind.CONFIRM, cycle_seconds=8.0, pair=0),
    ]
    assert evidence.speed(runs) == pytest.approx(runs[1].tokens_per_hour)


def _rounds(seconds: list[tuple[float, float]]) -> list[object]:
    trials: list[object] = [f.finished(0, configuration=BASELINE)]
    number = 1
    for pair, (base, fast) in enumerate(seconds):
        for configuration, value in ((BASELINE, base), (FASTER, fast)):
            trials.append(
                f.finished(number, configuration=configuration, kind=TrialKind.CONFIRM, cycle_seconds=value, pair=pair)
            )
            number += 1
    return trials


def test_gain_is_the_mean_of_paired_rounds() -> None:
    found = evidence.gain(_rounds([(10.0, 5.0), (20.0, 10.0)]), FASTER, BASELINE)  # type: ignore[arg-type]
    assert found.value == pytest.approx(1.0)
    assert found.pairs == 2
    assert found.low < 1.0 < found.high


def test_gain_without_rounds_says_so() -> None:
    found = evidence.gain([f.finished(0), f.finished(1, configuration=FASTER, cycle_seconds=5.0)], FASTER, BASELINE)
    assert (found.pairs, found.value) == (0, pytest.approx(1.0))


def test_gain_of_something_never_measured_is_none() -> None:
    assert evidence.gain([f.finished(0)], FASTER, BASELINE) is None


def test_an_interval_is_never_narrower_than_what_cycles_leave_open() -> None:
    trials = [
        f.finished(n, configuration=BASELINE, kind=TrialKind.CONFIRM, cycle_seconds=[6.0, 10.0, 16.0], pair=n)
        for n in range(4)
    ]
    within = math.log(16.0 / 6.0) / 2
    assert evidence.half_width(trials, trials[:1]) > 1.96 * within / math.sqrt(3)


@pytest.mark.parametrize(
    ("rounds", "process", "cycle"), [(2, 0.05, 0.05), (3, 0.03, 0.06), (3, 0.08, 0.05), (2, 0.01, 0.01)]
)
def test_it_covers_it_while_the_machine_drifts_and_begins_cold(rounds: int, process: float, cycle: float) -> None:
    """Every study's first trial is 20 % slow and each round another 5 %: neither may widen or shift the interval."""
    studies = 600 if is_full() else 200
    rng, held = random.Random(11), 0
    for _ in range(studies):
        trials = [f.finished(0, configuration=BASELINE, cycle_seconds=_cycles(rng, 12.0, process, cycle))]
        for pair in range(rounds):
            for configuration, seconds in ((BASELINE, 10.0), (FASTER, 8.0)):
                measured = _cycles(rng, seconds * 1.05**pair, process, cycle)
                kind = TrialKind.CONFIRM
                trials.append(
                    f.finished(len(trials), configuration=configuration, kind=kind, cycle_seconds=measured, pair=pair)
                )
        found = not_none(evidence.gain(trials, FASTER, BASELINE))
        held += found.low <= 0.25 <= found.high
        cycles = tuple(replace(c, seconds=c.seconds / 1.2) for c in trials[0].cycles)
        warm = not_none(evidence.gain([trials[0].with_(cycles=cycles), *trials[1:]], FASTER, BASELINE))
        assert (warm.low, warm.high) == pytest.approx((found.low, found.high))
    assert 0.9 * studies <= held <= studies


def _cycles(rng: random.Random, seconds: float, process: float, cycle: float) -> list[float]:
    offset = rng.gauss(0, process)
    return [seconds * math.exp(offset + rng.gauss(0, cycle)) for _ in range(3)]


def _measured(rng: random.Random, rounds: int, process: float, cycle: float, *, on_gpu: bool) -> list[Trial]:
    """A study of a baseline and ``rounds`` rounds of it and of one that is a quarter faster."""
    peaks = {"cycle": f.peaks(device_allocated=1 if on_gpu else None)}
    runs: list[tuple[TrialKind, int | None, Configuration, float]] = [(TrialKind.BASELINE, None, BASELINE, 10.0)]
    for pair in range(rounds):
        runs += [(TrialKind.CONFIRM, pair, BASELINE, 10.0), (TrialKind.CONFIRM, pair, FASTER, 8.0)]
    trials = []
    for kind, pair, configuration, seconds in runs:
        spent = _cycles(rng, seconds, process, cycle)
        one = f.finished(len(trials), configuration=configuration, kind=kind, cycle_seconds=spent, pair=pair)
        trials.append(one.with_(cycles=tuple(replace(c, peaks=peaks) for c in one.cycles)))
    return trials


def _gain(trials: list[Trial]) -> Gain:
    return not_none(evidence.gain(trials, FASTER, BASELINE))


@pytest.mark.parametrize("rounds", [1, 3])
@pytest.mark.parametrize("on_gpu", [False, True])
def test_on_either_device_intervals_hold_the_truth_as_often_as_they_say(on_gpu: bool, rounds: int) -> None:
    """Of studies whose processes differ as presumed: their variances with as many degrees as the presumption counts."""
    recorded, studies = noise.recorded_process(on_gpu=on_gpu), 400 if is_full() else 200
    rng, held, held_as_on_cpu = random.Random(f"{on_gpu}/{rounds}"), 0, 0
    for _ in range(studies):
        chi_squared = 2 * rng.gammavariate(recorded.degrees / 2, 1.0)
        process = math.sqrt(recorded.variance * recorded.degrees / chi_squared)
        trials = _measured(rng, rounds, process, noise.CYCLE_SPREAD / 3, on_gpu=on_gpu)
        found = _gain(trials)
        held += found.low <= 0.25 <= found.high
        if on_gpu:
            bare = [t.with_(cycles=tuple(replace(c, peaks={}) for c in t.cycles)) for t in trials]
            narrow = _gain(bare)
            held_as_on_cpu += narrow.low <= 0.25 <= narrow.high
    least, most = (0.92, 0.98) if rounds == 1 else (0.95, 0.995)  # an interval of 95 %, of 98 % from two rounds on
    assert least * studies <= held <= most * studies
    if on_gpu:
        assert held_as_on_cpu < 0.92 * studies, "a CPU's processes tell too little of a GPU's"


@pytest.mark.parametrize("on_gpu", [False, True])
@pytest.mark.parametrize("cycle", [0.005, 0.2])
def test_the_rounds_and_the_stopping_rule_presume_the_same_of_processes(on_gpu: bool, cycle: float) -> None:
    trials = _measured(random.Random(5), 0, 0.0, cycle, on_gpu=on_gpu)
    spec = f.study_spec(resources=f.resources(device="cuda" if on_gpu else "cpu"))
    known = judging.known_of(spec, trials, FASTER)
    assert evidence.process_noise(trials).process.variance == pytest.approx(known.between)
    assert trials[0].on_gpu is on_gpu


def test_a_machine_whose_rounds_scatter_is_believed() -> None:
    """Two rounds that disagree by a factor of two prove nothing, however alike their cycles are."""
    agreeing = evidence.gain(_rounds([(10.0, 8.0), (10.0, 8.0)]), FASTER, BASELINE)  # type: ignore[arg-type]
    scattered = evidence.gain(_rounds([(10.0, 8.0), (10.0, 4.0), (5.0, 8.0)]), FASTER, BASELINE)  # type: ignore[arg-type]
    assert agreeing.low > 0
    assert scattered.low < 0


def _with_disturbed(trial: Trial, *seconds: float) -> Trial:
    """The trial with further cycles in which other programs took time."""
    more = f.finished(cycle_seconds=list(seconds)).cycles
    return trial.with_(cycles=(*trial.cycles, *(replace(c, noisy=True, outside_cpu=0.2) for c in more)))


@pytest.mark.parametrize("slower", [(15.0,), (5.4, 30.0), (6.0, 7.0, 8.0, 90.0)])
def test_a_disturbed_cycle_moves_no_figure_and_no_interval(slower: tuple[float, ...]) -> None:
    """A disturbance only slows a cycle down, so that such a cycle is a bound that the others already meet."""
    calm = _rounds([(10.0, 5.0)])
    for side in (-1, -2):
        disturbed = list(calm)
        disturbed[side] = _with_disturbed(calm[side], *(s * (1 if side == -1 else 2) for s in slower))  # type: ignore[arg-type]
        one, other = (evidence.gain(trials, FASTER, BASELINE) for trials in (calm, disturbed))  # type: ignore[arg-type]
        assert one == other


def test_a_single_slow_cycle_that_the_guard_did_not_see_does_not_move_the_median() -> None:
    calm, hit = ([f.finished(n, cycle_seconds=[5.0, 5.0, last]) for n in (0, 1)] for last in (5.1, 50.0))
    assert [t.tokens_per_hour for t in hit] == pytest.approx([t.tokens_per_hour for t in calm], rel=0.01)


def test_where_all_cycles_were_disturbed_there_is_no_gain_but_a_bound() -> None:
    trial = f.finished(1, configuration=FASTER, cycle_seconds=[6.0, 5.0, 40.0])
    bound = trial.with_(cycles=tuple(replace(c, noisy=True) for c in trial.cycles))
    assert bound.only_disturbed
    assert bound.tokens_per_hour == pytest.approx(3600.0 * trial.cycles[1].completion_tokens / 5.0)
    assert evidence.gain([f.finished(0), bound], FASTER, BASELINE) is None


def test_a_gain_of_a_single_undisturbed_cycle_is_not_decided() -> None:
    trials = [f.finished(0, cycle_seconds=[10.0, 10.1, 9.9]), f.finished(1, configuration=FASTER, cycle_seconds=[1.0])]
    found = not_none(evidence.gain(trials, FASTER, BASELINE))
    assert found.low > 0
    assert not found.decided


def test_a_disturbed_run_of_a_round_gives_way_to_its_repetition() -> None:
    rounds = _rounds([(10.0, 5.0)])
    lost = rounds[-1].with_(number=90, cycles=tuple(replace(c, noisy=True) for c in rounds[-1].cycles))  # type: ignore[attr-defined]
    again = rounds[-1].with_(number=91)  # type: ignore[attr-defined]
    found = evidence.gain([*rounds[:-1], lost, again], FASTER, BASELINE)  # type: ignore[list-item]
    assert not_none(found).value == pytest.approx(1.0, rel=0.02)


def test_two_processes_differ_within_their_interval_as_often_as_it_says() -> None:
    """A study of four configurations, and a further process of one of them."""
    draws, held = random.Random(7), 0
    for _ in range(100):
        offsets = [draws.gauss(0.0, 0.066) for _ in range(5)]
        cycles = [[10.0 * math.exp(offset + draws.gauss(0.0, 0.03)) for _ in range(3)] for offset in offsets]
        kinds = [BASELINE, FASTER, FOUR_TO_TWO, f.configuration(precision="bf16")]
        trials = [f.finished(n, configuration=kinds[n], cycle_seconds=cycles[n]) for n in range(4)]
        further = [-math.log(seconds) for seconds in cycles[4]]
        stated = [-math.log(seconds) for seconds in cycles[1]]
        ratio = sum(further) / 3 - sum(stated) / 3
        held += abs(ratio) <= evidence.apart(trials, trials[1:2], [further])
    assert 0.93 * 100 <= held <= 100


def test_more_processes_are_nearer_to_each_other() -> None:
    trials = [f.finished(n, cycle_seconds=[10.0, 10.2, 9.9]) for n in range(4)]
    further = [[math.log(9.0 + n / 10) for n in range(3)]] * 3
    one, three = evidence.apart(trials, trials[:1], further[:1]), evidence.apart(trials, trials[:3], further)
    assert 0.0 < three < one


def test_what_was_worked_out_is_of_those_trials_alone() -> None:
    """The last answers are kept, so a list that grew and another study must not be given them."""
    growing = [f.finished(0), f.finished(1, configuration=BASELINE)]
    assert len(evidence.feasible(growing)[growing[0].configuration]) == 2
    quiet = evidence.process_noise(growing).process
    for number, seconds in ((2, 90.0), (3, 10.0)):
        growing.append(
            f.finished(number, cycle_seconds=seconds, configuration=BASELINE, kind=TrialKind.CONFIRM, pair=number)
        )
    assert len(evidence.feasible(growing)[growing[0].configuration]) == 4
    assert evidence.process_noise(growing).process.variance > quiet.variance
    assert evidence.process_noise(growing[:2]).process == quiet
    once = (t for t in growing)
    assert len(evidence.feasible(once)[growing[0].configuration]) == 4


def test_nobody_can_change_what_others_are_given() -> None:
    held = evidence.feasible((f.finished(0),))
    with pytest.raises(TypeError):
        held[f.configuration()] = ()  # type: ignore[index]
    assert isinstance(next(iter(held.values())), tuple)


def _study(*, fast: float = 10.0 / 1.5, again: float | None = None, rounds: int = 1) -> list[Trial]:
    """A baseline, a search trial of another configuration, one of the fast one (if ``again``), and rounds."""
    runs: list[tuple[TrialKind, int | None, Configuration, float]] = [
        (TrialKind.BASELINE, None, BASELINE, 10.0),
        (TrialKind.SEARCH, None, FOUR_TO_TWO, 11.0),
    ]
    if again is not None:
        runs.append((TrialKind.SEARCH, None, FASTER, again))
    for pair in range(rounds):
        runs += [(TrialKind.CONFIRM, pair, BASELINE, 10.0), (TrialKind.CONFIRM, pair, FASTER, fast)]
    cycles = [[seconds * share for share in (0.97, 1.0, 1.03)] for *_, seconds in runs]
    return [
        f.finished(number, kind=kind, configuration=configuration, pair=pair, cycle_seconds=spent)
        for number, ((kind, pair, configuration, _), spent) in enumerate(zip(runs, cycles, strict=True))
    ]


def _width(trials: list[Trial], process: NoisePrior | None = None) -> float:
    found = not_none(evidence.gain(trials, FASTER, BASELINE, process))
    return math.log1p(found.high) - math.log1p(found.low)


def test_one_round_proves_half_again_the_speed() -> None:
    assert _gain(_study()).low > 0.1


def test_a_search_trial_that_agrees_with_its_confirmation_narrows_the_interval_another_widens_it() -> None:
    agreeing, unknown, disagreeing = (_width(_study(again=again)) for again in (10.0 / 1.5, None, 20.0))
    assert agreeing < 0.99 * unknown
    assert disagreeing > 1.01 * unknown


def test_what_is_known_beforehand_of_processes_counts() -> None:
    quiet, restless = noise.NoisePrior(0.01**2, 20.0), noise.NoisePrior(0.3**2, 20.0)
    assert _width(_study(), quiet) < 0.9 * _width(_study()) < _width(_study()) < 0.9 * _width(_study(), restless)


def test_rounds_that_agree_by_chance_leave_some_width() -> None:
    """Five rounds without any scatter at all."""
    trials = _rounds([(10.0, 8.0)] * 5)
    assert _width(trials) > 2 * 1.96 * components.LEAST_PROCESS_SPREAD * math.sqrt(2 / 5)  # type: ignore[arg-type]


def test_intervals_are_the_same_in_any_order_of_the_trials() -> None:
    trials = _measured(random.Random(8), 3, 0.05, 0.03, on_gpu=False)
    whole = _gain(trials)
    for seed in range(5):
        mixed = _gain(random.Random(seed).sample(trials, len(trials)))
        assert (mixed.value, mixed.low, mixed.high) == pytest.approx((whole.value, whole.low, whole.high), rel=1e-9)


def test_a_warm_up_in_one_arm_does_not_move_the_gain() -> None:
    trials = _study()
    slow = f.finished(2, kind=TrialKind.CONFIRM, configuration=BASELINE, pair=0, cycle_seconds=[23.0, 9.9, 10.1])
    found = _gain([*trials[:2], slow, *trials[3:]])
    assert found.value == pytest.approx(0.5, abs=0.01)
    assert found.low > 0.1
