"""What is said where an interpreter cannot run trials."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from autotune.errors import MachineError
from autotune.specification import interpreter
from autotune.specification.interpreter import Interpreter
from trainer.child.contract import FailureReason, Result

LACKS = Result(False, FailureReason.ILLEGAL, message="it lacks torch; install with: pip install torch")


@pytest.mark.parametrize("named", [False, True])
def test_where_no_interpreter_was_named_the_option_is_told(
    named: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    another = tmp_path / "python"
    another.symlink_to(sys.executable)
    python = str(another) if named else sys.executable
    monkeypatch.setattr(interpreter, "run_tool", lambda *_a, **_k: LACKS)
    with pytest.raises(MachineError, match="lacks torch; install with: pip install torch") as raised:
        Interpreter(python, tmp_path).probe()
    assert ("--python" in str(raised.value)) is not named
