"""``start`` lets search trials share processes unless it is told not to."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from autotune.cli.commands import start


@pytest.mark.parametrize(("options", "warm"), [((), True), (("--cold",), False)])
def test_cold_gives_every_trial_a_process_of_its_own(
    home: Any, wiring: Any, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], warm: bool
) -> None:
    seen: list[Mapping[str, bool]] = []

    def run(*_: Any, runs: Mapping[str, bool], **__: Any) -> int:
        seen.append(runs)
        return 0

    wiring.check_store = lambda settings: None
    wiring.prepare = lambda *_: SimpleNamespace()
    monkeypatch.setattr(start, "_run", run)
    monkeypatch.setattr(import_module("autotune.cli.commands.start_request"), "bundled_model", lambda: "")
    app = typer.Typer()
    start.register(app)
    result = CliRunner().invoke(app, ["--budget", "1m", "--no-serve", *options])
    assert result.exit_code == 0, result.output
    assert seen == [{"allow_busy": False, "warm": warm}]
