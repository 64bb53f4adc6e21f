"""Two real training processes on a CPU: DDP and DeepSpeed's ZeRO over gloo, and what happens when one of them fails."""

from __future__ import annotations

import os
import signal
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from autotune.domain import CycleRecord, FailureReason, Pool
from tests.contracts.runner_suite import Seen, tagged
from tests.support.rank_trials import RankTrial, rank_spec, shared_memory
from tests.support.trl_trials import PLAIN, build_tiny, reward_file
from trainer.child.contract import CycleKind, Protocol, Record

pytestmark = [pytest.mark.trl, pytest.mark.full, pytest.mark.alone, pytest.mark.timeout(600)]

SLOW_RANK_1 = "import os; time.sleep(0.4 * int(os.environ['RANK']))"
"""Rank 1 is the slowest in every cycle."""


KNOBS: dict[str, dict[str, Any]] = {
    "ddp": {"zero_stage": 0},
    "zero1": {"zero_stage": 1},
    "zero2": {"zero_stage": 2},
    "zero3": {"zero_stage": 3},
    "bf16": {"zero_stage": 2, "precision": "bf16"},
}
STAGES = ["ddp", "zero1", "zero2", "zero3"]


class Trials:
    """The same two ranks, prompts, seed and lengths under each of ``KNOBS``; each is run when it is first asked for."""

    def __init__(self, tiny: Path, folders: pytest.TempPathFactory) -> None:
        self._tiny, self._folders = tiny, folders
        self._made: dict[str, RankTrial] = {}

    def __getitem__(self, name: str) -> RankTrial:
        if name not in self._made:
            before, home = shared_memory(), self._folders.mktemp(name)
            spec = rank_spec(self._tiny, reward_file(home, f"{SLOW_RANK_1}; {PLAIN}"), knobs=KNOBS[name])
            trial = RankTrial(home, spec).run()
            assert trial.outcome.ok, f"{trial.outcome.sentence()}\n{trial.log[-3000:]}"
            assert tagged(trial.tag) == []
            assert shared_memory() <= before
            self._made[name] = trial
        return self._made[name]


