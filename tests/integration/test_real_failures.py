"""Failures that really happen, each through the tuner's own runner: reason, place, pool, and the knob to turn.

What a CPU cannot produce is in ``tests/fixtures/failures.yaml`` as it is written elsewhere; ranks that fail or are
killed are in ``test_two_ranks.py``, rewards and NaN in ``test_trl_trial.py``.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autotune.domain import FailureReason, Outcome, Pool
from autotune.running.preloaded import Preloads
from tests.contracts.runner_suite import tagged
from tests.support.rank_trials import RankTrial
from tests.support.trl_trials import PLAIN, reward_file, tiny_spec
from trainer.child.contract import Protocol, RewardSpec, TrialSpec

pytestmark = [pytest.mark.usefixtures("one_thread"), pytest.mark.trl, pytest.mark.full]

LENGTHS = (200, 256)
PROTOCOL = Protocol(warmup=1, recorded=2, lengths=LENGTHS, outside_cpu_limit=9.0)
MIB = 1 << 20


def run(home: Path, spec: TrialSpec, preloads: Preloads) -> Outcome:
    trial = RankTrial(home, spec, preloads=preloads).run(1800.0)
    assert not trial.outcome.ok
    assert "not_forked" not in trial.notes
    assert set(tagged(trial.tag)) <= set(preloads.pids)
    return trial.outcome


def kind(outcome: Outcome) -> tuple[FailureReason | None, str | None, Pool | None]:
    return outcome.reason, outcome.phase, outcome.pool


NO_MORE = '''
import resource, threading, time
from pathlib import Path


TAKEN = []


def shut(phase):
    """From that phase of the first timed cycle on, nothing is left and the system gives no more."""
    while not Path("../phase").read_text().startswith(phase + " 1 "):
        time.sleep(0.001)
    held = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmData")]
    resource.setrlimit(resource.RLIMIT_DATA, (int(held[0].split()[1]) * 1024, resource.RLIM_INFINITY))
    for size in (1 << 24, 1 << 22, 1 << 20, 1 << 18, 1 << 16):
        try:
            while True:
                TAKEN.append(bytearray(size))
        except MemoryError:
            pass


threading.Thread(target=shut, args=({phase!r},), daemon=True).start()


def reward(prompts, completions, **columns):
    return [float(len(c) % 3) for c in completions]
'''


@pytest.mark.parametrize(
    ("phase", "words"), [("generate", "lower steps_per_generation"), ("update", "lower micro_batch_size")]
)
def test_no_more_host_memory_in_the_middle_of_a_cycle(
    preloads: Preloads, tiny: Path, tmp_path: Path, phase: str, words: str
) -> None:
    """The system refuses the memory; torch, numpy or Python itself then raises what it raises."""
    (tmp_path / "reward.py").write_text(NO_MORE.format(phase=phase))
    reward = RewardSpec("file", "reward", str(tmp_path / "reward.py"))
    knobs = {"micro_batch_size": 8, "attn_implementation": "eager"}
    spec = tiny_spec(tiny, reward, PROTOCOL, max_completion_length=max(LENGTHS), knobs=knobs)
    outcome = run(tmp_path, spec, preloads)
    assert kind(outcome) == (FailureReason.OOM, phase, Pool.HOST), outcome.sentence()
    assert words in outcome.suggestion


VLLM = {"rollout_engine": "vllm", "max_model_len": 1024, "kv_cache_memory_bytes": 64 * MIB}


@pytest.mark.parametrize(
    ("seams", "wanted", "words"),
    [
        (
            {"kv_cache_memory_bytes": 0},
            (FailureReason.OOM, "engine", Pool.ROLLOUT_CACHE),
            ("No available memory for the cache blocks", "raise gpu_memory_utilization", "kv_cache_memory_bytes"),
        ),
        (
            {"kv_cache_memory_bytes": MIB},
            (FailureReason.OOM, "engine", Pool.ROLLOUT_CACHE),
            ("To serve at least one request", "raise gpu_memory_utilization", "lower max_model_len"),
        ),
        (
            {"kv_cache_memory_bytes": 1 << 44},
            (FailureReason.OOM, "engine", Pool.HOST),
            ("less than requested memory for kv", "lower kv_cache_memory_bytes"),
        ),
        (
            {"max_num_seqs": 256, "max_num_batched_tokens": 128},
            (FailureReason.ILLEGAL, "engine", None),
            ("must be greater than or equal to max_num_seqs", "lower max_num_seqs"),
        ),
        (
            {"chunked_prefill": False, "max_num_batched_tokens": 512},
            (FailureReason.ILLEGAL, "engine", None),
            ("is smaller than max_model_len", "raise max_num_batched_tokens"),
        ),
    ],
    ids=["no cache", "one request", "host", "sequences", "prefill"],
)
def test_an_engine_that_does_not_start(
    preloads: Preloads,
    tiny: Path,
    tmp_path: Path,
    seams: dict[str, Any],
    wanted: tuple[Any, ...],
    words: tuple[str, ...],
) -> None:
    spec = tiny_spec(tiny, reward_file(tmp_path, PLAIN), knobs=VLLM)
    outcome = run(tmp_path, replace(spec, seams={**spec.seams, **seams}), preloads)
    assert kind(outcome) == wanted, outcome.sentence()
    assert words[0] in outcome.message
    assert "\n" not in outcome.message
    assert all(word in outcome.suggestion for word in words[1:]), outcome.suggestion


def test_an_engine_for_longer_sequences_than_the_model_has_positions(
    preloads: Preloads, tiny: Path, tmp_path: Path
) -> None:
    spec = tiny_spec(tiny, reward_file(tmp_path, PLAIN), knobs={**VLLM, "max_model_len": 8192})
    outcome = run(tmp_path, spec, preloads)
    assert kind(outcome) == (FailureReason.ILLEGAL, "engine", None), outcome.sentence()
    assert "greater than the derived max_model_len" in outcome.message
    assert "lower max_model_len" in outcome.suggestion


@pytest.mark.parametrize(
    ("knobs", "passthrough", "words"),
    [
        ({"attn_implementation": "flash_attention_2"}, {}, "attn_implementation sdpa"),
        ({"optimizer": "adamw_bnb_8bit"}, {}, "optimizer adamw_torch_fused"),
        ({}, {"tf32": True}, "tf32 false"),
    ],
    ids=["attention", "bitsandbytes", "tf32"],
)
def test_a_setting_this_machine_cannot_have(
    preloads: Preloads, tiny: Path, tmp_path: Path, knobs: dict[str, Any], passthrough: dict[str, Any], words: str
) -> None:
    spec = tiny_spec(tiny, reward_file(tmp_path, PLAIN), knobs=knobs, passthrough=passthrough)
    outcome = run(tmp_path, spec, preloads)
    assert (outcome.reason, outcome.pool) == (FailureReason.ILLEGAL, None), outcome.sentence()
    assert words in outcome.suggestion, outcome.sentence()
