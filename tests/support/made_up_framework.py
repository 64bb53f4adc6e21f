"""Prints the way of a configuration through the framework of ``made_up_package``; for ``tests/unit/test_adding.py``."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

from autotune.domain import Configuration
from autotune.errors import UsageError
from autotune.frameworks import Source, framework_named
from autotune.running.local import LocalRunner
from tests.contracts.framework_suite import FrameworkSuite
from tests.contracts.runner_suite import RealClock, Seen
from tests.support.fakes import FakeStop
from trainer.child.contract import NoteRecord


def main(folder: Path) -> None:
    """One JSON object on stdout."""
    try:
        framework_named("made_upp")
    except UsageError as error:
        refused = str(error)
    suite, framework = FrameworkSuite(), framework_named("made_up")
    suite.name, suite.device = framework.name, "cpu"
    read = framework.import_config(Source("rows: 2\ncheckpointing: true\nown: word\n", "run.yaml"), {}, 1, {})
    configuration = Configuration({**suite.baseline, **read.knobs})
    given, seen = suite.assignment(folder, configuration), Seen()
    workload = replace(given.study.spec.workload, passthrough=read.passthrough)
    given = replace(given, study=replace(given.study, spec=replace(given.study.spec, workload=workload)))
    runner = LocalRunner(python=sys.executable, framework=framework, home="made-up", clock=RealClock())
    outcome = runner.run(given, seen, FakeStop()).outcome
    found = {
        "refused": refused,
        "title": framework.title,
        "imported": dict(read.knobs),
        "failure": "" if outcome.ok else outcome.sentence(),
        "ran": [dict(each.data) for each in seen.records if isinstance(each, NoteRecord) and each.name == "ran"],
        "cycles": len(seen.cycles()),
        "exported": framework.export(suite.wanted(configuration=configuration)).files["run.yaml"],
    }
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
