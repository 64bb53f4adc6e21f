"""``python -m benchmarks.sweeps CASE --out DIR``: the inputs of a table, and the command that records it.

Makes a random model, prompts and a reward in DIR, once, and prints the ``autotune sweep`` with them; with ``--go`` it
becomes that command. What is after ``--`` goes to the sweep: ``-- --rows 12``, ``-- --budget 50m``. The same command
goes on with what it had begun, as any sweep does.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.gpu import inputs
from benchmarks.sweeps.cases import CASES, Case, Inputs, words
from trainer.child.contract import write_atomic

ROOT = Path(__file__).resolve().parents[2]


def make(case: Case, python: str, out: Path) -> Inputs:
    """Whatever of its inputs is not there yet.

    Raises:
        SystemExit: the training interpreter could not make the model, or one of another shape is there.
    """
    out.mkdir(parents=True, exist_ok=True)
    model, recipe = out / case.architecture.name, out / f"{case.architecture.name}.json"
    wanted = json.dumps(case.architecture.recipe())
    if model.is_dir() and (not recipe.is_file() or recipe.read_text(encoding="utf-8") != wanted):
        raise SystemExit(f"{model} was made by another recipe: remove it, or name another folder with --out")
    if not model.is_dir():
        write_atomic(recipe, wanted)
        ended = subprocess.run([python, str(inputs.SCRIPT), str(recipe), str(model)], check=False)
        if ended.returncode or not model.is_dir():
            raise SystemExit(f"{python} could not make the model {case.architecture.name}")
    prompts = inputs.prompts(out, case.longest_prompt, 0, case.shortest_prompt)
    reward = inputs.reward(out)
    return Inputs(model, prompts, f"{reward.path}:{reward.name}")


def main(arguments: Sequence[str]) -> int:
    """The command."""
    own, more = list(arguments), []
    if "--" in own:
        at = own.index("--")
        own, more = own[:at], own[at + 1 :]
    made = argparse.ArgumentParser(prog="python -m benchmarks.sweeps", description=(__doc__ or "").split("\n")[0])
    made.add_argument("case", choices=sorted(CASES))
    made.add_argument("--out", required=True, type=Path, help="folder of its inputs, trials and table")
    made.add_argument("--python", default=os.environ.get("AUTOTUNE_TEST_PYTHON", str(ROOT / ".venv-train/bin/python")))
    made.add_argument("--go", action="store_true", help="run the sweep")
    given = made.parse_args(own)
    case, out, python = CASES[given.case], given.out.absolute(), str(Path(given.python).absolute())
    swept = words(case, make(case, python, out), python, out, more)
    argv = (sys.executable, "-m", "autotune.cli", *swept)
    print(shlex.join(argv), flush=True)
    if given.go:
        os.execv(argv[0], argv)  # noqa: S606
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
