"""What becomes of every known failure: as an exception in the trial's process, and as text in its log."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autotune.domain import FailureReason, Outcome, Phase, Pool
from autotune.frameworks import framework_named
from autotune.running.ending import Ending, Stop, outcome_of
from tests.support.failure_texts import CAUSES, ECHOES, KILLS, RAYLET, TIMEOUTS, Row
from trainer.child.contract import SIGNS, CurrentPhase, Result, StartupPart, read_signs
from trainer.child.failures import classify
from trainer.frameworks.common import failures

TRL = framework_named("trl")
LOG = "step 1 of 3\n{}\nsome later line\n"
EACH = pytest.mark.parametrize("row", CAUSES, ids=str)


class FrameworkError(Exception):
    """What a framework raises: the text must tell, not the type."""


def outcome_of_error(error: BaseException, phase: Phase | None = None, mark: str = "engine", **facts: Any) -> Outcome:
    """The outcome of a trial whose child reported ``error``."""
    result = classify(error, phase)
    return outcome_of(Ending(1, 9.0, result=result, phase=here(mark), **facts), TRL, "/log.txt")


def logged(text: str, mark: str | None = None, **facts: Any) -> Outcome:
    """The outcome of a trial that left only its log."""
    phase = here(mark) if mark else None
    return outcome_of(Ending(1, 9.0, phase=phase, log_tail=LOG.format(text), **facts), TRL, "/log.txt")


def here(phase: str) -> CurrentPhase:
    return CurrentPhase(phase, 0, "recorded")


def kind(outcome: Outcome) -> tuple[FailureReason | None, Pool | None]:
    return outcome.reason, outcome.pool


@EACH
def test_in_a_log(row: Row) -> None:
    got = logged(row.text)
    assert (*kind(got), got.phase) == (row.reason, row.pool, row.phase)
    assert row.try_ in got.suggestion
    assert got.suggestion
    assert got.message in row.text


@EACH
def test_as_an_exception_of_the_trials_own_process(row: Row) -> None:
    got = outcome_of_error(FrameworkError(row.text))
    assert kind(got) == (row.reason, row.pool)
    assert got.phase == (row.phase or "engine")
    assert row.try_ in got.suggestion or (
        row.reason is FailureReason.NAN and "nothing has been trained" in got.suggestion
    )
    assert "\n" not in got.message


@EACH
def test_within_a_cycle_the_meter_knows_the_place(row: Row) -> None:
    got = outcome_of_error(FrameworkError(row.text), Phase.SYNC, "sync")
    assert got.phase == ("reward" if row.reason is FailureReason.REWARD_ERROR else "sync")
    assert kind(got) == (row.reason, row.pool)


@EACH
def test_the_cause_counts_whatever_only_tells_of_it(row: Row) -> None:
    for echo in ECHOES:
        assert kind(logged(f"{row.text}\n{echo}")) == (row.reason, row.pool), echo
        raised = FrameworkError(echo)
        raised.__cause__ = FrameworkError(row.text)
        assert kind(outcome_of_error(raised)) == (row.reason, row.pool), echo
        elsewhere = outcome_of_error(FrameworkError(echo), Phase.GENERATE, "generate", log_tail=LOG.format(row.text))
        assert kind(elsewhere) == (row.reason, row.pool), echo


@pytest.mark.parametrize("echo", ECHOES, ids=lambda text: text[:30])
def test_what_only_tells_of_a_failure_is_a_crash_that_says_where_to_look(echo: str) -> None:
    for got in (logged(echo), outcome_of_error(FrameworkError(echo))):
        assert kind(got) == (FailureReason.CRASH, None)
        assert "further up in the log" in got.suggestion


@pytest.mark.parametrize("text", KILLS)
def test_a_killed_rank_is_out_of_memory_only_where_the_kernel_says_so(text: str) -> None:
    by_kernel = logged(text, "update", oom_kills=1)
    assert (*kind(by_kernel), by_kernel.phase) == (FailureReason.OOM, Pool.HOST, "update")
    assert "lower micro_batch_size" in by_kernel.suggestion
    by_somebody = logged(text, "update", oom_kills=0)
    assert kind(by_somebody) == (FailureReason.INFRA, None)
    assert "from outside" in by_somebody.message


@pytest.mark.parametrize("text", KILLS)
def test_why_it_was_killed_counts_more_than_that_it_was(text: str) -> None:
    cause = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB"
    assert kind(logged(f"{cause}\n{text}")) == (FailureReason.OOM, Pool.DEVICE)


def test_a_rank_that_a_launcher_ended_leaves_the_word_to_the_log() -> None:
    """torchrun sends SIGTERM to all ranks when one has failed; that is not the user's stop."""
    stopped = Result(False, FailureReason.CANCELLED, None, None, "stopped by SIGTERM")
    killed = Ending(1, 9.0, result=stopped, phase=here("update"), log_tail=LOG.format(KILLS[1]), oom_kills=1)
    assert kind(outcome_of(killed, TRL, "")) == (FailureReason.OOM, Pool.HOST)
    nothing = replace(killed, log_tail="", oom_kills=0)
    ended = outcome_of(nothing, TRL, "")
    assert (ended.reason, ended.message) == (FailureReason.INFRA, "stopped by SIGTERM, from outside")
    asked = replace(killed, stop=Stop.CANCELLED)
    assert outcome_of(asked, TRL, "").reason is FailureReason.CANCELLED


