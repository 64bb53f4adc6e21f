from __future__ import annotations

from typing import Any

import pytest

from autotune.domain import FailureReason, Outcome, Pool
from autotune.frameworks import TrlFramework
from autotune.running.ending import REASONS, Ending, Stop, outcome_of
from tests.support.scripted_framework import ScriptedFramework
from trainer.child.contract import CurrentPhase, Phase, Result

FRAMEWORK = ScriptedFramework()
HERE = CurrentPhase("update", 2, "recorded")


def outcome(**facts: Any) -> Outcome:
    base: dict[str, Any] = {"exit_code": 1, "seconds": 1.0, "phase": HERE}
    return outcome_of(Ending(**{**base, **facts}), FRAMEWORK, "/log.txt")


@pytest.mark.parametrize("stop", sorted(REASONS))
def test_why_it_was_stopped_is_the_reason(stop: Stop) -> None:
    got = outcome(exit_code=-9, stop=stop, why="because")
    assert (got.reason, got.message, got.phase) == (REASONS[stop], "because", "update")
    assert got.log_path == "/log.txt"
    assert (got.pool is Pool.HOST) == (stop is Stop.MEMORY)


@pytest.mark.parametrize("stop", [None, *Stop])
def test_the_childs_own_report_comes_first(stop: Stop | None) -> None:
    report = Result(False, FailureReason.NAN, Phase.LOGPROB, None, "loss is NaN")
    got = outcome(result=report, stop=stop, exit_code=-9, oom_kills=1, log_tail="CUDA out of memory")
    assert (got.reason, got.phase, got.message) == (FailureReason.NAN, "logprob", "loss is NaN")


def test_of_several_ranks_the_one_whose_memory_was_full_is_named() -> None:
    """Ranks are not all alike: one gathers, another has the longest rows."""
    full = Result(False, FailureReason.OOM, Phase.UPDATE, Pool.DEVICE, "CUDA out of memory", data={"rank": 2})
    assert outcome(result=full).message == "rank 2: CUDA out of memory"
    broken = Result(False, FailureReason.REWARD_ERROR, Phase.REWARD, None, "no such column", data={"rank": 2})
    assert outcome(result=broken).message == "no such column", "all fail alike, and whoever was first is chance"


def test_a_server_out_of_memory_is_advised_on_its_own_gpus() -> None:
    """Whatever the trial was at when its server died."""
    real = TrlFramework()
    ending = Ending(
        exit_code=1, seconds=1.0, phase=CurrentPhase("generate", 2, "recorded"), stop=Stop.SERVER, served=True,
        why="the rollout server ended with exit code 1 in the middle of the trial",
        server_log="torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 4.00 GiB",
    )  # fmt: skip
    got = outcome_of(ending, real, "/studies/1/1/server.txt")
    assert (got.reason, got.pool, got.phase) == (FailureReason.OOM, Pool.DEVICE, "generate")
    assert "spread a replica" in got.suggestion


def test_an_ok_report_is_believed_whatever_the_exit_code() -> None:
    assert outcome(result=Result(True), exit_code=139).ok


@pytest.mark.parametrize("code", [-9, 137])
def test_a_kill_with_the_kernels_evidence_is_an_oom_of_the_host(code: int) -> None:
    got = outcome(exit_code=code, oom_kills=1)
    assert (got.reason, got.pool, got.phase) == (FailureReason.OOM, Pool.HOST, "update")
    assert got.suggestion


@pytest.mark.parametrize("code", [-9, 137])
def test_a_kill_without_evidence_is_no_configurations_fault_and_says_so(code: int) -> None:
    got = outcome(exit_code=code)
    assert got.reason is FailureReason.INFRA
    assert got.inconclusive
    assert "daemon" in got.suggestion
    assert "from outside" in got.message


