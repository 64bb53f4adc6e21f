"""The meter against an observer that shares nothing with it, on one real TRL run."""

from __future__ import annotations

import math
from collections import Counter

import pytest

from tests.support.not_none import not_none
from tests.support.trl_trials import OBSERVED, PLAIN, Ran, build_tiny, reward_file, run_trial, tiny_spec, within
from trainer.child.contract import CycleKind, Protocol

pytestmark = [pytest.mark.trl, pytest.mark.alone]

PROTOCOL = Protocol(warmup=1, natural=1, recorded=2, maximum=1, outside_cpu_limit=9.0, double=1)


@pytest.fixture(scope="module")
def observed(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """Reference model and old log-probs on, so that every phase of transformers generation occurs."""
    home = tmp_path_factory.mktemp("observed")
    spec = tiny_spec(
        build_tiny(home),
        reward_file(home, f"time.sleep(0.2); {PLAIN}"),
        PROTOCOL,
        passthrough={"beta": 0.04, "learning_rate": 1e-5},
        knobs={"logprob_rows": 2},
    )
    ran = run_trial(home / "run", spec, script=OBSERVED)
    assert ran.result.ok, ran.result.detail
    return ran


def test_tokens_per_hour_agree_with_an_independent_count(observed: Ran) -> None:
    spans = observed.spans()
    for cycle in observed.cycles:
        rows = within(spans, cycle, "row")
        counted = sum(row["tokens"] for row in rows)
        assert cycle.completion_tokens / cycle.seconds == pytest.approx(counted / cycle.seconds, rel=0.01)
        assert cycle.prompt_tokens == sum(row["prompt"] for row in rows)
        assert Counter(cycle.lengths) == Counter(row["tokens"] for row in rows)
        assert cycle.rows == len(rows) == 16


@pytest.mark.parametrize("phase", ["generate", "reward", "logprob", "update"])
def test_each_phase_agrees_with_separately_wrapped_functions(observed: Ran, phase: str) -> None:
    """Whatever else the machine does: a phase lasts as long as what it wraps, at most with the hooks around that."""
    spans = observed.spans()
    pushes, pops = ([s for s in spans if s["label"] == "hook" and s["name"] == name] for name in ("push", "pop"))
    closest = math.inf
    for cycle in observed.cycles:
        wrapped = within(spans, cycle, phase)
        inner = sum(span["ended"] - span["started"] for span in wrapped)
        around = {
            (
                max(hook["started"] for hook in pushes if hook["ended"] <= span["started"]),
                min(hook["ended"] for hook in pops if hook["started"] >= span["ended"]),
            )
            for span in wrapped
        }
        measured = cycle.phases[phase]
        assert 0 < inner <= measured + 0.001
        assert measured <= sum(ended - started for started, ended in around) + 0.001
        closest = min(closest, measured / inner)
    assert closest <= 1.2


def test_phases_fill_the_cycle_and_little_is_unattributed(observed: Ran) -> None:
    for cycle in observed.cycles:
        assert sum(cycle.phases.values()) == pytest.approx(cycle.seconds, rel=1e-6)
    seconds = sum(cycle.seconds for cycle in observed.cycles)
    assert sum(cycle.phases["idle"] for cycle in observed.cycles) <= 0.05 * seconds


def test_the_meter_computes_less_than_a_hundredth_of_the_time(observed: Ran) -> None:
    assert 0 < observed.result.data["meter_share"] < 0.01


def test_the_meters_hooks_do_not_wait(observed: Ran) -> None:
    """For a disk, a lock or the device. The interpreter's own lock may be another thread's now and then."""
    hooks = [hook for cycle in observed.cycles for hook in within(observed.spans(), cycle, "hook")]
    waits = [hook["waits"] for hook in hooks]
    assert len(waits) >= 8 * len(observed.cycles)
    assert sum(waits) <= len(waits) / 10


def test_computed_tokens_are_the_padded_width_of_the_updates_forward_passes(observed: Ran) -> None:
    spans = observed.spans()
    for cycle in observed.cycles:
        passes = [span for span in within(spans, cycle, "forward") if span["grad"]]
        assert cycle.computed_tokens == sum(span["rows"] * span["width"] for span in passes)
        assert cycle.useful_share <= 1.0


def test_lengths_are_taken_from_the_natural_cycle_and_replayed_exactly(observed: Ran) -> None:
    (natural,) = observed.of(CycleKind.NATURAL)
    noted = observed.note("lengths").data["lengths"]
    assert Counter(noted) == Counter(natural.lengths)
    recorded = observed.of(CycleKind.RECORDED)
    assert len(recorded) == 2
    assert all(Counter(cycle.lengths) == Counter(noted) for cycle in recorded)
    assert observed.of(CycleKind.MAXIMUM)[0].lengths == (16,) * 16
    assert Counter(observed.of(CycleKind.DOUBLE)[0].lengths) == Counter(min(2 * n, 16) for n in noted)


def test_the_order_of_cycles_is_the_protocols(observed: Ran) -> None:
    assert [cycle.cycle_kind.value for cycle in observed.cycles] == [
        *("warmup", "natural", "recorded", "recorded", "maximum", "double")
    ]
    assert [cycle.index for cycle in observed.cycles] == list(range(6))


def test_the_worst_case_really_was_at_maximum_length(observed: Ran) -> None:
    worst = not_none(observed.worst_case)
    assert (worst.rows, worst.prompt_tokens, worst.completion_tokens) == (4, 48, 16)
    passes = [s for s in within(observed.spans(), observed.cycles[0], "forward") if s["grad"]]
    full = [s for s in passes if s["rows"] == 4 and s["width"] == 48 + 16 and s["full"] == 4 * (48 + 16)]
    assert passes
    assert full == passes


def test_the_log_prob_seam_cuts_only_the_pass_without_gradients(observed: Ran) -> None:
    forward = [span for span in observed.spans() if span["label"] == "forward"]
    assert {span["chunk"] for span in forward if not span["grad"]} == {2}
    assert {span["chunk"] for span in forward if span["grad"]} == {None}


def test_peaks_are_those_of_this_process_and_ordered(observed: Ran) -> None:
    for cycle in observed.cycles:
        whole = not_none(cycle.peaks["cycle"].host)
        assert 100 << 20 < whole < 16 << 30
        assert whole == max(peak.host or 0 for name, peak in cycle.peaks.items() if name != "cycle")
        assert {"generate", "update"} <= set(cycle.peaks)


def test_what_the_trainer_said_of_the_cycle_is_kept(observed: Ran) -> None:
    for cycle in observed.cycles:
        assert cycle.groups == 4
        assert 0 <= cycle.zero_std_groups <= 4
        assert cycle.updates == 1
        assert cycle.loss is not None
        assert cycle.grad_norm > 0
        assert 0 <= cycle.reward_mean <= 2
        assert cycle.cpu_seconds > 0