def test_a_rank_that_fell_with_those_killed_at_the_memory_limit_does_not_hide_it() -> None:
    echo = classify(FrameworkError(ECHOES[8]), Phase.WAIT)
    why = "the process tree reached 8 GiB"
    over = Ending(-9, 9.0, stop=Stop.MEMORY, why=why, result=echo, phase=here("update"))
    assert kind(outcome_of(over, TRL, "")) == (FailureReason.OOM, Pool.HOST)


@pytest.mark.parametrize("text", TIMEOUTS)
def test_a_collective_that_waited_too_long_is_a_hang_unless_a_rank_ran_out_of_memory(text: str) -> None:
    assert kind(logged(text)) == (FailureReason.HANG, None)
    assert kind(outcome_of_error(FrameworkError(text))) == (FailureReason.HANG, None)
    assert kind(logged(f"CUDA error: out of memory\n{text}")) == (FailureReason.OOM, Pool.DEVICE)


@pytest.mark.parametrize("stop", [Stop.HANG, Stop.DEADLINE])
def test_a_wedge_after_one_ranks_oom_keeps_its_reason_and_tells_the_cause(stop: Stop) -> None:
    log = LOG.format("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB")
    ending = Ending(-9, 9.0, stop=stop, why="no sign of progress", phase=here("logprob"), log_tail=log)
    got = outcome_of(ending, TRL, "")
    assert got.reason in (FailureReason.HANG, FailureReason.TIMEOUT)
    assert got.message.startswith("no sign of progress; the log says: torch.OutOfMemoryError")
    assert "lower logprob_rows" in got.suggestion


def test_rays_task_tells_host_from_device_by_what_it_failed_with() -> None:
    bare = "ray.exceptions.RayTaskError(OutOfMemoryError): ray::WorkerDict.update_actor() (pid=7)"
    assert kind(logged(bare)) == (FailureReason.OOM, None)
    assert kind(logged(f"{bare}\n  torch.OutOfMemoryError: CUDA out of memory.")) == (FailureReason.OOM, Pool.DEVICE)
    assert kind(logged(f"{bare}\nTask was killed due to the node running low on memory")) == (
        FailureReason.OOM,
        Pool.HOST,
    )


@pytest.mark.parametrize(
    ("module", "name", "pool"),
    [
        ("torch", "OutOfMemoryError", Pool.DEVICE),
        ("torch.cuda", "OutOfMemoryError", Pool.DEVICE),
        ("ray.exceptions", "OutOfMemoryError", Pool.HOST),
    ],
)
def test_an_error_without_words_is_known_by_its_type(module: str, name: str, pool: Pool) -> None:
    error = type(name, (RuntimeError,), {"__module__": module})()
    assert kind(outcome_of_error(error, Phase.UPDATE)) == (FailureReason.OOM, pool)


def test_every_text_of_the_table_is_found_by_a_failure_above() -> None:
    """A text nobody can hit, or one that an earlier sign takes away, is no knowledge."""
    lines = [
        line
        for text in (*(r.text for r in CAUSES), *KILLS, *TIMEOUTS, *ECHOES, RAYLET, "RayTaskError(OutOfMemoryError)")
        for line in text.splitlines()
    ]
    taken = [(reading.sign.name, reading.line) for line in lines if (reading := read_signs(line, SIGNS)) is not None]
    for sign in SIGNS:
        for text in sign.texts:
            alone = [line for name, line in taken if name == sign.name]
            assert any(_holds(text, line) for line in alone), (sign.name, text)


