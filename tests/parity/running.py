"""Cases of the parity suite: from knobs to the update a real trainer made of them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from search_spaces.configuration import KnobValue
from tests.parity.comparison import Update
from tests.support.shared import made_once
from tests.support.trl_trials import PLAIN, QUIET, ROOT, reward_file, run_builder, training_python, write_spec
from trainer.frameworks import trl

HARNESS = ROOT / "tests" / "parity" / "harness.py"
MODEL = ROOT / "tests" / "parity" / "model.py"
ROWS = 16
LONGEST = 24
"""Completion tokens; the harness draws lengths from 1 to it."""
PLAIN_KNOBS: Mapping[str, KnobValue] = {
    "micro_batch_size": ROWS,
    "num_generations": 4,
    "precision": "fp32",
    "master_weights": "fp32",
    "gradient_checkpointing": False,
    "attn_implementation": "sdpa",
    "optimizer": "adamw_torch",
}
"""The reference: an update in one micro-batch, nothing cut, nothing computed twice."""
OBJECTIVE: Mapping[str, Any] = {
    "loss_type": "dapo",
    "beta": 0.1,
    "temperature": 0.9,
    "learning_rate": 1e-3,
    "lr_scheduler_type": "constant",
    "adam_epsilon": 1e-4,
}
"""The default loss; with a reference model, so that there is a pass without gradients.

The first step of AdamW is the gradient's sign where it is larger than epsilon: at the default, rounding of
elements near zero would be blown up to whole steps, and the second update would compare that.
"""


@dataclass(frozen=True)
class Case:
    """One configuration, as it differs from the reference."""

    name: str
    knobs: Mapping[str, KnobValue] = field(default_factory=dict)
    objective: Mapping[str, Any] = field(default_factory=dict)
    fault: str = ""
    """A function of ``faults.py`` that makes the trainer wrong."""
    prompts: str = "prompts.jsonl"
    ask: bool = False
    """The rollout is asked too, before its answer is replaced."""
    against: str = "reference"
    """The case it has to agree with."""


def build_model(folder: Path) -> Path:
    """The model and prompts of the suite in ``folder``."""
    built = made_once("parity-model", lambda at: run_builder(training_python(), MODEL, at))
    shutil.copytree(built, folder, dirs_exist_ok=True)
    return folder


def results(built: Path, folder: Path, cases: Iterable[Case], ranks: int = 0, device: str = "cpu") -> Iterator[Ran]:
    """What ``cases`` did (``run``); a fixture's body. Afterwards their gradients are not kept."""
    run(built, folder, cases, ranks, device)
    yield Ran(folder)
    shutil.rmtree(folder)


def run(
    built: Path, folder: Path, cases: Iterable[Case], ranks: int = 0, device: str = "cpu", seconds: float = 600
) -> None:
    """Run ``cases`` in one process, or in as many as there are ranks; each leaves its files in ``folder``/<name>.

    The processes are started with the variables of the last of them.

    Args:
        ranks: started by ``torchrun``; 0 is a process without it.
        device: ``cpu`` or ``cuda``.
        seconds: after which the test fails.
    """
    cases = list(cases)
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "GLIBC_TUNABLES")}
    for case in cases:
        spec = rendered(case, built, max(1, ranks), device)
        paths = write_spec(folder / case.name, spec)
        if case.ask:
            (paths.root / "ask").touch()
    (folder / "cases.json").write_text(json.dumps([{"name": case.name, "fault": case.fault} for case in cases]))
    environment["OMP_NUM_THREADS"] = "1"  # of so small a model, threads only wait for each other
    environment.update(spec.environment)
    with (folder / "log.txt").open("wb") as log:
        command = [training_python(), *torchrun(ranks, folder), str(HARNESS), str(folder)]
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
        try:
            code = process.wait(seconds)
        finally:
            process.terminate()  # of torchrun: it then ends its ranks
            process.wait(60)
    assert code == 0, (folder / "log.txt").read_text()[-3000:]


def torchrun(ranks: int, folder: Path) -> list[str]:
    """As ``autotune.running.launch`` has it."""
    if not ranks:
        return []
    here = ("--standalone", "--local-addr", "127.0.0.1", "--nproc-per-node", str(ranks))
    return ["-m", "torch.distributed.run", *here, "--log-dir", str(folder / "ranks")]


def rendered(case: Case, built: Path, world: int, device: str) -> Any:
    """The case's ``TrialSpec``, by the same rendering a study uses."""
    return trl.render(
        trial="1/0",
        configuration={**PLAIN_KNOBS, **case.knobs},
        model=str(built / "model"),
        prompts=str(built / case.prompts),
        rewards=(reward_file(built / "reward", PLAIN),),
        rows_per_update=ROWS,
        max_prompt_length=256,
        max_completion_length=LONGEST,
        protocol=QUIET,
        passthrough={**OBJECTIVE, **case.objective},
        world_size=world,
        device=device,
    )


class Ran:
    """What the cases of one ``run`` left behind."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def update(self, name: str) -> Update:
        """Fails the test, with the trainer's words, if the case did not get that far."""
        return Update.load(self._file(name, "update.npz"))

    def facts(self, name: str) -> dict[str, Any]:
        return dict(json.loads(self._file(name, "facts.json").read_text()))

    def rollout(self, name: str) -> dict[str, Any]:
        """``mismatch`` and ``completions`` by generation, of a case that was asked."""
        return dict(json.loads(self._file(name, "rollout.json").read_text()))

    def _file(self, name: str, file: str) -> Path:
        failed = self._folder / name / "error.txt"
        assert not failed.exists(), f"{name}: {failed.read_text()[-2000:]}"
        return self._folder / name / file
