"""A stand-in for the child: the same files, no framework, and whatever misbehaviour a test asks for.

``LocalRunner(start=...)`` is pointed at this file. It reads ``config.json`` as ``ScriptedFramework``
renders it: ``settings`` are the configuration itself, ``passthrough["script"]`` is the script:

    noise   relative standard deviation of a cycle's seconds (default 0.01), seeded by seed, trial, cycle
    sleep   real seconds each cycle takes (default 0: reported seconds are never waited for)
    file    path of a file that holds the script instead, so that it can differ between trials of one study
    floor   bytes a process holds before any row (default ``FLOOR``)
    answer_s  seconds it waits for the tuner's word on whether it has been measured enough (default ``ANSWER_S``)
    acts    list of {"do": name of an ``act_`` function of ``scripted_acts``,
            "at": "start" | cycle index | "end" | "exit" (the result is written),
            "when": {knob: value, ...} that must all hold, "rank": the one that does it,
            "once": path of a marker file, ...its arguments}

How fast a configuration is and what memory it needs is decided by ``scripted_model`` alone.
Standard library only; Python 3.10 syntax.
"""

from __future__ import annotations

import json
import math
import os
import random
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from tests.support import faulty_files
from tests.support.scripted_acts import ACTS, Ended
from tests.support.scripted_model import FLOOR, Shape, computed_tokens, phase_memory, phase_seconds
from trainer.child.contract import (
    CycleKind,
    CycleRecord,
    FailureReason,
    Peaks,
    Phase,
    PhaseMark,
    Pool,
    Result,
    RunPaths,
    StartupPart,
    StartupRecord,
    TrialSpec,
    WorstCaseRecord,
    dumps,
    read_spec,
    write_atomic,
)
from trainer.child.journal import ANSWER_S, Journal, is_enough


