"""Real trials that generate with vLLM beside TRL's trainer: lengths, phases, cache, and weights that arrive."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from autotune.machine import hardware
from autotune.running.preloaded import Preloads
from tests.support.trl_trials import LENGTHS, PLAIN, QUIET, Ran, reward_file, run_trial, tiny_spec
from trainer.child.contract import CycleKind, FailureReason, Protocol

pytestmark = [pytest.mark.trl, pytest.mark.full, pytest.mark.alone]

MIB = 1 << 20
ENGINE = {"rollout_engine": "vllm", "max_model_len": 1024}
LEARNING = {"learning_rate": 3e-3, "lr_scheduler_type": "constant"}
"""Steps large enough that an engine left with old weights would be seen at once."""


@pytest.fixture(scope="module")
def roomy(tiny: Path, preloads: Preloads) -> Ran:
    """A cache that holds everything at once."""
    protocol = Protocol(warmup=1, natural=1, recorded=3, maximum=1, lengths=LENGTHS, outside_cpu_limit=9.0, double=1)
    knobs = {**ENGINE, "kv_cache_memory_bytes": 64 * MIB, "rollout_dtype": "fp32", "max_num_seqs": 16}
    spec = tiny_spec(tiny, reward_file(tiny / "roomy", PLAIN), protocol, knobs=knobs, passthrough=LEARNING)
    return run_trial(tiny / "roomy" / "run", spec, preloads=preloads)


@pytest.fixture(scope="module")
def tight(tiny: Path, preloads: Preloads) -> Ran:
    """A cache of four blocks of 128 tokens: far fewer than the sixteen rows need together."""
    knobs = {**ENGINE, "max_model_len": 256, "kv_cache_memory_bytes": 4 * BLOCK_BYTES, "prefix_caching": False}
    spec = tiny_spec(
        tiny,
        reward_file(tiny / "tight", PLAIN),
        QUIET,
        knobs=knobs,
        max_prompt_length=120,
        max_completion_length=100,
        passthrough={"max_completion_length": 100},
    )
    return run_trial(tiny / "tight" / "run", spec, preloads=preloads)


@pytest.fixture(scope="module")
def guessing(tiny: Path, preloads: Preloads) -> Ran:
    """Tokens are guessed from what stands earlier in the sequence, and checked together."""
    guesses = {"speculative_decoding": "ngram", "speculative_tokens": 3, "speculative_lookup": 1}
    protocol = Protocol(warmup=1, natural=1, recorded=2, maximum=1, lengths=LENGTHS, outside_cpu_limit=9.0)
    knobs = {**ENGINE, **guesses, "kv_cache_memory_bytes": 64 * MIB, "rollout_dtype": "fp32", "max_num_seqs": 16}
    spec = tiny_spec(tiny, reward_file(tiny / "guessing", PLAIN), protocol, knobs=knobs, passthrough=LEARNING)
    return run_trial(tiny / "guessing" / "run", spec, preloads=preloads)


@pytest.fixture(scope="module")
def compiled(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Ran, dict[Path, int]]]:
    """Two trials in processes of their own, with one cache that was empty at first; when what was written last."""
    spec = tiny_spec(
        tiny,
        reward_file(tiny / "compiled", PLAIN),
        Protocol(warmup=1, recorded=2, lengths=LENGTHS, outside_cpu_limit=9.0, max_repeats=2),
        knobs={**ENGINE, "kv_cache_memory_bytes": 64 * MIB, "rollout_dtype": "fp32", "enforce_eager": False},
        passthrough=LEARNING,
    )
    caches = tmp_path_factory.mktemp("caches")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VLLM_CACHE_ROOT", str(caches))
        trials = (run_trial(tiny / "compiled" / str(number), spec) for number in range(2))
        return [(ran, {file: file.stat().st_mtime_ns for file in caches.rglob("model")}) for ran in trials]


BLOCK_BYTES = 2 * 2 * 128 * 2 * 64 * 2
"""Keys and values x layers x tokens of a block x KV heads x head size x bytes of bf16, of the tiny model."""


def test_every_row_has_the_length_it_was_given(roomy: Ran) -> None:
    assert roomy.result.ok, roomy.result.detail
    cycles = roomy.of(CycleKind.RECORDED)
    assert len(cycles) == 3
    for cycle in cycles:
        assert Counter(cycle.lengths) == Counter(LENGTHS)
    for cycle in roomy.of(CycleKind.MAXIMUM):
        assert set(cycle.lengths) == {16}
    (double,) = roomy.of(CycleKind.DOUBLE)
    assert Counter(double.lengths) == Counter(min(2 * n, 16) for n in LENGTHS)


def test_the_weight_sync_is_a_phase_of_its_own(roomy: Ran) -> None:
    for cycle in roomy.of(CycleKind.RECORDED):
        assert {"generate", "sync", "reward", "update"} <= {name for name, spent in cycle.phases.items() if spent > 0}
        assert sum(cycle.phases.values()) == pytest.approx(cycle.seconds, rel=1e-6)
        assert cycle.phases["idle"] <= 0.05 * cycle.seconds + 0.02


def test_the_engine_has_the_weights_the_trainer_has(roomy: Ran) -> None:
    """After every update: an engine left with older ones would drift away from cycle to cycle."""
    seen = [cycle.logp_mismatch for cycle in roomy.cycles]
    assert len(seen) >= 5
    assert all(value is not None and value < 1.005 for value in seen), seen


def test_guesses_on_a_cpu_are_found_out(guessing: Ran) -> None:
    """There vLLM 0.31's log-probs after a rejected guess are not the model's; the rule ``guessed_tokens`` says so.

    If this passes no more, vLLM guesses rightly on a CPU, and the rule can go.
    """
    assert guessing.result.reason is FailureReason.QUALITY
    assert "the rollout's log-probs are not the trainer's" in guessing.result.message


def test_the_cache_is_watched(roomy: Ran, tight: Ran) -> None:
    assert tight.result.ok, tight.result.detail
    for cycle in roomy.of(CycleKind.RECORDED):
        assert cycle.preemptions == 0
        assert 0 < (cycle.cache_usage or 0.0) < 0.9
        assert (cycle.engine_bytes or 0) > 0
    crowded = tight.of(CycleKind.MAXIMUM)
    assert crowded
    assert all(cycle.cache_usage is not None and cycle.cache_usage > 0.7 for cycle in crowded)
    assert sum(cycle.preemptions or 0 for cycle in tight.cycles) > 0


@pytest.mark.skipif(hardware.compiler() is None, reason="no C++ compiler here")
def test_what_vllm_compiled_is_read_by_the_next_trial_and_computes_the_same(
    compiled: list[tuple[Ran, dict[Path, int]]],
) -> None:
    (first, made), (second, kept) = compiled
    assert made, "nothing was kept"
    assert kept == made, "it was compiled again"
    for ran in (first, second):
        assert ran.result.ok, ran.result.detail
        mismatches = [cycle.logp_mismatch for cycle in ran.cycles]
        assert all(value is not None and value < 1.005 for value in mismatches), "the weights did not arrive"
    assert [cycle.lengths for cycle in first.cycles[:1]] == [cycle.lengths for cycle in second.cycles[:1]]
    assert first.cycles[0].logp_mismatch == second.cycles[0].logp_mismatch
