from dataclasses import replace
from typing import Any

from autotune.cli.screens.trial import beware_words, engine_words, guard_words, timeline_words, trial_screen
from autotune.domain import CycleKind, GpuUse, ProcessUse, TrialState
from tests.support import factories
from tests.unit.cli.drawing import lines, text, widest
from trainer.child.contract import NoteRecord

GIB = factories.GIB


def show(trial: Any, **changes: Any) -> Any:
    return trial_screen(trial, factories.study(), **changes)


def test_guard_marks_say_what_was_wrong_and_what_came_of_it() -> None:
    assert guard_words(factories.cycle()) == "ok"
    assert guard_words(factories.cycle(accepted=False, outside_cpu=0.082)) == "✗ others 8.2 %"
    assert guard_words(factories.cycle(noisy=True, drift=None, outside_cpu=0.2)) == "~ others 20 %"
    assert guard_words(factories.cycle(accepted=False)) == "✗ not warm yet", "nothing disturbed it"


def test_a_discarded_cycle_is_shown_but_does_not_count() -> None:
    cycles = (factories.cycle(0), factories.cycle(1, accepted=False, seconds=99.0), factories.cycle(2))
    drawn = text(show(factories.finished(1).with_(cycles=cycles)))
    assert "✗" in drawn
    assert "ok, 161.3k tokens/hour (44.8 tokens/s); longest" in drawn


def test_ranks_are_told_apart() -> None:
    cycles = (factories.cycle(0), factories.cycle(0, rank=1, seconds=11.0))
    drawn = text(show(factories.finished(1).with_(cycles=cycles)))
    assert "0/r0" in drawn
    assert "0/r1" in drawn


def test_device_memory_stands_beside_host_memory() -> None:
    peaks = {"update": factories.peaks(device_used=70 * GIB, device_reserved=60 * GIB)}
    drawn = lines(show(factories.finished(1).with_(cycles=(factories.cycle(peaks=peaks),))))
    update = next(line for line in drawn if line.startswith("update"))
    assert update.split("  ")[0] == "update"
    assert "70.0 GiB" in update
    assert "60.0 GiB" in update


def test_rewards_come_from_natural_lengths_only() -> None:
    natural = factories.cycle(0, cycle_kind=CycleKind.NATURAL, reward_mean=0.5, groups=2, zero_std_groups=1)
    recorded = factories.cycle(1, reward_mean=99.0)
    drawn = text(show(factories.finished(1).with_(cycles=(natural, recorded))))
    assert "mean 0.500 at sampled lengths; 1 of 2 groups have differing rewards" in drawn


def test_what_a_lower_limit_would_cut_is_told_from_natural_lengths() -> None:
    lengths = (100,) * 80 + (1000,) * 20
    natural = factories.cycle(0, cycle_kind=CycleKind.NATURAL, lengths=lengths)
    drawn = text(show(factories.finished(1).with_(cycles=(natural,))))
    joined = " ".join(drawn.split())
    assert "max_completion_length 100 would cut 20 % of rows and save 64 % of tokens; by 100 rows" in joined
    assert "a study of its own tries (`start --max-completion-length`)" in joined
    recorded = factories.cycle(0, lengths=lengths)
    assert "would cut" not in text(show(factories.finished(1).with_(cycles=(recorded,)))), (
        "replayed lengths say nothing new"
    )


def test_what_was_dropped_as_stale_is_shown_where_anything_was() -> None:
    for stale, shown in ((0, None), (2, "20 %"), (8, "50 %")):
        drawn = text(show(factories.finished(1).with_(cycles=(factories.cycle(0, rows=8, stale_rows=stale),))))
        assert ("dropped" in drawn) is (shown is not None)
        assert shown is None or f"{shown} of completions as stale" in drawn


def test_a_trial_that_waits_or_runs_has_no_invented_outcome() -> None:
    assert "outcome     waiting" in text(show(factories.trial(1)))
    assert "outcome     running" in text(show(factories.trial(1, state=TrialState.RUNNING, attempt=2)))


def test_a_trial_that_did_not_pass_the_worst_case_is_not_called_feasible() -> None:
    drawn = text(show(factories.finished(1, worst_case_passed=False)))
    assert "NOT passed: not feasible" in " ".join(drawn.split())


