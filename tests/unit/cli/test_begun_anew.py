"""The command on a machine that is slower than its forecast: one run, two workloads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from autotune import wiring
from autotune.cli.commands import start, start_request
from autotune.settings import read_settings
from autotune.store import open_store
from tests.unit.study.test_first_cycle import BUDGET_S, SIZES, Planned, Slower, plan_of


@pytest.mark.parametrize("mode", ["--no-live", "--json"])
def test_the_command_goes_on_with_the_workload_chosen_anew(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, mode: str
) -> None:
    house = Planned(plan_of())
    machine, begun = Slower(house, 3.0), []
    monkeypatch.setattr(wiring, "prepare", lambda *_: house.prepared)
    monkeypatch.setattr(wiring, "begun", lambda study, *_, **__: begun.append(study.spec) or study)
    monkeypatch.setattr(wiring, "SystemClock", lambda: house.clock)
    monkeypatch.setattr(wiring, "runner_for", lambda *_, **__: machine)
    monkeypatch.setattr(start_request, "bundled_model", lambda: "")
    app = typer.Typer()
    app.command()(start.start)
    limits = ["--budget", f"{BUDGET_S:.0f}s", "--max-trials", "2"]
    given = [*limits, "--no-serve", "--home", str(tmp_path / "home"), "--cold", mode]
    result = CliRunner().invoke(app, given)
    assert result.exit_code == 0, result.output
    store = open_store(read_settings(environ={}, home=tmp_path / "home").database)
    study, trials = store.study(1), store.trials(1)
    assert [spec.workload.max_completion_length for spec in begun] == [SIZES[0].tokens, 32]
    assert study.spec == begun[1]
    assert result.output.count("the baseline begins again with") == 1
    assert machine.sizes == [128, *[32] * len(trials)]
    fingerprint: Any = store.fingerprint(1)
    assert fingerprint is not None
    store.close()
