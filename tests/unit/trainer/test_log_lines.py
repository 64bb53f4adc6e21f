"""Why a trial ended, by logs of several processes with notes, warnings and colours in them."""

from __future__ import annotations

import itertools

import pytest

from autotune.domain import FailureReason, Outcome, Pool
from autotune.frameworks import framework_named
from autotune.running.ending import Ending, Stop, outcome_of
from tests.support.failure_texts import CAUSES, RAYLET, Row
from trainer.child.contract import SIGNS, CurrentPhase, Phase, Result, last_error, read_log

NAMES = ("trl", "open_r1", "ms_swift", "verl")
CRASH, OOM, HANG = FailureReason.CRASH, FailureReason.OOM, FailureReason.HANG
TRACE = 'Traceback (most recent call last):\n  File "train.py", line 7, in main\n    run()\n'
NOISE = (
    "WARNING 11-20 10:11:12 [utils.py:77] could not create a primitive descriptor for matmul, fallback to torch",
    "(EngineCore pid=41) WARNING 11-20 10:11:12 [utils.py:77] could not create a primitive descriptor, fallback",
    "INFO 11-20 10:11:12 [executor.py:1] CUDA out of memory is avoided by a smaller share",
    "[rank3]:[W326 22:36:28.884 CUDACachingAllocator.cpp:14] CUDA out of memory, freeing the cache",
    "/env/lib/x.py:12: UserWarning: CUDA out of memory may follow",
    "2026-11-20 10:11:12,000 - WARNING - torch.OutOfMemoryError was met and handled",
    "[WARNING:swift] CUDA error: out of memory in a probe",
    "[2026-11-20 10:11:12,000][trainer][WARNING] - Cannot allocate memory for pinned pages",
    "warning: Cannot allocate memory for huge pages",
    "DefaultCPUAllocator: can't allocate memory, falling back to mmap",
    "\x1b[33mWARNING\x1b[0m 11-20 10:11:12 std::bad_alloc was handled",
)
CLEAN = "ValueError: the tokenizer has no chat template"


def outcome(log: str, name: str = "trl", result: Result | None = None, **facts: object) -> Outcome:
    base = {"exit_code": 1, "seconds": 9.0, "phase": CurrentPhase("update", 2, "recorded"), "log_tail": log}
    return outcome_of(Ending(**{**base, "result": result, **facts}), framework_named(name), "/log.txt")  # type: ignore[arg-type]


def report(message: str, detail: str = "") -> Result:
    return Result(False, CRASH, Phase.GENERATE, None, message, detail or TRACE + message)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("line", NOISE)
def test_a_warning_with_memory_words_is_no_failure(line: str, name: str) -> None:
    for log in (line, f"{line}\n{TRACE}{CLEAN}", f"{TRACE}{CLEAN}\n{line}", f"{line}\n{line}\nstep 3"):
        got = outcome(log, name)
        assert (got.reason, got.pool) == (CRASH, None), log


@pytest.mark.parametrize("name", NAMES)
def test_a_log_full_of_warnings_says_the_clean_error(name: str) -> None:
    got = outcome("\n".join((*NOISE, TRACE + CLEAN, *NOISE)), name)
    assert (got.reason, got.pool) == (CRASH, None)
    assert CLEAN in got.message


@pytest.mark.parametrize("name", NAMES)
def test_the_childs_own_error_is_the_cause_whatever_the_log_holds(name: str) -> None:
    for line in (*(row.text for row in CAUSES if row.reason is OOM), *NOISE, RAYLET):
        got = outcome(line, name, report(CLEAN))
        assert (got.reason, got.pool, got.message) == (CRASH, None, CLEAN), line


@pytest.mark.parametrize(
    "echo", ["ConnectionResetError: [Errno 104] Connection lost", "EOFError", "BrokenPipeError: x"]
)
def test_a_lost_connection_leaves_the_word_to_the_log(echo: str) -> None:
    got = outcome("[rank1]: torch.OutOfMemoryError: CUDA out of memory.", result=report(echo))
    assert (got.reason, got.pool) == (OOM, Pool.DEVICE)


PREFIXES = (
    *("", "[rank1]: ", "(EngineCore pid=7) ", "(WorkerDict pid=9, ip=10.0.0.2) "),
    "(EngineCore_DP0 pid=1) ERROR 10-25 13:08:43 [core.py:708] ",
)


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize("row", CAUSES, ids=str)
def test_a_cause_is_known_behind_prefixes_and_colours(row: Row, prefix: str) -> None:
    lines = [f"\x1b[31m{prefix}\x1b[0m{line}" for line in row.text.splitlines()]
    got = outcome("\n".join((NOISE[0], *lines, NOISE[1])), phase=None)
    assert (got.reason, got.pool) == (row.reason, row.pool)
    assert "\x1b" not in got.message


def test_what_stood_before_an_unknown_error_did_not_end_the_process() -> None:
    handled = f"{TRACE}torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB"
    assert outcome(f"{handled}\nretrying with fewer rows\n{TRACE}{CLEAN}").reason is CRASH
    assert outcome(f"CUDA out of memory\n{CLEAN}").reason is CRASH
    assert outcome(f"{TRACE}{CLEAN}\n{handled}").reason is OOM


@pytest.mark.parametrize(
    "between",
    [
        "\nThe above exception was the direct cause of the following exception:\n\n",
        "\nDuring handling of the above exception, another exception occurred:\n\n",
    ],
)
def test_an_error_is_told_by_what_it_was_raised_from(between: str) -> None:
    cause = "RuntimeError: CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported\n"
    text = f"{TRACE}{cause}{between}{TRACE}{CLEAN}"
    for got in (outcome(text), outcome("", result=report(CLEAN, text))):
        assert (got.reason, got.pool) == (OOM, Pool.DEVICE)
    twice = f"{text}{between}{TRACE}RuntimeError: the trial failed"
    assert outcome(twice).reason is OOM


