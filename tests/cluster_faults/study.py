"""A study of the campaign whose trials run on the cluster."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from autotune.domain import TrialState
from tests.campaign.plans import Plan
from tests.campaign.study import Study, words_of
from tests.cluster_faults.machines import Machines
from tests.support.postgresql import Server

AT_ONCE = 4
PLAN = Plan("one GPU", at_once=AT_ONCE, gpus=8, trials=7, grace_s=25, database="postgresql")
SPACE = """\
require: {device: cuda, gpus: 1}
knobs:
  micro_batch_size: [1, 4]
  rollout_engine: [transformers, vllm]
"""
BEST = {"rollout_engine": "vllm"}
"""Twice as fast, whatever the rest is."""
CYCLE_S = 0.15
GONE_S = 90.0
"""An agent that hears nothing for 30 s ends its trial; Ray and a busy machine need the rest."""


class ClusterStudy(Study):
    """``autotune start --ray``, with PostgreSQL."""

    def __init__(self, folder: Path, server: Callable[[], Server], machines: Machines) -> None:
        super().__init__(folder, PLAN, server)
        self.machines = machines
        (folder / "space.yaml").write_text(SPACE)
        (folder / "pace.json").write_text(json.dumps({"cycle_s": CYCLE_S}))

    def command(self) -> list[str]:
        return [*super().command(), "--ray", self.machines.address, "--cold"]

    def calm(self) -> None:
        self.machines.thaw()
        super().calm()

    def processes(self) -> list[tuple[int, str]]:
        """What is left on any node: trials even of one that is cut off, agents when nothing is any more."""
        left = _until_gone(lambda: [(pid, words_of(pid)) for pid in self.tagged()])
        self.machines.mend()
        return left + _until_gone(self.machines.agents_left)


def _until_gone(look: Callable[[], list[tuple[int, str]]]) -> list[tuple[int, str]]:
    until = time.monotonic() + GONE_S
    while (found := look()) and time.monotonic() < until:
        time.sleep(0.5)
    return found


def right(study: ClusterStudy) -> Iterator[str]:
    """What is wrong with the answer of a study that has ended: all of the space was tried, and one part is best."""
    store = study.store()
    try:
        trials, found, events = store.trials(1), store.recommendation(1), store.events(1, limit=100_000)
    finally:
        store.close()
    if any(not trial.state.is_finished for trial in trials):
        yield "the study has ended, and a trial has not"
    ends = [event for event in events if event.kind == "study_ended"]
    if len(ends) != 1:
        yield f"{len(ends)} ends were told"
    tried = [trial for trial in trials if trial.state is TrialState.COMPLETE]
    won = dict(found.rows[0].configuration.items()) if found and found.rows else {}
    if any(trial.configuration.items() >= BEST.items() for trial in tried) and not won.items() >= BEST.items():
        yield f"what is twice as fast has been tried, and {won} is recommended"
