"""``start`` lets search trials share processes unless it is told not to."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from autotune.cli.commands import start, start_request
from autotune.cli.commands.start_options import StartOptions
from tests.support import factories


@pytest.mark.parametrize(("options", "warm"), [((), True), (("--cold",), False)])
def test_cold_gives_every_trial_a_process_of_its_own(
    home: Any, wiring: Any, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], warm: bool
) -> None:
    seen: list[Any] = []

    def run(*given: Any) -> int:
        seen.append(next(one for one in given if isinstance(one, StartOptions)))
        return 0

    wiring.check_store = lambda settings: None
    wiring.prepare = lambda *_: SimpleNamespace(spec=factories.study_spec())
    monkeypatch.setattr(start, "_run", run)
    monkeypatch.setattr(start_request, "bundled_model", lambda: "")
    app = typer.Typer()
    app.command()(start.start)
    result = CliRunner().invoke(app, ["--budget", "1m", "--no-serve", *options])
    assert result.exit_code == 0, result.output
    assert [(asked.allow_busy, asked.cold) for asked in seen] == [(False, not warm)]
