"""Memory that was above the limit between two looks of the watchdog."""

from __future__ import annotations

import pytest

from autotune.domain import FailureReason, Pool
from autotune.frameworks import framework_named
from autotune.running.ending import Ending, outcome_of
from trainer.child.contract import Peaks, Phase
from trainer.child.failures import OverLimitError, classify
from trainer.child.memory import MemoryWatch, check_limit, status_bytes

MIB = 1 << 20


@pytest.mark.skipif(not status_bytes("VmHWM"), reason="this kernel keeps no high-water mark")
def test_what_comes_and_goes_within_a_phase_is_over_the_limit_and_the_phase_is_named() -> None:
    watch = MemoryWatch()
    watch.begin()
    watch.close(Phase.GENERATE)
    held = bytearray(b"x" * MIB) * 192
    assert len(held) == 192 * MIB
    del held
    watch.close(Phase.LOGPROB)
    watch.close(Phase.UPDATE)
    peaks = watch.peaks()
    most = max(peaks[phase.value].host or 0 for phase in (Phase.GENERATE, Phase.LOGPROB, Phase.UPDATE))
    check_limit(peaks, most)
    check_limit(peaks, None)
    with pytest.raises(OverLimitError) as raised:
        check_limit(peaks, most - 96 * MIB)
    assert raised.value.phase is Phase.LOGPROB


def test_where_nothing_is_known_of_the_host_nothing_is_over() -> None:
    check_limit({}, 1)
    check_limit({"update": Peaks(device_used=9), "cycle": Peaks(device_used=9)}, 1)


def test_it_ends_as_out_of_host_memory_with_what_it_held_and_the_limit() -> None:
    peaks = {"update": Peaks(host=3 << 30), "generate": Peaks(host=1 << 30), "cycle": Peaks(host=3 << 30)}
    with pytest.raises(OverLimitError) as raised:
        check_limit(peaks, 2 << 30)
    result = classify(raised.value, Phase.IDLE)
    got = outcome_of(Ending(1, 9.0, result=result), framework_named("trl"), "")
    assert (got.reason, got.pool, got.phase) == (FailureReason.OOM, Pool.HOST, "update")
    assert got.message == "a process alone reached 3.00 GiB of the tree's 2.00 GiB for a moment"