class ScriptedTrial:
    """One trial: cycles in the protocol's order, acts where the script puts them."""

    def __init__(self, spec: TrialSpec, paths: RunPaths, before: int = 0) -> None:
        self.spec, self.paths, self.before = spec, paths, before
        self.own: Mapping[str, Any] = spec.passthrough.get("script", {})
        self.script = json.loads(Path(self.own["file"]).read_text()) if "file" in self.own else self.own
        self.mark = PhaseMark(paths.phase)
        self.journal = Journal(paths, marks=False)
        self.metrics = open(paths.metrics, "ab", buffering=0)  # noqa: SIM115 - open as long as the trial
        self.prompt = max(1, spec.max_prompt_length // 2)
        self.lengths: tuple[int, ...] = tuple(spec.protocol.lengths)
        self.kept: list[bytearray] = []
        self.rank = int(os.environ.get("RANK", "0"))

    def run(self) -> None:
        for part, seconds in ((StartupPart.IMPORT, 0.02), (StartupPart.LOAD, 0.01), (StartupPart.FIRST_BATCH, 0.01)):
            self.mark.set(part.value)
            self.record(StartupRecord(part, seconds))
            if part is StartupPart.LOAD:
                self.act("start")
        for index, kind in enumerate(self.order()):
            self.wait_while_held(index)
            self.act(index)
            self.cycle(index, kind)
            if index == 0:
                self.worst_case()
            if kind is CycleKind.RECORDED and self.spec.protocol.looks and self.is_enough(index):
                break
        self.act("end")

    def wait_while_held(self, index: int) -> None:
        """As long as the script's file has ``[trial, cycle]`` in ``held``, so that a test meets the trial there."""
        if "held" in self.script:
            here, file = [int(self.spec.trial.rpartition("/")[2]), index], Path(self.own["file"])
            while here in json.loads(file.read_text()).get("held", ()):
                time.sleep(0.01)

    def is_enough(self, index: int) -> bool:
        return is_enough(self.paths, index, float(self.script.get("answer_s", ANSWER_S)))

    def order(self) -> list[CycleKind]:
        protocol = self.spec.protocol
        kinds = [CycleKind.WARMUP] * max(1, protocol.warmup) + [CycleKind.NATURAL] * protocol.natural
        for i in range(max(protocol.recorded, protocol.maximum)):
            kinds += [CycleKind.RECORDED] * (i < protocol.recorded) + [CycleKind.MAXIMUM] * (i < protocol.maximum)
        return kinds + [CycleKind.DOUBLE] * protocol.double

    def cycle(self, index: int, kind: CycleKind) -> None:
        spec, started = self.spec, time.time()
        shape = Shape.of(spec.settings, spec.rows_per_update)
        lengths = self.lengths_of(index, kind, shape.rows)
        phases = phase_seconds(spec.settings, spec.rows_per_update, lengths, self.prompt)
        memory = self.fit(max(lengths))
        noise = random.Random(f"{spec.seed}/{spec.trial}/{index}").gauss(0.0, float(self.script.get("noise", 0.01)))
        phases = {name: seconds * math.exp(noise) for name, seconds in phases.items()}
        groups = max(1, shape.rows // int(spec.settings.get("num_generations", 4)))
        for phase in phases:
            self.mark.set(phase, index, kind.value)
        time.sleep(float(self.script.get("sleep", 0.0)))
        record = CycleRecord(
            index=index,
            cycle_kind=kind,
            seconds=sum(phases.values()),
            phases=phases,
            completion_tokens=sum(lengths),
            prompt_tokens=self.prompt * shape.rows,
            rows=shape.rows,
            updates=shape.updates,
            computed_tokens=computed_tokens(shape, lengths, self.prompt),
            lengths=lengths,
            peaks={**{n: Peaks(host=b) for n, b in memory.items()}, "cycle": Peaks(host=max(memory.values()))},
            cpu_seconds=sum(phases.values()),
            drift=0.0,
            outside_cpu=0.0,
            clipped_share=sum(n >= spec.max_completion_length for n in lengths) / len(lengths),
            groups=groups,
            zero_std_groups=groups // 4,
            reward_mean=0.25,
            started=started,
            rank=self.rank,
        )
        self.record(record)

    def lengths_of(self, index: int, kind: CycleKind, rows: int) -> tuple[int, ...]:
        """Natural lengths depend on the seed and the cycle only, never on the configuration."""
        longest = self.spec.max_completion_length
        if kind is CycleKind.MAXIMUM:
            return (longest,) * rows
        if kind is CycleKind.RECORDED and self.lengths:
            return tuple(self.lengths[i % len(self.lengths)] for i in range(rows))
        if kind is CycleKind.DOUBLE and self.lengths:
            return tuple(min(longest, 2 * self.lengths[i % len(self.lengths)]) for i in range(rows))
        draw = random.Random(f"{self.spec.seed}/natural/{index}")
        drawn = tuple(max(1, min(longest, int(draw.lognormvariate(math.log(longest / 3), 0.6)))) for _ in range(rows))
        self.lengths = drawn if kind is CycleKind.NATURAL and not self.spec.protocol.lengths else self.lengths
        return drawn

    def worst_case(self) -> None:
        rows = Shape.of(self.spec.settings, self.spec.rows_per_update).micro
        memory = self.fit(self.spec.max_completion_length)
        peak = Peaks(host=max(memory.values()))
        self.record(WorstCaseRecord(rows, self.spec.max_prompt_length, self.spec.max_completion_length, 0.05, peak))

    def fit(self, longest: int) -> dict[str, int]:
        """The memory by phase, or the end of the trial."""
        spec, floor = self.spec, int(self.script.get("floor", FLOOR))
        memory = phase_memory(spec.settings, spec.rows_per_update, longest, self.spec.max_prompt_length, floor)
        for phase, needed in memory.items():
            if spec.memory_limit is not None and needed > spec.memory_limit:
                message = f"needs {needed} of {spec.memory_limit} bytes"
                raise Ended(Result(False, FailureReason.OOM, Phase(phase), Pool.HOST, message))
        return memory

    def record(self, record: Any) -> None:
        self.journal.write(record)

    def act(self, at: object) -> None:
        for act in self.script.get("acts", ()):
            if act.get("at", "start") == at and self.applies(act):
                ACTS[act["do"]](self, act)

    def applies(self, act: Mapping[str, Any]) -> bool:
        if act.get("rank", self.rank) != self.rank:
            return False
        if any(self.spec.settings.get(knob) != value for knob, value in act.get("when", {}).items()):
            return False
        if "once" in act:
            try:
                os.close(os.open(act["once"], os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                return False
        return True


def main(directory: str) -> int:
    paths = RunPaths(Path(directory))
    trial = ScriptedTrial(read_spec(paths.config), paths)
    try:
        trial.run()
        result = Result(True)
    except Ended as end:
        result = end.result
    write_atomic(paths.result, dumps(result))
    trial.act("exit")
    return 0 if result.ok else 1


if __name__ == "__main__":
    if sys.argv[1] == "worker":
        from tests.support.scripted_worker import serve

        sys.exit(serve(sys.argv[-1]))
    faulty_files.begin("trial")
    sys.exit(main(sys.argv[sys.argv.index("--directory") + 1]))
