"""Each of ms-swift's own failures is recognised by its text, as ms-swift 4.6.0 writes it."""

from __future__ import annotations

import pytest

from tests.support.failure_texts import OF_FRAMEWORKS
from trainer.child.contract import FailureReason, Phase, Pool
from trainer.frameworks import ms_swift
from trainer.frameworks.ms_swift.failures import ALL, OWN, SUGGESTIONS

TEXTS = OF_FRAMEWORKS["ms_swift"]


@pytest.mark.parametrize("name", sorted(TEXTS))
def test_its_text_is_recognised(name: str) -> None:
    for text in TEXTS[name]:
        found = ms_swift.diagnose(f"[INFO:swift] something\nTraceback (most recent call last):\n{text}\n")
        assert found is not None, text
        assert found.reason is FailureReason.ILLEGAL
        assert found.suggestion == SUGGESTIONS[name]
        assert found.message in text


def test_every_sign_has_a_text_and_a_suggestion() -> None:
    names = {sign.name for sign in OWN}
    assert names == set(TEXTS)
    assert names <= set(SUGGESTIONS)


def test_what_every_framework_shares_is_recognised_too() -> None:
    text = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has 79 GiB"
    found = ms_swift.diagnose(f"{text}\nE1122 torch.distributed.elastic ChildFailedError: exitcode  : 1\n")
    assert found is not None
    assert (found.reason, found.pool) == (FailureReason.OOM, Pool.DEVICE)
    killed = ms_swift.diagnose("torch.distributed.elastic ... exitcode  : -9 (pid: 5)\nSignal 9 (SIGKILL) received")
    assert killed is not None
    assert (killed.reason, killed.pool) == (FailureReason.OOM, Pool.HOST)


def test_a_log_line_of_a_good_run_is_no_failure() -> None:
    quiet = "{'loss': 0.1, 'grad_norm': 0.5, 'memory(GiB)': 3.2, 'train_speed(s/it)': 1.5, 'reward': 0.25}"
    assert ms_swift.diagnose(quiet) is None
    assert all(not sign.found_in(quiet) for sign in ALL)


def test_log_probs_out_of_memory_have_a_suggestion_of_their_own() -> None:
    assert "logprob_rows" in ms_swift.suggest(FailureReason.OOM, Phase.LOGPROB, Pool.DEVICE)
    assert "gpu_memory_utilization" in ms_swift.suggest(FailureReason.OOM, Phase.GENERATE, Pool.ROLLOUT_CACHE)
    assert ms_swift.suggest(FailureReason.CANCELLED) == ""
