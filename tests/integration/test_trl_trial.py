"""Real TRL trials: what they measure under other configurations, and how they fail."""

from __future__ import annotations

import shutil
import signal
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.not_none import not_none
from tests.support.trl_trials import (
    LENGTHS,
    OBSERVED,
    PLAIN,
    QUIET,
    START,
    Ran,
    end,
    launch,
    reward_file,
    run_trial,
    tiny_spec,
    within,
    write_spec,
)
from trainer.child.contract import (
    CycleKind,
    FailureReason,
    Phase,
    Pool,
    Protocol,
    RewardSpec,
    RunPaths,
    read_phase,
    write_atomic,
)

pytestmark = pytest.mark.trl

SLEPT_S = 0.3
"""By a reward, in each generation."""


@pytest.fixture(scope="module")
def slow_reward(several: dict[str, Ran]) -> Ran:
    """Two generations per update, each with a reward that sleeps; the meter's limits off."""
    return several["slow reward"]


@pytest.fixture(scope="module")
def hostile(tiny: Path) -> Ran:
    """Another batch shape, in a folder full of modules named like ours; the reward imports one of them."""
    folder = tiny / "hostile"
    folder.mkdir()
    for name in ("trainer", "api", "search_spaces", "autotune", "contract", "worker", "meter"):
        (folder / f"{name}.py").write_text(f"open({str(folder / 'executed')!r}, 'a').write({name!r} + '\\n')\n")
    reward = folder / "rewards" / "score.py"
    reward.parent.mkdir()
    (reward.parent / "trainer.py").write_text("BONUS = 0.5\n")
    reward.write_text(
        "from trainer import BONUS\n\n"
        "def score(prompts, completions, **columns):\n    return [BONUS + len(c) % 3 for c in completions]\n"
    )
    spec = tiny_spec(
        tiny, RewardSpec("file", "score", str(reward)), knobs={"micro_batch_size": 8, "num_generations": 8}
    )
    return run_trial(folder / "run", spec, cwd=folder)


@pytest.fixture(scope="module")
def several(tiny: Path) -> dict[str, Ran]:
    """One after another in one process: trials that fail early, one that is told to end, one that runs through."""
    broken = shutil.copytree(tiny / "model", tiny / "broken") / "model.safetensors"
    broken.write_bytes(broken.read_bytes()[:-64] + b"\xff" * 64)  # NaN in every type of number
    specs = {
        "raising": tiny_spec(tiny, reward_file(tiny / "f1", "raise KeyError('no answer column')")),
        "nan": tiny_spec(tiny, reward_file(tiny / "f2", "return [float('nan')] * len(completions)")),
        "short": tiny_spec(tiny, reward_file(tiny / "f3", "return [1.0]")),
        "missing": tiny_spec(tiny, RewardSpec("file", "reward", str(tiny / "nowhere.py"))),
        "rows": tiny_spec(tiny, reward_file(tiny / "f4", PLAIN), rows_per_update=20),
        "groups": tiny_spec(tiny, reward_file(tiny / "f5", PLAIN), knobs={"num_generations": 3}),
        "unknown": tiny_spec(tiny, reward_file(tiny / "f6", PLAIN), passthrough={"learning_rat": 1e-6}),
        "lengths": tiny_spec(tiny, reward_file(tiny / "f7", PLAIN), Protocol(natural=0, recorded=1)),
        "diverging": tiny_spec(
            tiny, reward_file(tiny / "f8", PLAIN), passthrough={"learning_rate": 1e30, "max_grad_norm": 0.0}
        ),
    }
    specs["weights"] = tiny_spec(tiny, reward_file(tiny / "f11", PLAIN), model=str(broken.parent))
    looked = replace(QUIET, recorded=6, maximum=0, looks=(2, 6))
    specs["told to end"] = tiny_spec(tiny, reward_file(tiny / "f9", PLAIN), looked)
    sleeping = reward_file(tiny / "f10", f"time.sleep({SLEPT_S}); {PLAIN}")
    specs["slow reward"] = tiny_spec(tiny, sleeping, QUIET, knobs={"steps_per_generation": 2})
    folders = [write_spec(tiny / "several" / name, spec).root for name, spec in specs.items()]
    write_atomic(RunPaths(tiny / "several" / "told to end").enough, "2 end")
    end(launch(OBSERVED, folders, cwd=tiny))
    return {name: Ran(folder) for name, folder in zip(specs, folders, strict=True)}


def test_a_trial_that_is_told_to_end_ends_ok_after_the_cycle_it_is_in(several: dict[str, Ran]) -> None:
    """The first question is asked after the second cycle, which shows whether the first was a warm-up."""
    ran = several["told to end"]
    assert ran.result.ok, ran.result.detail
    made = [cycle for cycle in ran.of(CycleKind.RECORDED) if cycle.accepted]
    assert len(made) == ran.result.data["ended_after"] == 2
    assert ran.worst_case is not None


def test_a_sleeping_reward_is_found_in_the_reward_phase(slow_reward: Ran) -> None:
    assert slow_reward.result.ok, slow_reward.result.detail
    spent = [cycle.phases["reward"] for cycle in slow_reward.cycles]
    assert all(seconds >= 2 * SLEPT_S for seconds in spent)
    seen = [span for cycle in slow_reward.cycles for span in within(slow_reward.spans(), cycle, "reward")]
    assert len(seen) == 2 * len(spent)
    # And nothing else, by the observer's clock; the tolerance is for a CPU that is taken away between the two.
    assert sum(spent) == pytest.approx(sum(span["ended"] - span["started"] for span in seen), rel=0.05, abs=0.03)


