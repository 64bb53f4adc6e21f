from __future__ import annotations

import pytest

from trainer.child.contract import ContractError, FailureReason, Phase, Pool
from trainer.child.failures import (
    IllegalSettingError,
    MeterError,
    NotFiniteError,
    RewardFailedError,
    chain,
    classify,
)
from trainer.frameworks.trl import diagnose, suggest


def caused(outer: BaseException, inner: BaseException) -> BaseException:
    outer.__cause__ = inner
    return outer


@pytest.mark.parametrize(
    ("error", "reason", "pool"),
    [
        (MemoryError(), FailureReason.OOM, Pool.HOST),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"), FailureReason.OOM, Pool.HOST),
        (OSError(12, "Cannot allocate memory"), FailureReason.OOM, Pool.HOST),
        (RuntimeError("CUDA out of memory. Tried to allocate 2 GiB"), FailureReason.OOM, Pool.DEVICE),
        (RuntimeError("CUDA error: out of memory"), FailureReason.OOM, Pool.DEVICE),
        (ValueError("No available memory for the cache blocks. Try"), FailureReason.OOM, Pool.ROLLOUT_CACHE),
        (caused(RewardFailedError("x"), MemoryError()), FailureReason.OOM, Pool.HOST),
        (NotFiniteError("loss", Phase.UPDATE), FailureReason.NAN, None),
        (IllegalSettingError("3 is not divisible"), FailureReason.ILLEGAL, None),
        (ContractError("config.json: not JSON"), FailureReason.ILLEGAL, None),
        (RewardFailedError("KeyError"), FailureReason.REWARD_ERROR, None),
        (MeterError("asked for 3 tokens"), FailureReason.CRASH, None),
        (ValueError("of the framework's own"), FailureReason.CRASH, None),
        (KeyboardInterrupt(), FailureReason.CRASH, None),
    ],
)
def test_every_error_has_a_reason(error: BaseException, reason: FailureReason, pool: Pool | None) -> None:
    result = classify(error, Phase.GENERATE)
    assert (result.ok, result.reason, result.pool) == (False, reason, pool)
    assert result.message
    assert result.detail


def test_the_place_is_the_errors_own_where_it_has_one() -> None:
    assert classify(NotFiniteError("loss", Phase.UPDATE), Phase.IDLE).phase is Phase.UPDATE
    assert classify(RewardFailedError("x"), None).phase is Phase.REWARD
    assert classify(MemoryError(), Phase.LOGPROB).phase is Phase.LOGPROB


def test_an_error_raised_from_itself_ends() -> None:
    error = ValueError("x")
    error.__cause__ = error
    assert chain(error) == [error]
    assert classify(error, None).reason is FailureReason.CRASH


LOG = "epoch 1\n{}\nsome later line\n"


@pytest.mark.parametrize(
    ("text", "reason", "pool", "phase"),
    [
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1 GiB", "OOM", Pool.DEVICE, None),
        ("RuntimeError: CUDA error: out of memory", "OOM", Pool.DEVICE, None),
        ("NCCL WARN Cuda failure 2 'out of memory'", "OOM", Pool.DEVICE, None),
        (
            "ValueError: Free memory on device (3/80 GiB) on startup is less than desired GPU memory utilization (0.9)",
            "OOM",
            Pool.DEVICE,
            "engine",
        ),
        ("ValueError: No available memory for the cache blocks. Try", "OOM", Pool.ROLLOUT_CACHE, "engine"),
        (
            "ValueError: To serve at least one request with the model's max seq len (4096), (1 GiB KV cache is needed",
            "OOM",
            Pool.ROLLOUT_CACHE,
            "engine",
        ),
        ("AssertionError: Error in memory profiling. Initial free memory 3", "INFRA", None, "engine"),
        (
            "RuntimeError: CUDA out of memory occurred when warming up sampler with 256 dummy requests",
            "OOM",
            Pool.DEVICE,
            "engine",
        ),
        (
            "max_num_batched_tokens (4096) must be greater than or equal to max_num_seqs (8192)",
            "ILLEGAL",
            None,
            "engine",
        ),
        ("User-specified max_model_len (9) is greater than the derived max_model_len (8)", "ILLEGAL", None, "engine"),
        ("RuntimeError: Engine core initialization failed. See root cause above", "CRASH", None, "engine"),
        ("EngineDeadError: EngineCore encountered an issue. See stack trace", "CRASH", None, "engine"),
        ("ray.exceptions.OutOfMemoryError: Task was killed", "OOM", Pool.HOST, None),
        ("ray.exceptions.ActorDiedError: The actor died", "CRASH", None, None),
        ("  exitcode  : -9 (pid: 12)", "OOM", Pool.HOST, None),
        ("Signal 9 (SIGKILL) received by PID 12", "OOM", Pool.HOST, None),
        ("RuntimeError: DefaultCPUAllocator: can't allocate memory", "OOM", Pool.HOST, None),
        (
            "ValueError: generation_batch_size (3) must be divisible by num_generations (8).",
            "ILLEGAL",
            None,
            None,
        ),
    ],
)
def test_known_texts(text: str, reason: str, pool: Pool | None, phase: str | None) -> None:
    found = diagnose(LOG.format(text))
    assert found is not None
    assert (found.reason.value, found.pool, found.phase) == (reason, pool, phase)
    assert found.suggestion
    assert found.message in text


def test_the_cause_counts_and_not_what_it_was_wrapped_in() -> None:
    log = "ValueError: No available memory for the cache blocks\nRuntimeError: Engine core initialization failed\n"
    found = diagnose(log)
    assert found is not None
    assert found.pool is Pool.ROLLOUT_CACHE


def test_the_last_cause_counts() -> None:
    found = diagnose("CUDA out of memory\nrecovered\nDefaultCPUAllocator: can't allocate memory\n")
    assert found is not None
    assert found.pool is Pool.HOST


@pytest.mark.parametrize("text", ["", "all went well\n", "memory: 12 GiB free\nout of patience\n"])
def test_an_innocent_log_says_nothing(text: str) -> None:
    assert diagnose(text) is None


def test_there_is_something_to_say_about_every_failure_but_the_users_own_stop() -> None:
    for reason in FailureReason:
        for phase in (None, *Phase, "load"):
            said = suggest(reason, phase, Pool.HOST)
            assert bool(said) == (reason is not FailureReason.CANCELLED)
    assert "raise" in suggest(FailureReason.OOM, None, Pool.ROLLOUT_CACHE)
