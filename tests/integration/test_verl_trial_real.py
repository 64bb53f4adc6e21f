"""verl's own entry point and parts, as they are, in their own environment: as far as they come without a GPU."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.domain import FailureReason
from autotune.running.watchdog import HangLimits
from tests.contracts.runner_suite import Seen, tagged
from tests.support.fakes import FakeStop
from tests.support.trl_trials import build_tiny
from tests.support.verl_trials import (
    COMPLETION,
    GPUS,
    PROMPT,
    PROTOCOL,
    StandIn,
    assignment,
    left_by,
    runner,
    stores,
    verl_python,
)
from trainer.child.contract import NoteRecord, RunPaths, dumps, write_atomic
from trainer.child.frameworks.verl import overrides
from trainer.child.frameworks.verl.board import FileTally, Places
from trainer.child.frameworks.verl.course import StepSequence
from trainer.frameworks.verl import ray

pytestmark = [pytest.mark.full, pytest.mark.frameworks, pytest.mark.timeout(600)]
HOME = f"verl-real-{os.getpid()}"
CHECKS = Path(__file__).parents[1] / "support" / "verl_trial_checks.py"
PATIENT = HangLimits(quiet_s=240.0, phase_s=240.0)
"""Eleven processes import torch side by side before anything is written again."""
TEMPLATE = "{% for message in messages %}{{ message['content'] }}{% endfor %}"


def test_without_a_gpu_it_ends_with_a_reason_and_leaves_nothing(tmp_path: Path) -> None:
    """Its own Ray is started on the way, and its own task runner in it."""
    python = verl_python()
    model = build_tiny(tmp_path / "tiny", python=python) / "model"
    given = assignment(tmp_path, deadline_s=300.0, model=str(model))
    before, rays, seen = stores(), _rays(), Seen()
    settings = ray.cpus({}, GPUS, os.cpu_count() or 0)
    report = runner(HOME, StandIn(place=None, **settings), python=python, hang_limits=PATIENT).run(
        given, seen, FakeStop()
    )
    outcome, log = report.outcome, Path(report.outcome.log_path).read_text()
    assert not outcome.ok
    assert "ray init kwargs" in log, log[-4000:]
    # Ray is told of the CPUs that TransferQueue holds, so that the trial comes to the missing GPU.
    assert outcome.reason is FailureReason.ILLEGAL, (outcome.sentence(), log[-4000:])
    assert "GPU" in outcome.message
    assert len(outcome.message.splitlines()) == 1
    assert outcome.suggestion
    assert seen.cycles() == []
    words = next(r.data["argv"] for r in seen.records if isinstance(r, NoteRecord) and r.name == "arguments")
    assert "Could not override" not in log, words
    assert left_by(given) == []
    assert tagged(HOME) == []
    assert stores() <= before
    assert _rays() <= rays


def test_verls_own_parts_do_what_a_trial_tells_them(tmp_path: Path) -> None:
    """Its Hydra, its dataset, its agent loop's worker and its reward, with an engine that is only made up."""
    python = verl_python()
    model = build_tiny(tmp_path / "tiny", python=python) / "model"
    protocol = replace(PROTOCOL, natural=1, recorded=1)
    given = assignment(tmp_path, protocol, model=str(model))
    passed = {"actor_rollout_ref.model.custom_chat_template": TEMPLATE}
    spec = replace(StandIn().render(given), environment={}, passthrough=passed)
    paths = RunPaths(given.directory.resolve())
    places = Places(paths.root)
    write_atomic(paths.config, dumps(spec))
    course = StepSequence(spec, places, FileTally(places))
    course.begin()
    words = overrides.words(spec, paths, str(model), len(course.kinds))
    done = subprocess.run(
        [python, str(CHECKS), *words], capture_output=True, text=True, check=False, cwd=tmp_path,
        env=overrides.environment(paths, {**os.environ, "CUDA_VISIBLE_DEVICES": ""}),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout)
    assert found["numbers"] == list(range(6))
    course.tally.look()
    assert {number: len(scores) for number, scores in course.tally.scores.items()} == dict.fromkeys(range(6), 4)
    warmup, natural, recorded = (course.tally.rows[step] for step in (1, 2, 3))
    assert set(warmup.values()) == {(PROMPT, COMPLETION)}
    assert {completion for _, completion in natural.values()} == {5}
    assert [recorded[row][1] for row in range(8)] == list(course.steps[2].lengths or ())
    assert all(prompt < PROMPT for prompt, _ in [*natural.values(), *recorded.values()])


def _rays() -> set[str]:
    """Ray's sessions in the place it has of itself."""
    place = Path("/tmp/ray")
    return {path.name for path in place.iterdir()} if place.is_dir() else set()