def test_every_cycle_tells_what_its_process_did(slow_reward: Ran) -> None:
    """Shapes are those of forward passes: the warm-up's are all new, and cycles of the same lengths meet fewer."""
    for cycle in slow_reward.cycles:
        use = not_none(cycle.process)
        assert set(use.main_thread) == set(use.all_threads) == set(cycle.phases)
        assert 0 < sum(use.main_thread.values()) <= sum(use.all_threads.values()) + 0.01
        assert use.main_thread["reward"] < SLEPT_S, "a thread that sleeps uses no CPU"
        assert use.minor_faults is not None
        assert use.device_allocations is None, "a CPU has no such allocator"
    shapes = [cycle.process.new_shapes for cycle in slow_reward.cycles if cycle.process is not None]
    assert shapes[0] > 0
    assert shapes[-1] < shapes[0]
    attention = slow_reward.note("attention").data
    assert attention["implementation"] in ("sdpa", "eager")
    assert "math" in attention["sdpa"]


def test_several_generations_lie_in_one_cycle(slow_reward: Ran) -> None:
    for cycle in slow_reward.cycles:
        assert (cycle.rows, cycle.updates, cycle.groups) == (16, 1, 4)
    assert not_none(slow_reward.worst_case).prompt_tokens == 48


def test_a_hostile_folder_changes_nothing(hostile: Ran) -> None:
    assert hostile.result.ok, hostile.result.detail
    assert not (hostile.paths.root.parent / "executed").exists()
    assert all(cycle.reward_mean is not None and cycle.reward_mean >= 0.5 for cycle in hostile.cycles)


def test_every_configuration_meets_the_same_lengths(slow_reward: Ran, hostile: Ran) -> None:
    for ran in (slow_reward, hostile):
        recorded = ran.of(CycleKind.RECORDED)
        assert len(recorded) == 2
        assert all(Counter(cycle.lengths) == Counter(LENGTHS) for cycle in recorded)
    assert [c.lengths for c in slow_reward.of(CycleKind.RECORDED)] == [
        c.lengths for c in hostile.of(CycleKind.RECORDED)
    ]


def test_a_completion_at_the_maximum_counts_as_clipped_and_no_other(hostile: Ran) -> None:
    for cycle in hostile.of(CycleKind.RECORDED):
        assert cycle.clipped_share == pytest.approx(LENGTHS.count(16) / len(LENGTHS))
    assert hostile.of(CycleKind.MAXIMUM)[0].clipped_share == 1.0


@pytest.mark.parametrize(
    ("name", "reason", "phase", "said"),
    [
        ("raising", FailureReason.REWARD_ERROR, Phase.REWARD, "no answer column"),
        ("nan", FailureReason.REWARD_ERROR, Phase.REWARD, "nan for completion 0; rewards must be finite"),
        ("short", FailureReason.REWARD_ERROR, Phase.REWARD, "returned 1 rewards"),
        ("missing", FailureReason.INFRA, None, "nowhere.py"),
        ("rows", FailureReason.ILLEGAL, None, "rows per update"),
        ("groups", FailureReason.ILLEGAL, None, "divisible by num_generations"),
        ("unknown", FailureReason.ILLEGAL, None, "learning_rat"),
        ("lengths", FailureReason.ILLEGAL, None, "recorded lengths"),
        ("weights", FailureReason.NAN, None, "the model's weights are NaN: "),
        ("diverging", FailureReason.NAN, Phase.GENERATE, "probability tensor"),
    ],
)
def test_each_failure_has_its_reason_and_place(
    several: dict[str, Ran], name: str, reason: FailureReason, phase: Phase | None, said: str
) -> None:
    result = several[name].result
    assert (result.ok, result.reason, result.phase) == (False, reason, phase), result.detail
    assert said in result.message
    assert result.detail


def test_memory_beyond_the_backstop_is_an_oom_of_the_host(tiny: Path) -> None:
    """A quarter of a gigabyte for the whole process: the worst case asks for more at one go."""
    spec = tiny_spec(
        tiny,
        reward_file(tiny / "oom", PLAIN),
        Protocol(warmup=1, recorded=1, lengths=(64,)),
        max_completion_length=512,
        memory_limit=256 << 20,
        knobs={"micro_batch_size": 16, "attn_implementation": "eager"},
    )
    ran = run_trial(tiny / "oom" / "run", spec)
    assert (ran.result.reason, ran.result.pool) == (FailureReason.OOM, Pool.HOST), ran.result.detail
    assert ran.result.phase in (Phase.GENERATE, Phase.UPDATE)
    assert ran.result.data["rlimit_data"] > 256 << 20
    assert not ran.cycles


def test_sigterm_ends_the_trial_at_once_as_cancelled(tiny: Path) -> None:
    spec = tiny_spec(tiny, reward_file(tiny / "term", f"time.sleep(120); {PLAIN}"))
    paths = write_spec(tiny / "term" / "run", spec)
    process = launch(START, [paths.root], cwd=paths.scratch)
    deadline = time.monotonic() + 120
    while (mark := read_phase(paths.phase)) is None or mark.phase != "reward":
        assert process.poll() is None, paths.log.read_text()[-2000:]
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    end(process, 60)  # and not when the reward has slept
    assert Ran(paths.root).result.reason is FailureReason.CANCELLED
