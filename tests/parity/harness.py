"""Runs the updates of many configurations one after another: run by the training interpreter.

``python harness.py FOLDER`` reads ``FOLDER/cases.json``, a list of ``{"name", "fault"}``; the trial of each is
``FOLDER/<name>/config.json``. It is built by our own child code, given the same completions as all the others, and
leaves ``update.npz`` and ``facts.json``, or ``error.txt``. Where there is a file ``ask`` the rollout is asked too
before its answer is replaced: ``rollout.json``. All cases of a process have DeepSpeed, or none has.
"""

from __future__ import annotations

import functools
import gc
import importlib
import importlib.util
import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any

import engines
from capture import Capture
from facts import Facts
from faults import FAULTS
from rollouts import inject

UPDATES = 2
"""The second one sees what the first left behind: weights, optimizer state, buffers."""
CONSTANTS = (("trl.kernels.chunked_logprob", "TOKEN_CHUNK_SIZE"), ("trl.trainer.utils", "_CHUNKED_LOGPROB_CHUNK_SIZE"))
"""What seams set for the whole process."""


def child() -> str:
    """Our child package as it is loaded for a trial; returns its name."""
    path = Path(__file__).resolve().parents[2] / "trainer" / "child" / "start.py"
    spec = importlib.util.spec_from_file_location("start_of_child", path)
    assert spec is not None
    assert spec.loader is not None
    start = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(start)
    start.load_package()
    return str(start.PACKAGE)


class Harness:
    """Our child code, and what has to be put back between two trainers of one process."""

    def __init__(self, package: str) -> None:
        self.contract = importlib.import_module(f"{package}.contract")
        self._package = package

    def prepare(self, folders: list[Path]) -> None:
        """What ``run.run_trial`` does around the import of TRL, once for all that follow."""
        specs = [self.contract.read_spec(folder / "config.json") for folder in folders]
        engine, deepspeed = self.module("engine"), self.module("cpu_deepspeed")
        engine.before_import(specs[-1].device, compiles=any(spec.settings.get("torch_compile") for spec in specs))
        if specs[-1].device == "cpu":
            importlib.import_module(f"{self._package}.user_environment").meet_on_loopback()
        without_gpu = self.module("importing").on_cpu(specs[-1])
        if without_gpu:
            deepspeed.before_import()
        if not any(spec.settings.get("use_vllm") for spec in specs):
            engine.leave_out(specs[-1].device)
        self.build, self.drive = self.module("build"), self.module("drive")
        if without_gpu:
            deepspeed.after_import()
        self._constants = {place: getattr(importlib.import_module(place[0]), place[1]) for place in CONSTANTS}

    def module(self, name: str) -> Any:
        return importlib.import_module(f"{self._package}.frameworks.trl.{name}")

    def run(self, folder: Path, fault: str) -> None:
        spec = self.contract.read_spec(folder / "config.json")
        put_back = [functools.partial(setattr, sys.modules[at], name, v) for (at, name), v in self._constants.items()]
        environment = dict(os.environ)  # TRL names itself a rank there for its engine
        try:
            if spec.settings.get("use_vllm"):
                put_back.append(engines.reuse(engines.module()))
                self.module("engine").install_engine(spec.seams, spec.device)
            train(self._trainer(spec, folder), folder, fault)
        finally:
            for each in put_back:
                each()
            os.environ.clear()
            os.environ.update(environment)

    def _trainer(self, spec: Any, folder: Path) -> Any:
        build = self.build
        config, updates = build.configure(spec, UPDATES, folder / "scratch")
        assert updates == 1, "a cycle of several updates has another reference"
        model = build.load_model(spec, config, spec.model)
        prompts = build.load_prompts(spec.prompts, UPDATES, spec.rows_per_update)
        trainer = build.build_trainer(spec, config, model, build.rewards_of(spec), prompts)
        seams = {name: value for name, value in spec.seams.items() if name not in self.drive.EARLIER}
        self.drive.apply_seams(seams, trainer)
        return trainer


def train(trainer: Any, folder: Path, fault: str) -> None:
    """Both updates of ``trainer``, and what they were."""
    rank = trainer.accelerator.process_index
    if fault:
        FAULTS[fault](trainer)
    asked = engines.Asked(trainer) if (folder / "ask").exists() else None
    inject(trainer, rank, asked)
    capture, facts = Capture(trainer), Facts(trainer, UPDATES)
    capture.install()
    facts.install()
    trainer.train()
    capture.save(folder / "update.npz")
    if rank == 0:
        (folder / "facts.json").write_text(json.dumps(facts.found()))
        if asked is not None:
            recorded = {"mismatch": asked.mismatch, "completions": asked.completions}
            (folder / "rollout.json").write_text(json.dumps(recorded))


def main(folder: Path) -> None:
    os.environ["HF_HUB_OFFLINE"] = "1"
    harness = Harness(child())
    cases = json.loads((folder / "cases.json").read_text())
    harness.prepare([folder / case["name"] for case in cases])
    for case in cases:
        at = folder / case["name"]
        try:
            harness.run(at, case["fault"])
        except Exception:
            (at / "error.txt").write_text(traceback.format_exc())
        gc.collect()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
