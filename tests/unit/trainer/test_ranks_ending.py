"""One report, of the rank that really failed, whoever is ended with it."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from unittest.mock import patch

import pytest

from trainer.child.contract import FailureReason, Phase, Pool, Result, RunPaths, read_result
from trainer.child.user_environment import meet_on_loopback
from trainer.child.worker import ECHOES, ResultClaim, is_echo

OOM = Result(ok=False, reason=FailureReason.OOM, phase=Phase.UPDATE, pool=Pool.HOST, message="can't allocate memory")
ECHO = Result(
    ok=False, reason=FailureReason.CRASH, message="RuntimeError: [gloo/transport/tcp/pair.cc] Connection closed by peer"
)
ENDED = Result(ok=False, reason=FailureReason.CANCELLED, message="stopped by SIGTERM")
FINE = Result(ok=True)


def rank(paths: RunPaths, number: int, of: int = 2) -> ResultClaim:
    return ResultClaim(paths, number, of)


@pytest.fixture
def paths(tmp_path: Path) -> RunPaths:
    return RunPaths(tmp_path)


@pytest.mark.parametrize("later", [ECHO, ENDED, FINE])
def test_a_failure_of_rank_1_is_not_written_over_by_rank_0(paths: RunPaths, later: Result) -> None:
    """Else an out-of-memory error would be stored as a crash, and proposed again."""
    rank(paths, 1).settle(OOM)
    rank(paths, 0).settle(later)
    assert read_result(paths.result) == OOM


@pytest.mark.parametrize("consequence", [ECHO, ENDED])
def test_a_consequence_is_not_told_even_if_nothing_else_is(
    paths: RunPaths, consequence: Result, capfd: pytest.CaptureFixture[str]
) -> None:
    """A rank that was killed can say nothing; what the launcher wrote of it must not be hidden."""
    rank(paths, 0).settle(consequence)
    assert not paths.result.exists()
    assert consequence.message in capfd.readouterr().err
    rank(paths, 1).settle(OOM)
    assert read_result(paths.result) == OOM


def test_success_is_told_by_rank_0_alone(paths: RunPaths) -> None:
    rank(paths, 1).settle(FINE)
    assert not paths.result.exists()
    rank(paths, 0).settle(FINE)
    assert read_result(paths.result) == FINE


def test_each_machine_has_a_folder_in_which_its_first_rank_tells_of_success(paths: RunPaths) -> None:
    """Rank 3 of 4 on two machines is the second of its own; rank 2 leads there."""
    ResultClaim(paths, 3, 4, leads=False).settle(FINE)
    assert not paths.result.exists()
    ResultClaim(paths, 2, 4, leads=True).settle(FINE)
    assert read_result(paths.result) == FINE


@pytest.mark.parametrize(
    ("variables", "interface"),
    [
        ({}, None),
        ({"LOCAL_RANK": "0"}, "lo"),
        ({"LOCAL_RANK": "0", "GROUP_WORLD_SIZE": "2", "MASTER_ADDR": "10.0.0.1"}, None),
        ({"LOCAL_RANK": "0", "GROUP_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}, "lo"),
        ({"LOCAL_RANK": "0", "GLOO_SOCKET_IFNAME": "eth0"}, "eth0"),
    ],
)
def test_only_ranks_of_one_machine_speak_over_the_loopback(variables: dict[str, str], interface: str | None) -> None:
    with patch.dict(os.environ, variables, clear=True):
        meet_on_loopback()
        assert os.environ.get("GLOO_SOCKET_IFNAME") == interface


def test_a_process_by_itself_tells_everything(tmp_path: Path) -> None:
    for number, result in enumerate((OOM, ECHO, ENDED, FINE)):
        alone = RunPaths(tmp_path / str(number))
        rank(alone, 0, of=1).settle(result)
        assert read_result(alone.result) == result


def test_what_was_settled_first_counts(paths: RunPaths) -> None:
    ending = rank(paths, 0, of=1)
    ending.settle(OOM)
    assert ending.settle(FINE) == OOM
    assert read_result(paths.result) == OOM


def test_ranks_that_fail_at_once_leave_one_whole_report(tmp_path: Path) -> None:
    for turn in range(20):
        paths = RunPaths(tmp_path / str(turn))
        results = [Result(ok=False, reason=FailureReason.NAN, message=f"rank {n}" + "x" * 5000) for n in range(4)]
        threads = [threading.Thread(target=rank(paths, n, of=4).settle, args=(r,)) for n, r in enumerate(results)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert read_result(paths.result) in results


def test_an_own_failure_is_no_echo() -> None:
    assert not is_echo(OOM)
    assert all(is_echo(Result(ok=False, reason=FailureReason.CRASH, message=f"RuntimeError: {t}")) for t in ECHOES)
