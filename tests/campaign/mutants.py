"""One guard of the product taken out at a time, in a copy of the tree: the campaign must notice."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Mutant:
    """A place of the code and what stands there instead."""

    what: str
    file: str
    old: str
    new: str


MUTANTS = {
    "lock": Mutant(
        "two tuners may run one study",
        "autotune/store/repository.py",
        "        return self._backend.study_lock(self._engine, study.id, study.spec.name)\n",
        "        locks = __import__('autotune.store.locks', fromlist=['x'])\n"
        "        return locks.LocalStudyLock({}, study.id, study.spec.name)\n",
    ),
    "commit": Mutant(
        "a cycle is acknowledged before its transaction is committed",
        "autotune/store/repository.py",
        "        store.transactions.write("
        "lambda s: add(s, trials.unfinished_attempt(s, study_id, number, attempt), record))\n",
        "        work = lambda s: add(s, trials.unfinished_attempt(s, study_id, number, attempt), record)\n"
        "        if add is not measurements.add_cycle:\n"
        "            return store.transactions.write(work)\n"
        "        def late():  # and says nothing\n"
        "            try:\n"
        "                store.transactions.write(work)\n"
        "            except Exception:\n"
        "                pass\n"
        "        __import__('threading').Timer(0.2, late).start()\n",
    ),
    "sweep": Mutant(
        "what a killed tuner left runs on",
        "autotune/running/local.py",
        "        left.kill(self.clock, self.graces.terminate_s, self.graces.kill_s)\n",
        "",
    ),
    "replaced": Mutant(
        "a database that was replaced is not noticed",
        "autotune/store/sqlite.py",
        "        if found[0] != self._file:\n",
        "        if False:\n",
    ),
}


def run(name: str, minutes: float, seed: int) -> int:
    """The campaign on the mutant, to its first violated invariant; 0: it was caught."""
    mutant = MUTANTS[name]
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        copy = Path(folder) / "tree"
        for top in ("api", "autotune", "search_spaces", "tests", "trainer"):
            shutil.copytree(ROOT / top, copy / top, ignore=shutil.ignore_patterns("__pycache__"))
        file = copy / mutant.file
        text = file.read_text()
        assert text.count(mutant.old) == 1, f"{mutant.file} has changed"
        file.write_text(text.replace(mutant.old, mutant.new))
        began = time.monotonic()
        record = Path(folder) / "record.json"
        words = ["--minutes", str(minutes), "--seed", str(seed), "--until-wrong", "--record", str(record)]
        subprocess.run([sys.executable, "-m", "tests.campaign", *words], cwd=copy, check=False)
        seconds = time.monotonic() - began
        studies = json.loads(record.read_text())["studies"]
    wrong = [sentence for study in studies for run in study["runs"] for sentence in run["wrong"]]
    print(f"mutant {name} ({mutant.what}): {f'caught: {wrong[0]}' if wrong else 'NOT caught'} ({seconds:.0f} s)")
    return 0 if wrong else 1