def test_everything_wide_at_once_stays_within_the_width() -> None:
    cycle = factories.cycle(
        10**6, seconds=99_999.0, accepted=False, drift=9.99, outside_cpu=9.99, phases={"x" * 40: 1.0}, rank=511
    )
    other = factories.cycle(0, lengths=(10**9,) * 8)
    knobs = factories.configuration(attn_implementation="y" * 200, **{"k" * 90: "z"})
    trial = factories.finished(10**6, configuration=knobs).with_(cycles=(cycle, other), startup={"import" * 20: 1.0})
    for width in (20, 40, 80):
        assert widest(show(trial, log=["w" * 300], log_path="/p" * 90), width) <= width


def test_the_engines_cache_and_its_agreement_with_the_trainer_are_shown() -> None:
    cycles = [
        factories.cycle(n, engine_bytes=GIB, cache_usage=0.2 + n / 2, preemptions=n, logp_mismatch=1.0 + n / 100)
        for n in range(2)
    ]
    words = engine_words(cycles)
    assert words == "took 1.00 GiB; cache 70 % full at most, 1 preemption; log-prob mismatch 1.0100"
    assert engine_words([factories.cycle()]) == ""


def test_a_knob_that_did_not_act_and_a_worst_case_that_was_not_the_worst_are_told() -> None:
    assert beware_words([]) == ""
    notes = [NoteRecord("engine_has", {"cuda_graph_max_batch": 16, "prefix_caching": False}), NoteRecord("threads")]
    assert beware_words(notes) == (
        "the engine has another value than asked for: cuda_graph_max_batch 16, prefix_caching off"
    )
    drawn = " ".join(text(show(factories.finished(1), notes=[NoteRecord("optimizer_not_primed")])).split())
    assert "beware the warm-up's longest rows met an optimizer without its state" in drawn


def test_a_stopped_trial_says_why_and_states_no_speed_of_its_own() -> None:
    drawn = " ".join(text(show(factories.stopped(4))).split())
    assert "stopped after 3 cycles: at most 171.2k tokens/hour, the best has at least 190.2k (trial #0)" in drawn
    assert "never recommended" in drawn
    assert "ok," not in drawn
    assert "stopped after 1 cycle:" in " ".join(text(show(factories.stopped(4, cycles=1))).split())


def test_the_peak_is_told_with_its_second_and_phase_of_each_series() -> None:
    host = factories.timeline()
    both = replace(host, device=(factories.point(2.0, 7 * GIB, "generate", 1),))
    assert timeline_words(None) == ""
    assert timeline_words(host) == "host: most after 4.0 s, in update of cycle 0 (3.00 GiB)"
    assert timeline_words(both).endswith("; GPU: most after 2.0 s, in generate of cycle 1 (7.00 GiB)")
    drawn = " ".join(text(show(factories.finished(1), timeline=host)).split())
    assert "memory host: most after 4.0 s, in update of cycle 0 (3.00 GiB)" in drawn


def test_with_every_figure_of_its_use_the_screen_stays_narrow() -> None:
    """And every column is whole."""
    gpu = GpuUse(25, 0.45, 0.3, 1755.0, 1980.0, 3421.0, 3.5e9, 2.25e9, None, None, 0.0, 0.0, 61.0)
    phases = {"generate": 4.5, "update": 5.5}
    process = ProcessUse(phases, phases, 1.25, 1_204_567, 45, 0.31, 184, 1204, 3, 0, 12, 1 << 30, 1 << 29)
    one = factories.cycle(
        seconds=10.0,
        phases=phases,
        process=process,
        gpu=dict.fromkeys((*phases, "cycle"), gpu),
        alloc_retries=2,
        cpu_seconds=11.0,
    )
    screen = show(factories.finished(1).with_(cycles=(one, replace(one, index=1))))
    drawn = [line.split() for line in lines(screen)]
    assert widest(screen) <= 80
    shown = {" ".join(line) for line in drawn}
    assert "cycle busy used time faults gc shapes allocs retries" in shown
    assert "1 replayed 45 % 1.1 1.25 s 1,205k 0.31 s 184 1,204 2" in shown
    assert "phase busy busy MHz watts thread used PCIe" in shown
    assert "update 45 % 30 % 1755 622 100 % 1.0 5.36 GiB" in shown
    assert "the allocator: it freed its cache and tried again 2 times in a cycle" in " ".join(text(screen).split())
