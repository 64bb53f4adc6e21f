"""What ``start`` does before the first trial: its page, the plan, and how trials get their processes."""

from __future__ import annotations

from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from autotune.cli.commands import start, start_request
from autotune.cli.commands.start_options import StartOptions
from autotune.specification.workload_size import Pace
from tests.support import factories

PACE = Pace(start_s=100.0, cycle_s=60.0)
ENOUGH, TOO_LITTLE = (SimpleNamespace(pace=PACE, budget_s=budget_s) for budget_s in (300.0, 100.0))
HELD = ["page", "prepare", "run"]


@pytest.mark.parametrize(
    ("options", "plan", "done", "code"),
    [
        ((), None, HELD, 0),
        (("--cold",), ENOUGH, HELD, 0),
        ((), TOO_LITTLE, HELD[:2], 2),
        (("--anyway",), TOO_LITTLE, HELD, 0),
        (("--dry-run",), TOO_LITTLE, ["prepare"], 0),
    ],
)
def test_the_page_comes_first_and_a_budget_without_a_trial_begins_nothing(
    home: Any,
    wiring: Any,
    monkeypatch: pytest.MonkeyPatch,
    options: tuple[str, ...],
    plan: Any,
    done: list[str],
    code: int,
) -> None:
    seen: list[str] = []

    def prepare(*_: Any) -> Any:
        seen.append("prepare")
        return SimpleNamespace(spec=factories.study_spec(), plan=plan, workload="4 min hold about no whole trial")

    @contextmanager
    def page(*_: Any, serve: bool, **__: Any) -> Any:
        seen.extend(["page"] if serve else [])
        yield None

    def run(*given: Any) -> int:
        seen.append("run")
        asked = next(one for one in given if isinstance(one, StartOptions))
        assert (asked.allow_busy, asked.cold) == (False, "--cold" in options)
        return 0

    wiring.check_store, wiring.prepare = lambda settings: None, prepare
    for name, stand_in in {"_run": run, "_page": page}.items():
        monkeypatch.setattr(start, name, stand_in)
    monkeypatch.setattr(start.screens, "plan_screen", lambda *_: "the plan")
    monkeypatch.setattr(start_request, "bundled_model", lambda: "")
    app = typer.Typer()
    app.command()(start.start)
    result = CliRunner().invoke(app, ["--budget", "1m", *options])
    assert seen == done
    assert code in (result.exit_code, getattr(result.exception, "exit_code", None))
    assert ("4 min hold about no whole trial; --anyway begins" in str(result.exception)) is (code == 2)
