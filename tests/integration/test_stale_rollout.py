"""Real vLLM beside the trainer: weights that never arrive end a trial; without TRL's correction we look ourselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.not_none import not_none
from tests.support.trl_trials import PLAIN, ROOT, START, Ran, reward_file, run_trial, tiny_spec
from trainer.child.contract import CycleKind, FailureReason, Phase, Protocol, limits

pytestmark = [pytest.mark.trl, pytest.mark.full]

STALE = ROOT / "tests" / "support" / "stale_sync_trial.py"
CYCLES = Protocol(warmup=1, recorded=4, lengths=(16, 4, 9, 12), outside_cpu_limit=9.0)
KNOBS = {"rollout_engine": "vllm", "max_model_len": 256, "kv_cache_memory_bytes": 64 << 20, "rollout_dtype": "fp32"}
FAST = {"learning_rate": 3e-3, "lr_scheduler_type": "constant"}
"""Steps so large that an engine left behind has another policy after one or two."""


def ran(tiny: Path, name: str, script: Path, **passthrough: Any) -> Ran:
    spec = tiny_spec(tiny, reward_file(tiny / name, PLAIN), CYCLES, knobs=KNOBS, passthrough={**FAST, **passthrough})
    return run_trial(tiny / name / "run", spec, script=script)


def test_a_rollout_with_old_weights_ends_as_quality_with_its_figure(tiny: Path) -> None:
    """The trial would run through otherwise, and count tokens of a policy that is not the one that learns."""
    stale = ran(tiny, "stale", STALE)
    assert (stale.result.reason, stale.result.phase) == (FailureReason.QUALITY, Phase.GENERATE), stale.result.detail
    assert "1.1 is the limit" in stale.result.message
    last = not_none(stale.cycles[-1].logp_mismatch)
    assert last > limits.LOGP_MISMATCH
    first = not_none(stale.cycles[0].logp_mismatch)
    assert first < 1.01, "before the first update nothing can be old"


def test_without_the_correction_the_warm_up_has_a_figure_and_no_timed_cycle_pays_for_one(tiny: Path) -> None:
    plain = ran(tiny, "plain", START, vllm_importance_sampling_correction=False)
    assert plain.result.ok, plain.result.detail
    (warmup,) = plain.of(CycleKind.WARMUP)
    assert warmup.logp_mismatch == pytest.approx(1.0, abs=0.01)
    timed = plain.of(CycleKind.RECORDED)
    assert len(timed) == 4
    assert [cycle.logp_mismatch for cycle in timed] == [None] * 4
    assert all(cycle.phases.get("logprob", 0.0) == 0.0 for cycle in plain.cycles)