def test_ranks_are_read_apart_and_the_first_that_fell_counts() -> None:
    """Their lines are mixed: a traceback of one has lines of the others in it."""
    full = [f"[rank1]: {line}" for line in f"{TRACE}torch.OutOfMemoryError: CUDA out of memory.".splitlines()]
    waits = [f"[rank0]: {line}" for line in f"{TRACE}RuntimeError: [1] is setting up NCCL".splitlines()]
    mixed = [line for pair in itertools.zip_longest(full, waits) for line in pair if line]
    for lines in (mixed, [*waits, *full], [*full, *waits]):
        got = outcome("\n".join(lines))
        assert (got.reason, got.pool) == (OOM, Pool.DEVICE)
    other = [line.replace("torch.OutOfMemoryError: CUDA out of memory.", CLEAN) for line in mixed]
    assert outcome("\n".join(other)).reason is CRASH


def test_an_ignored_exception_ended_nothing() -> None:
    ignored = f"Exception ignored in: <function Pool.__del__ at 0x7f>\n{TRACE}AttributeError: 'NoneType' object has no"
    got = outcome(f"{TRACE}torch.OutOfMemoryError: CUDA out of memory.\n{ignored}")
    assert got.reason is OOM
    assert "log says" not in outcome(ignored).message


@pytest.mark.parametrize("count", [1, 10, 12])
def test_rays_monitor_killed_workers(count: int) -> None:
    killed = RAYLET.replace(": 3 Workers", f": {count} Workers")
    for echo in (
        "ray.exceptions.ActorDiedError: The actor died unexpectedly",
        "RayTaskError(ActorDiedError): ray::x()",
    ):
        for log in (f"{killed}\n{echo}", f"{echo}\n{killed}"):
            got = outcome(log, "verl", report(echo))
            assert (got.reason, got.pool) == (OOM, Pool.HOST)
            assert "lower" in got.suggestion


def test_workers_that_crashed_otherwise_are_not_out_of_memory() -> None:
    none = RAYLET.replace(": 3 Workers", ": 0 Workers").replace("0 Workers crashed", "2 Workers crashed")
    assert outcome(f"{none}\nray.exceptions.ActorDiedError: x", "verl").reason is CRASH
    assert outcome(f"{RAYLET}\n{TRACE}{CLEAN}", "verl").reason is CRASH, "the driver ended by itself"


@pytest.mark.parametrize("prefix", ["", "(TaskRunner pid=77) "])
def test_rays_task_is_told_by_the_error_in_it(prefix: str) -> None:
    echo = "ray.exceptions.RayTaskError(ValueError): ray::TaskRunner.run() (pid=7, ip=10.0.0.1)"
    log = f'{prefix}{echo}\n{prefix}  File "x.py", line 3, in run\n{prefix}{CLEAN}'
    for got in (outcome(log, "verl"), outcome(log, "verl", report(echo, f"{TRACE}{echo}"))):
        assert got.reason is CRASH
        assert CLEAN in got.message
    assert outcome("", "verl", report(echo, f"{TRACE}{echo}\n{TRACE}{CLEAN}")).message == CLEAN
    real = log.replace(CLEAN, "ValueError: Total available GPUs 2 is less than total desired GPUs 8")
    assert outcome(real, "verl").reason is FailureReason.ILLEGAL


@pytest.mark.parametrize(
    ("stop", "phase", "silent", "reason"),
    [
        (Stop.DEADLINE, "sync", 60.0, HANG),
        (Stop.DEADLINE, "sync", 59.0, FailureReason.TIMEOUT),
        (Stop.DEADLINE, "generate", 600.0, FailureReason.TIMEOUT),
        (Stop.HANG, "sync", 180.0, HANG),
        (Stop.HANG, "update", 180.0, HANG),
        (Stop.CANCELLED, "sync", 600.0, FailureReason.CANCELLED),
    ],
)
def test_a_sync_that_never_ends_is_a_hang(stop: Stop, phase: str, silent: float, reason: FailureReason) -> None:
    where = CurrentPhase(phase, 1, "recorded")
    got = outcome("", stop=stop, why="not finished after 600 s", phase=where, silent_s=silent, exit_code=-9)
    stuck = reason is HANG and phase == "sync"
    assert (got.reason, got.phase) == (reason, phase)
    assert got.message.startswith("weight sync: rank 0 waits; ") == stuck
    assert ("take part in the sync" in got.suggestion) == stuck


@pytest.mark.parametrize(
    "line",
    [
        "(autoscaler +4m3s) Error: No available node types can fulfill resource request {'GPU': 8.0}.",
        "(autoscaler +2m0s) Warning: The following resource request cannot be scheduled right now: {'GPU': 8.0}.",
        "(TaskRunner pid=1) (WorkerDict pid=2, ip=10.0.0.1) Fatal Python error: Segmentation fault",
        "(vLLMHttpServer pid=1) (EngineCore pid=2) ERROR 01-02 03:04:05 [core.py:7] KeyError: 'model.layers.0'",
    ],
)
def test_what_stands_behind_the_last_prefix_is_quoted_of_a_run_that_hangs(line: str) -> None:
    got = outcome(f"step 3\n{line}\n", "verl", stop=Stop.HANG)
    assert got.reason is FailureReason.HANG
    assert line in got.message


def test_a_log_of_no_error_says_nothing() -> None:
    for text in ("", "\n\n", "step 3\n", "Traceback (most recent call last):\n", *NOISE):
        assert read_log(text, SIGNS) is None
        assert last_error(text, SIGNS) == ""
