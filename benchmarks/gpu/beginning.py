"""Begins the run of a folder, or goes on with the one that is there: its study, and the plan kept in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from autotune import wiring
from autotune.domain import Configuration, Fingerprint, Protocol, StudySpec
from autotune.errors import UsageError
from autotune.ports import StopToken
from autotune.specification.request import Request
from benchmarks.gpu import design, inputs
from benchmarks.gpu.run import STUDY, Run, RunRequest
from search_spaces.space import SearchSpace
from trainer.child.contract import write_atomic

RECORDED = 3


def begin(wanted: RunRequest, stop: StopToken) -> Run:
    """The run of this folder, begun or gone on with.

    Raises:
        UsageError: the folder holds another run, or nothing can be measured.
        MachineError: this machine or interpreter lacks something.
    """
    try:
        wanted.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--out {wanted.out} cannot be used as a folder ({error.strerror})") from None
    prepared = wiring.prepare(_request(wanted, stop), wanted.settings, lambda text: print(text, flush=True))
    spec, space = prepared.spec, SearchSpace.from_json(prepared.spec.space)
    plan = _kept(wanted, spec, prepared.fingerprint)
    if plan is None:
        entries = design.plan(space, spec.baseline, spec.resources, wanted.trials, wanted.seed, wanted.alike)
        others = design.spare(space, spec.baseline, spec.resources, entries, wanted.seed)
        pool = space.candidates(spec.baseline, spec.resources, same_learning=False, limit=design.POOL)
        said = design.left_out(space, spec.baseline, spec.resources, pool)
        plan = {
            "spec": spec.digest,
            "fingerprint": prepared.fingerprint.digest,
            "trials": wanted.trials,
            "alike": wanted.alike,
            "entries": [{"role": e.role, "configuration": dict(e.configuration)} for e in entries],
            "left_out": said,
            "spare": [dict(e.configuration) for e in others],
        }
        write_atomic(_plan_path(wanted), json.dumps(plan))
    entries = tuple(design.Entry(e["role"], Configuration(e["configuration"])) for e in plan["entries"])
    instead = tuple(design.Entry("design", Configuration(c)) for c in plan["spare"])
    run = Run(wanted, spec, prepared.fingerprint, entries, tuple(plan["left_out"]), instead)
    run.runner.sweep(STUDY)
    return run


def _request(wanted: RunRequest, stop: StopToken) -> Request:
    made = inputs.model(wanted.architecture, wanted.python, wanted.out, wanted.tag, stop)
    return Request(
        model=str(made),
        data=str(inputs.prompts(wanted.out, wanted.prompt, wanted.seed)),
        rewards=(inputs.reward(wanted.out),),
        rows_per_update=wanted.rows,
        max_completion_length=wanted.completion,
        space=wanted.space,
        seed=wanted.seed,
        gpus=1 if wanted.device == "cuda" else 0,
        name=f"table-{wanted.architecture.name}",
        python=wanted.python,
        protocol=Protocol(warmup=1, natural=0, recorded=RECORDED, maximum=0),
        folder=str(wanted.out),
    )


def _plan_path(wanted: RunRequest) -> Path:
    return wanted.out / "plan.json"


def _kept(wanted: RunRequest, spec: StudySpec, fingerprint: Fingerprint) -> dict[str, Any] | None:
    """The plan of an earlier slice. Raises ``UsageError`` if it is of another run."""
    path = _plan_path(wanted)
    if not path.exists():
        return None
    try:
        plan: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        mine = (plan["spec"], plan["fingerprint"], plan["trials"], plan["alike"])
    except (OSError, ValueError, KeyError, TypeError):
        raise UsageError(f"{path} is no plan of this benchmark; give another --out") from None
    if mine != (spec.digest, fingerprint.digest, wanted.trials, wanted.alike):
        raise UsageError(
            f"{wanted.out} holds a run with other options, or of another machine, stack or release, and figures of "
            "the two cannot stand in one table; give another --out"
        )
    return plan