@pytest.fixture(scope="module")
def trials(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Trials:
    return Trials(tiny, tmp_path_factory)


@pytest.mark.parametrize("name", [*STAGES, "bf16"])
def test_both_ranks_tell_of_every_cycle(trials: Trials, name: str) -> None:
    first, second = (trials[name].cycles(rank) for rank in (0, 1))
    kinds = [CycleKind.WARMUP, CycleKind.RECORDED, CycleKind.RECORDED, CycleKind.MAXIMUM]
    assert [c.cycle_kind for c in first] == [c.cycle_kind for c in second] == kinds
    assert [c.index for c in first] == [c.index for c in second] == [0, 1, 2, 3]
    for one, other in zip(first, second, strict=True):
        assert one.rows == other.rows == 16
        assert sorted(one.lengths) == sorted(other.lengths)
        assert one.completion_tokens == other.completion_tokens == sum(one.lengths)
        assert one.computed_tokens == other.computed_tokens
        assert (one.accepted, one.noisy, one.drift) == (other.accepted, other.noisy, other.drift)
        assert one.peaks["cycle"].host
        assert other.peaks["cycle"].host


def test_ddp_tells_how_long_gradients_were_summed_and_the_others_tell_nothing(trials: Trials) -> None:
    uses = [c.process for rank in (0, 1) for c in trials["ddp"].cycles(rank)]
    for use in uses:
        assert 0 < use.gradient_sync_seconds < 60
        assert 0 <= use.gradient_sync_hidden <= 1
    assert len({use.gradient_sync_seconds for use in uses if use is not None}) == len(uses), "each cycle has its own"
    sharded = [c.process for c in trials["zero2"].cycles(0)]
    assert [use.gradient_sync_seconds for use in sharded if use is not None] == [None] * len(sharded)


@pytest.mark.parametrize("name", STAGES)
def test_every_ranks_seconds_are_the_slowests_and_the_others_wait(trials: Trials, name: str) -> None:
    """Rank 1's reward takes 0.4 s longer: rank 0 spends them waiting, and loses none of them."""
    for one, other in zip(trials[name].cycles(0)[1:], trials[name].cycles(1)[1:], strict=True):
        assert one.seconds == other.seconds
        assert other.phases["reward"] >= 0.4
        assert one.phases["reward"] < 0.3
        assert one.phases["wait"] >= 0.3
        assert other.phases.get("wait", 0.0) < one.phases["wait"], "what both clocks differed by is wait too"
        assert sum(one.phases.values()) == pytest.approx(one.seconds, rel=1e-6)


@pytest.mark.parametrize("name", STAGES[1:])
def test_zero_trains_what_ddp_trains(trials: Trials, name: str) -> None:
    """Sharding moves memory, not mathematics: loss and gradient norm of every update are those of DDP."""
    for plain, sharded in zip(trials["ddp"].cycles(0), trials[name].cycles(0), strict=True):
        assert plain.grad_norm > 0.1
        assert sharded.grad_norm == pytest.approx(plain.grad_norm, rel=1e-3)
        assert sharded.loss == pytest.approx(plain.loss, abs=1e-4)
        assert sharded.reward_mean == plain.reward_mean


def test_bf16_under_zero_is_deepspeeds_own(trials: Trials) -> None:
    """Near fp32, but not fp32: were the precision dropped, the norms would be the same to the last digit."""
    pairs = zip(trials["zero2"].cycles(0), trials["bf16"].cycles(0), strict=True)
    norms = [(a.grad_norm, b.grad_norm) for a, b in pairs]
    for single, half in norms:
        assert half == pytest.approx(single, rel=0.1)
    assert all(single != half for single, half in norms)


@pytest.mark.parametrize("name", STAGES)
def test_one_worst_case_of_all_ranks_and_the_optimizer_was_there(trials: Trials, name: str) -> None:
    (worst,) = trials[name].worst_cases
    assert (worst.rows, worst.prompt_tokens, worst.completion_tokens) == (2, 48, 16)
    warmups = [trials[name].cycles(rank)[0].peaks["cycle"].host or 0 for rank in (0, 1)]
    assert worst.peaks.host == max(warmups)
    assert "optimizer_not_primed" not in trials[name].notes


@pytest.mark.parametrize("name", ["ddp", "zero2"])
def test_each_rank_has_its_share_of_the_cores(trials: Trials, name: str) -> None:
    assert trials[name].notes["threads"].data == {"torch": 1}  # 2 cores, 2 ranks


def test_zero_shares_out_what_its_stage_says(trials: Trials) -> None:
    """Two ranks hold half of the optimizer state each from stage 1 on, and from 3 on not all of the weights."""
    held = {name: trials[name].notes["held"].data for name in STAGES}
    for name in STAGES[1:]:
        for whole, share in zip(held["ddp"]["optimizer"], held[name]["optimizer"], strict=True):
            assert share == pytest.approx(whole / 2, rel=0.01)
    assert held["zero1"]["weights"] == held["zero2"]["weights"] == held["ddp"]["weights"]
    for whole, share in zip(held["ddp"]["weights"], held["zero3"]["weights"], strict=True):
        assert 0.5 * whole <= share < 0.8 * whole  # small ones stay whole


WIDE = (768, 6)
"""Hidden size and layers: 43 million weights."""


def test_a_rank_that_shards_needs_less_memory(tiny: Path, tmp_path: Path) -> None:
    """As the kernel counts it, before the first batch: half of AdamW's two moments is as much as the weights.

    With ZeRO-3 it cannot be seen on a CPU: what is gathered and freed again stays with the allocator.
    """
    folder = build_tiny(tmp_path / "wide", *WIDE)
    weights = (folder / "model" / "model.safetensors").stat().st_size
    protocol = Protocol(warmup=1, recorded=1, lengths=(4, 8), outside_cpu_limit=9.0)
    least = []
    for stage in (0, 2):
        home = tmp_path / str(stage)
        spec = rank_spec(folder, reward_file(home, PLAIN), protocol=protocol, knobs={"zero_stage": stage})
        trial = RankTrial(home, spec).run()
        assert trial.outcome.ok, f"{trial.outcome.sentence()}\n{trial.log[-2000:]}"
        least.append([trial.cycles(rank)[0].peaks["idle"].host or 0 for rank in (0, 1)])
    assert min(least[0]) - max(least[1]) > weights / 2, least


class Killer(Seen):
    """Kills rank 1 in the middle of the first timed cycle."""

    def __init__(self, tag: str) -> None:
        super().__init__()
        self.tag = tag
        self.killed: int | None = None
        self.react = self._kill

    def _kill(self, record: Record) -> None:
        if self.killed is not None or not isinstance(record, CycleRecord):
            return
        for process in psutil.process_iter():
            try:
                environment = process.environ()
            except psutil.Error:
                continue
            if environment.get("RANK") == "1" and self.tag in environment.get("AUTOTUNE_TAG", ""):
                self.killed = process.pid
                threading.Timer(0.3, os.kill, (process.pid, signal.SIGKILL)).start()
                return


def test_a_rank_killed_from_outside_is_no_oom_and_nothing_of_the_trial_is_left(tiny: Path, tmp_path: Path) -> None:
    spec = rank_spec(tiny, reward_file(tmp_path, f"time.sleep(1); {PLAIN}"), knobs={"zero_stage": 2})
    trial, before = RankTrial(tmp_path, spec), shared_memory()
    trial.seen = Killer(trial.tag)
    outcome = trial.run().outcome
    assert trial.seen.killed is not None
    assert outcome.reason is FailureReason.CRASH, f"not at its deadline: {outcome.sentence()}"
    assert "SIGKILL" in outcome.message
    assert tagged(trial.tag) == []
    assert not psutil.pid_exists(trial.seen.killed)
    assert shared_memory() <= before


FAIL_IN_RANK_1 = "import os; n = int(os.environ['RANK']); {}; " + PLAIN


@pytest.mark.parametrize(
    ("act", "reason", "pool", "words"),
    [
        ("assert n == 0, 'rank 1 does not like this'", FailureReason.REWARD_ERROR, None, "rank 1 does not like this"),
        ("bytearray(n << 62)", FailureReason.OOM, Pool.HOST, "MemoryError"),
    ],
)
def test_what_fails_in_rank_1_only_is_the_reason(
    tiny: Path, tmp_path: Path, act: str, reason: FailureReason, pool: Pool | None, words: str
) -> None:
    """Rank 0 loses its neighbour and is ended by the launcher; neither is why the trial failed."""
    spec = rank_spec(tiny, reward_file(tmp_path, FAIL_IN_RANK_1.format(act)), knobs={"zero_stage": 0})
    trial = RankTrial(tmp_path, spec).run()
    assert trial.outcome.reason is reason, trial.outcome.sentence()
    assert trial.outcome.pool is pool
    assert words in trial.outcome.message
    assert trial.outcome.message.startswith("rank 1: ") is (reason is FailureReason.OOM)
    assert tagged(trial.tag) == []


def test_one_process_can_shard_too(tiny: Path, tmp_path: Path) -> None:
    """As with an offload on a single GPU; it is started by the launcher all the same."""
    protocol = Protocol(warmup=1, recorded=1, lengths=(4, 8), outside_cpu_limit=9.0)
    knobs = {"zero_stage": 3, "gradient_accumulation_steps": 8}
    spec = rank_spec(tiny, reward_file(tmp_path, PLAIN), protocol=protocol, knobs=knobs)
    trial = RankTrial(tmp_path, replace(spec, world_size=1)).run()
    assert trial.outcome.ok, f"{trial.outcome.sentence()}\n{trial.log[-2000:]}"
    assert len(trial.cycles(0)) == 2