def _holds(text: str, line: str) -> bool:
    return re.search(".*".join(re.escape(part) for part in text.split("…")), line) is not None


def test_every_suggestion_belongs_to_a_sign_and_says_one_thing() -> None:
    names = [sign.name for sign in SIGNS]
    assert len(set(names)) == len(names)
    assert set(failures.SUGGESTIONS) <= set(names)
    for sign in SIGNS:
        if sign.name not in failures.SUGGESTIONS:
            assert sign.reason is FailureReason.OOM, "only of memory can be said more by the place"
            assert failures.suggest(sign.reason, "update", sign.pool)


VLLMS_ACCOUNT = "Free memory on device (70.1/79.1 GiB) on startup. Desired GPU memory utilization is (0.3, 23.7 GiB)"


@pytest.mark.parametrize("text", ["", "all went well\n", "memory: 12 GiB free\nout of patience\n", VLLMS_ACCOUNT])
def test_an_innocent_log_says_nothing(text: str) -> None:
    got = logged(text)
    assert kind(got) == (FailureReason.CRASH, None)
    assert got.message.startswith("ended with exit code 1")


def test_a_cache_too_small_is_never_answered_with_a_smaller_share() -> None:
    """The one suggestion everybody gets wrong."""
    for sign in SIGNS:
        if sign.pool is Pool.ROLLOUT_CACHE:
            said = failures.SUGGESTIONS.get(sign.name, "")
            assert said.startswith("raise "), sign.name
            assert "lower gpu_memory_utilization" not in said
            assert "lower kv_cache" not in said
    for place in (*Phase, *StartupPart, None):
        assert failures.suggest(FailureReason.OOM, place and place.value, Pool.ROLLOUT_CACHE).startswith("raise ")


def test_an_optimizer_that_finds_no_room_beside_the_engine_is_not_told_of_the_weights() -> None:
    """As an H100 had it: the engine held 0.8 of the device when the optimizer's state was made."""
    text = "CUDA out of memory. Tried to allocate 54.00 MiB. GPU 0 has a total capacity of 79.18 GiB"
    got = outcome_of_error(FrameworkError(text), None, "first_batch")
    assert (*kind(got), got.phase) == (FailureReason.OOM, Pool.DEVICE, "first_batch")
    assert got.suggestion.startswith("lower gpu_memory_utilization")
    assert "alone" not in failures.suggest(FailureReason.OOM, "first_batch", Pool.HOST)


DOC = Path(__file__).resolve().parents[3] / "docs" / "failures.md"
HEAD = "| In an error or a log | Ends as | Where | What to try |\n|---|---|---|---|\n"
PLACES_HEAD = "| Out of | While | What to try |\n|---|---|---|\n"
POOLS = {Pool.DEVICE: "device memory", Pool.HOST: "host memory", Pool.ROLLOUT_CACHE: "rollout cache"}


def table() -> str:
    rows = []
    for sign in SIGNS:
        texts = "<br>".join(f"`{text.replace('`', chr(39)).replace('|', chr(92) + '|')}`" for text in sign.texts)
        end = sign.reason.value + (f", {POOLS[sign.pool]}" if sign.pool else "")
        where = sign.phase or "where it was"
        rows.append(f"| {texts} | {end} | {where} | {failures.SUGGESTIONS.get(sign.name, 'by the place, below')} |")
    return HEAD + "\n".join(rows) + "\n"


def places() -> str:
    rows = []
    for pool in Pool:
        said: dict[str, list[str]] = {}
        for place in (*StartupPart, *Phase):
            said.setdefault(failures.suggest(FailureReason.OOM, place.value, pool), []).append(place.value)
        rows += [f"| {POOLS[pool]} | {', '.join(where)} | {what} |" for what, where in said.items()]
    return PLACES_HEAD + "\n".join(rows) + "\n"


def test_the_page_says_what_the_code_does() -> None:
    """When a sign changes: put what this prints into the page."""
    page = DOC.read_text()
    for wanted in (table(), places()):
        assert wanted in page, f"docs/failures.md should hold\n\n{wanted}"
