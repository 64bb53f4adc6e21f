"""A whole tuner on scripted trials, as a program of its own, so that a test can kill it.

    python -m tests.e2e.tuner HOME '{"max_trials": 8, "wall_s": null, "script": {...}, "baseline": {...}, "warm": true}'

Real store, proposer, loop, runner and processes; only the training framework is a script. With ``"ray": ADDRESS`` and
``"at_once": N`` trials run on the nodes of a cluster, each on a GPU that is made up; with ``"nodes": 2`` each on two
nodes, with a rank on either.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from autotune import wiring
from autotune.cli import exit_codes
from autotune.cli.stopping import GRACE_S, Notice, stopping
from autotune.domain import Budget, StudySpec
from autotune.ports import Assignment, RunReport, StopToken, Watcher
from autotune.running.cluster.gathering import Spread, gather, take
from autotune.running.cluster.places import ClusterPlace
from autotune.running.job import Graces
from autotune.running.local import LocalRunner, home_tag
from autotune.running.warm_pool import WarmWorkerPool
from autotune.settings import read_settings
from autotune.store import open_store
from autotune.study.control import Control
from autotune.study.crews import SideBySide
from autotune.study.loop import StudyLoop
from search_spaces.space import SearchSpace
from tests.support import factories as f
from tests.support.fakes import SeenObserver
from tests.support.scripted import TwoNodes, launcher
from tests.support.scripted_framework import ScriptedFramework

SCRIPTED_CHILD = Path(__file__).parents[1] / "support" / "scripted_child.py"
GRACES = Graces(terminate_s=1.0)
"""Grandchildren that ignore SIGTERM are waited for as long as that, also by a sweep."""

SPACE = SearchSpace.from_json(
    {
        "knobs": {
            "micro_batch_size": [1, 2, 4, 8],
            "gradient_checkpointing": [True, False],
            "precision": ["fp32", "bf16"],
            "num_generations": [2, 4],
        }
    }
)


def specification(
    script: dict[str, object], baseline: dict[str, object], memory_limit: int | None, gpus: int = 0, nodes: int = 1
) -> StudySpec:
    """The study every run of one test shares."""
    return f.study_spec(
        space=SPACE.as_json(),
        workload=f.workload(passthrough={"script": script}),
        baseline=f.configuration(**baseline),  # type: ignore[arg-type]
        memory_limit=memory_limit,
        python=sys.executable,
        **({"resources": f.resources(gpus=gpus, nodes=nodes)} if gpus else {}),
    )


class Hanging:
    """A runner that hangs when it is stopped."""

    def __init__(self, runner: LocalRunner) -> None:
        self._runner = runner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runner, name)

    def run(self, assignment: Assignment, watcher: Watcher, stop: StopToken) -> RunReport:
        """Hangs from the user's wish to stop on."""
        return self._runner.run(assignment, watcher, _Hang(stop))


class _Hang:
    def __init__(self, stop: StopToken) -> None:
        self._stop = stop

    @property
    def level(self) -> int:
        if self._stop.level:
            time.sleep(600)
        return 0


def _spread(plan: dict[str, object]) -> Spread | None:
    if "ray" not in plan:
        return None
    silence_s = float(plan.get("silence_s", 30.0))  # type: ignore[arg-type]
    return take(str(plan["ray"]), 1, int(plan["at_once"]), print, silence_s, int(plan.get("nodes", 1)))  # type: ignore[call-overload, no-any-return]


def _crew(spread: Spread, runner: LocalRunner, home: Path, control: Control) -> SideBySide:
    def runner_of(place: ClusterPlace) -> LocalRunner:
        return runner

    each = gather(spread, runner_of, home, None, runner.clock)
    return SideBySide([(one.name, one.runner) for one in each], control, [one.node for one in each])


def main(home: str, plan: dict[str, object]) -> int:
    settings = read_settings(home=Path(home))
    settings.home.prepare()
    spread = _spread(plan)
    gpus, nodes = 0 if spread is None else 1, int(plan.get("nodes", 1))  # type: ignore[call-overload]
    spec = specification(plan.get("script") or {}, plan.get("baseline") or {}, plan.get("memory_limit"), gpus, nodes)  # type: ignore[arg-type]
    store = open_store(settings.database)
    clock = wiring.SystemClock()
    study, _ = wiring.find_or_create(store, spec, clock.now(), fork=False)
    keeper = WarmWorkerPool(settings.home.workers(study.id, study.spec.name), clock)
    runner = LocalRunner(
        python=spec.python if nodes == 1 else launcher(settings.home.root),
        framework=ScriptedFramework() if nodes == 1 else TwoNodes(),
        home=home_tag(settings.home.root),
        clock=clock,
        start=SCRIPTED_CHILD,
        graces=GRACES,
        keeper=keeper if plan.get("warm") else None,
    )
    with stopping(lambda text: print(text, flush=True), Notice(float(plan.get("grace_s", GRACE_S)))) as stop:  # type: ignore[arg-type]
        stop.abandon = partial(wiring.end_processes, settings, study.id)
        control = Control(store, study.id, stop, clock)
        crew = None if spread is None else _crew(spread, runner, settings.home.root, control)
        loop = StudyLoop(
            study=study,
            budget=Budget(
                wall_s=plan.get("wall_s"),  # type: ignore[arg-type]
                max_trials=plan.get("max_trials"),  # type: ignore[arg-type]
                at_once=1 if spread is None else len(spread.places),
            ),
            store=store,
            proposer=wiring.proposer_for(spec),
            runner=None if crew is not None else Hanging(runner) if plan.get("hang") else runner,
            crew=crew,
            clock=clock,
            observer=SeenObserver(),
            stop=control,
            requests=control,
            directory_of=wiring.directory_of(settings, study),
        )
        result = loop.run()
    print(json.dumps({"ended_by": result.ended_by, "trials": len(result.trials)}), flush=True)
    return exit_codes.RUN_AGAIN if stop.preempted else 0


def begin(words: Sequence[str]) -> int:
    """What the command line says."""
    return main(words[0], json.loads(words[1]))


if __name__ == "__main__":
    sys.exit(begin(sys.argv[1:]))
