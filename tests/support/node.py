"""A machine with several GPUs that are only made up: the command line as it is, beneath it a driver and a training
interpreter that are scripts. Nothing of ours is replaced."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.support import here
from tests.support.scripted_python import FOLDER

TESTS = Path(__file__).resolve().parent
INTERPRETER = """\
#!/bin/sh
{variable}='{folder}'; export {variable}
SCRIPTED_FRAMEWORK='{framework}'; export SCRIPTED_FRAMEWORK
exec {python} {script} "$@"
"""


class Node:
    """In ``folder``: the home, the interpreter, a model, prompts and a reward."""

    def __init__(self, folder: Path, gpus: Sequence[dict[str, Any]], framework: str = "trl") -> None:
        self.folder, self.home, self.gpus = folder, folder / "home", list(gpus)
        self.python = folder / "env" / "bin" / "python"
        self.python.parent.mkdir(parents=True)
        script = TESTS / "scripted_python.py"
        text = INTERPRETER.format(
            variable=FOLDER, folder=folder, python=sys.executable, script=script, framework=framework
        )
        self.python.write_text(text)
        self.python.chmod(0o755)
        self.model = folder / "model"
        self.model.mkdir()
        (self.model / "config.json").write_text("{}")
        (self.model / "model.safetensors").write_text("weights")
        (folder / "prompts.jsonl").write_text('{"prompt": "3 + 4", "answer": "7"}\n')
        (folder / "my_reward.py").write_text("def score(completions, **_):\n    return [0.5 for _ in completions]\n")

    def environment(self, visible: str | None = None) -> dict[str, str]:
        """What everything on this machine is started with."""
        own = {name: value for name, value in os.environ.items() if not name.startswith(("CUDA", "AUTOTUNE"))}
        return {
            **own,
            "PYTHONPATH": f"{TESTS / 'nvml'}{os.pathsep}{TESTS.parents[1]}",
            "MADE_UP_GPUS": json.dumps(self.gpus),
            **({} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}),
        }

    def begin(self, *words: str, visible: str | None = None) -> subprocess.Popen[str]:
        """``autotune WORDS``, running."""
        argv = [sys.executable, "-m", "autotune.cli", *words, "--home", str(self.home)]
        pipe, environment = subprocess.PIPE, self.environment(visible)
        return subprocess.Popen(argv, cwd=self.folder, env=environment, stdout=pipe, stderr=pipe, text=True)

    def run(self, *words: str, visible: str | None = None, timeout: float = 240.0) -> subprocess.CompletedProcess[str]:
        """``autotune WORDS``, to its end."""
        with self.begin(*words, visible=visible) as process:
            try:
                out, err = process.communicate(timeout=timeout)
            except BaseException:
                process.kill()
                raise
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def started(self, *words: str) -> tuple[str, ...]:
        """The words of ``autotune start`` of the model here, with its prompts and reward."""
        workload = ("--model", str(self.model), "--data", "prompts.jsonl", "--reward", "my_reward.py:score")
        return ("start", "--python", str(self.python), *workload, "--no-serve", "--no-live", *words)

    def start(
        self, *words: str, visible: str | None = None, timeout: float = 240.0
    ) -> subprocess.CompletedProcess[str]:
        """``autotune start`` of the model here, to its end."""
        return self.run(*self.started(*words), visible=visible, timeout=timeout)

    def document(self, *words: str) -> Any:
        """What a reading command prints with ``--json``; in this process, as the command itself is another test's."""
        words = (*words, "--json", "--home", str(self.home))
        done = here.autotune(words, self.folder, self.environment())
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def launches(self) -> list[dict[str, Any]]:
        """Everything the interpreter was started for, in order."""
        return [json.loads(line) for line in (self.folder / "launches.jsonl").read_text().splitlines()]