def test_a_server_that_something_outside_killed_is_no_configurations_fault() -> None:
    ending = Ending(exit_code=1, seconds=1.0, stop=Stop.SERVER, served=True, server_exit=-9, why="the server ended")
    assert outcome_of(ending, ScriptedFramework(), "server.txt").reason is FailureReason.INFRA


def test_a_trial_whose_time_ends_in_a_call_of_the_reward_says_how_long_it_has_waited() -> None:
    there = CurrentPhase("reward", 2, "recorded")
    got = outcome(exit_code=-9, stop=Stop.DEADLINE, phase=there, silent_s=37.0, why="not finished after 150 s")
    assert (got.reason, got.message) == (FailureReason.TIMEOUT, "the reward has not returned for 37 s")
    quick = outcome(exit_code=-9, stop=Stop.DEADLINE, phase=there, silent_s=3.0, why="not finished after 150 s")
    assert quick.message == "not finished after 150 s"


def test_another_processes_oom_is_not_blamed_for_a_plain_crash() -> None:
    assert outcome(exit_code=1, oom_kills=3).reason is FailureReason.CRASH


def test_an_unknown_exception_is_looked_up_in_the_frameworks_strings() -> None:
    report = Result(False, FailureReason.CRASH, Phase.UPDATE, None, "RuntimeError", "... CUDA out of memory ...")
    got = outcome(result=report)
    assert (got.reason, got.pool, got.phase) == (FailureReason.OOM, Pool.DEVICE, "update")
    assert got.suggestion == "less of device memory"


@pytest.mark.parametrize(("cycle", "blamed"), [(-1, "the model's weights"), (0, "the model's weights"), (3, "lower")])
def test_a_nan_before_any_update_is_not_the_learning_rates(cycle: int, blamed: str) -> None:
    report = Result(False, FailureReason.NAN, Phase.GENERATE, None, "probabilities are nan")
    ending = Ending(exit_code=1, seconds=1.0, phase=CurrentPhase("generate", cycle, "recorded"), result=report)
    assert blamed in outcome_of(ending, TrlFramework(), "").suggestion


@pytest.mark.parametrize(
    ("code", "words"), [(-11, "SIGSEGV"), (-200, "signal 200"), (3, "exit code 3"), (None, "could not be")]
)
def test_every_exit_has_a_sentence(code: int | None, words: str) -> None:
    got = outcome(exit_code=code, phase=None)
    assert got.reason is FailureReason.CRASH
    assert words in got.message
    assert got.phase is None


def test_lingering_with_an_unreadable_report_is_not_blamed_on_our_own_kill() -> None:
    got = outcome(exit_code=-9, stop=Stop.LINGERED, why="did not exit", result_error="its result cannot be read")
    assert got.reason is FailureReason.CRASH
    assert "did not exit; its result cannot be read" in got.message


@pytest.mark.parametrize(
    ("phase", "code", "log", "reason"),
    [
        ("reward", 0, "", FailureReason.REWARD_ERROR),
        ("reward", 7, "", FailureReason.REWARD_ERROR),
        ("update", 0, "", FailureReason.CRASH),
        ("reward", -11, "", FailureReason.CRASH),
        ("reward", 137, "", FailureReason.INFRA),
        ("generate", -15, "", FailureReason.INFRA),
        ("update", -1, "", FailureReason.INFRA),
        ("update", -6, "", FailureReason.CRASH),
        ("reward", 1, "Traceback (most recent call last):\nRuntimeError: NCCL is gone\n", FailureReason.CRASH),
    ],
)
def test_a_reward_that_leaves_without_a_word_is_blamed_and_nothing_else_that_ends_there(
    phase: str, code: int, log: str, reason: FailureReason
) -> None:
    ending = Ending(code, 1.0, phase=CurrentPhase(phase, 2, "recorded"), log_tail=log)
    outcome = outcome_of(ending, ScriptedFramework(), "log.txt")
    assert outcome.reason is reason
    assert ("the reward ended the process" in outcome.message) is (reason is FailureReason.REWARD_ERROR)
