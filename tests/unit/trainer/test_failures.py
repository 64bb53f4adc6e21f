from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from trainer.child.contract import ContractError, FailureReason, Phase, Pool
from trainer.child.failures import IllegalSettingError, MeterError, NotFiniteError, RewardFailedError, chain, classify
from trainer.frameworks.common.failures import suggest


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


@pytest.mark.parametrize(
    ("free", "reason"), [(100 << 20, FailureReason.OOM), (2 << 30, FailureReason.CRASH), (None, FailureReason.CRASH)]
)
def test_a_library_that_cannot_begin_on_a_full_gpu_is_out_of_memory(
    monkeypatch: pytest.MonkeyPatch, free: int | None, reason: FailureReason
) -> None:
    def mem_get_info() -> tuple[int, int]:
        if free is None:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        return free, 80 << 30

    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=SimpleNamespace(mem_get_info=mem_get_info)))  # type: ignore[arg-type]
    error = RuntimeError("CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`")
    result = classify(error, Phase.UPDATE)
    assert (result.reason, result.pool) == (reason, Pool.DEVICE if reason is FailureReason.OOM else None)


def test_the_place_is_the_errors_own_where_it_has_one() -> None:
    assert classify(NotFiniteError("loss", Phase.UPDATE), Phase.IDLE).phase is Phase.UPDATE
    assert classify(RewardFailedError("x"), None).phase is Phase.REWARD
    assert classify(MemoryError(), Phase.LOGPROB).phase is Phase.LOGPROB


def test_a_long_list_of_known_values_is_its_nearest_and_their_number() -> None:
    text = f"model_type: 'lama' not in {['llama', *(f'qwen{number}' for number in range(350))]}"
    for error in (IllegalSettingError(text), ValueError(text)):
        assert "model_type: 'lama' is none of the 351 known; nearest: llama, " in classify(error, None).message
    assert classify(ValueError("'lama' not in ['llama', 'yi']"), None).message.endswith("not in ['llama', 'yi']")


def test_an_error_raised_from_itself_ends() -> None:
    error = ValueError("x")
    error.__cause__ = error
    assert chain(error) == [error]
    assert classify(error, None).reason is FailureReason.CRASH


def test_there_is_something_to_say_about_every_failure_but_the_users_own_stop() -> None:
    for reason in FailureReason:
        for phase in (None, *Phase, "load"):
            said = suggest(reason, phase, Pool.HOST)
            assert bool(said) == (reason is not FailureReason.CANCELLED)
    assert "raise" in suggest(FailureReason.OOM, None, Pool.ROLLOUT_CACHE)
