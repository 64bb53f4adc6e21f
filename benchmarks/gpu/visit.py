"""``python -m benchmarks.gpu.visit --out OUT --limit S``: all that one visit to a machine with a GPU is for.

A plan of stages. Each says the seconds it takes and the files it needs, writes into OUT as it goes, and is left out
when its time or a file is not there. Questions leave the study its eight minutes; it starts with less of them where its
preparations took longer. What began, ended and was left out stands in ``OUT/visit.jsonl``. A kill loses the running
stage at most: a holder beside each stage ends all of its processes when this one is gone.

  packages, environment, inputs, tiny, model   what the others run on
  questions     what no CPU could answer: what opens a GPU, whether a fork computes, drift and clock at full load
  compiled      one trial of a tiny model with vLLM's compiled engine
  study         480 s
  kept          five trials of a tiny model that may share a process, with the reasons where they do not
  tests-...     the GPU tests, first those that no GPU has run
  offload, fp8  a trial each of a tiny model
  rounds        the study's answer in turns with the defaults

``--dry N`` runs a stand-in for each stage, N times as fast: it sleeps and writes what the stage would.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import sysconfig
import tarfile
import time
import venv
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from benchmarks.gpu import holder

ROOT = Path(__file__).resolve().parents[2]
KEPT = ("*.jsonl", "*.json", "log.txt", "*.log")
LARGEST = 4 << 20
"""Bytes of a file that is copied."""
NEEDED = ("packages", "environment", "inputs", "tiny", "model")  # by the study
STUDY_S, LEAST_S, END_S, COPY_S, GRACE_S = 480, 315.0, 12.0, 20.0, 10.0
"""The study's budget, and its stage's least; for the last copy; between two copies; from asking to end to killing."""


@dataclass(frozen=True)
class Stage:
    """A part of the visit."""

    name: str
    seconds: float
    """It is ended after so many."""
    command: tuple[str, ...]
    files: tuple[Path, ...] = ()
    """Without them it is left out."""
    least: float = 0.0
    """It is left out with fewer seconds left; 0: than it takes."""
    first: bool = False
    """Stages before it leave it its seconds, those that it needs its ``least``."""
    table: str = ""
    """Study whose trials are written as a table when it has ended."""
    environment: dict[str, str] = field(default_factory=dict)


class Places:
    """Where things are, and what runs them."""

    def __init__(self, given: argparse.Namespace) -> None:
        self.out, self.work = given.out.resolve(), given.work.resolve()
        self.packages, self.archive = (path and path.resolve() for path in (given.packages, given.archive))
        unpacked = str(self.work / "env" / "bin" / "python") if given.packages else ""
        self.python = unpacked or shutil.which(given.python) or given.python
        self.tool = unpacked or shutil.which(given.tool) or given.tool
        self.cpu, self.home = given.cpu, self.work / "home"
        sizes = given.arch, given.rows, given.prompt, given.completion
        self.arch, self.rows, self.prompt, self.completion = ("tiny", 8, 32, 16) if given.cpu else sizes


def plan(at: Places) -> list[Stage]:
    """All stages in their order."""
    model, tiny, kit = at.work / "model", at.work / "tiny", at.work / "kit"
    own = (sys.executable, "-m", "benchmarks.gpu.visit")
    made: list[Stage] = []
    if at.packages:
        where = {"KIT": str(kit), "SITE": str(at.work / "site-packages"), "PY": sys.executable}
        unpack = at.packages / "unpack.sh"
        made += [
            Stage("packages", 60, ("bash", str(unpack)), (unpack,), 10, environment=where),
            Stage("environment", 30, (*own, "environment", str(at.work)), (at.work / "site-packages",), 5),
        ]
    script = str(ROOT / "benchmarks" / "gpu" / "random_model.py")
    asked = ("benchmarks.gpu.questions", str(at.out / "questions.jsonl"))
    made += [
        Stage("inputs", 30, (at.tool, *own[1:], "inputs", str(at.work), at.arch, str(at.prompt)), (Path(at.tool),), 5),
        Stage("tiny", 60, (at.python, script, str(at.work / "tiny.json"), str(tiny)), (at.work / "tiny.json",), 10),
        Stage("model", 60, (at.python, script, str(at.work / "recipe.json"), str(model)), (tiny,), 10),
        Stage("questions", 75, (at.python, "-m", *asked), (Path(at.python),), 20),
        _trials(at, "compiled", 110, tiny, "rollout_engine=vllm", *([] if at.cpu else ["enforce_eager=false"])),
        replace(_study(at, "study", STUDY_S, model), first=True, least=LEAST_S),
        _study(at, "kept", 70, tiny, "--max-trials", "5", "--space", str(at.work / "kept.yaml")),
        *(_tests(at, *one) for one in TESTS),
        _trials(at, "offload", 90, tiny, "zero_stage=2", "offload_optimizer=cpu"),
        _trials(at, "fp8", 90, tiny, "precision=fp8"),
    ]  # fmt: skip
    rounds = (at.tool, "-m", "benchmarks.gpu.rounds", str(at.home), "study", "{left}", str(at.out / "rounds.jsonl"))
    return [*made, Stage("rounds", 3600, rounds, (at.out / "study.jsonl",), 250)]


TESTS = (
    ("test_parity_on_device.py", ""),
    ("test_engine.py", "share or captured or fp8 or slept"),
    ("test_continuous_batching.py", ""),
    ("test_gpu_guard.py", ""),
    ("test_trial_on_device.py", ""),
    ("test_engine.py", "not (share or captured or fp8 or slept)"),
    ("test_gpu_split.py", ""),
)
"""Files, and the tests of them: those that no GPU has run first (docs/gpu-coverage.md)."""


def _tests(at: Places, name: str, chosen: str) -> Stage:
    label = f"tests-{name.removeprefix('test_').removesuffix('.py')}{'-rest' if chosen.startswith('not') else ''}"
    report = (f"--junitxml={at.out / label}.xml", "-p", "no:cacheprovider", "--override-ini=addopts=")
    path = ROOT / "tests" / "gpu" / name
    words = (at.tool, "-m", "pytest", "-v", "-rs", str(path), *report, *(("-k", chosen) if chosen else ()))
    return Stage(label, 150, words, (path, Path(at.tool)), 30, environment={"AUTOTUNE_TEST_PYTHON": at.python})


def _study(at: Places, name: str, seconds: int, model: Path, *more: str) -> Stage:
    """``autotune start`` on a model; it may take its grace beyond its budget."""
    reward = f"{at.work / 'reward.py'}:score"
    words = (
        *(at.tool, "-m", "autotune.cli", "start", "--home", str(at.home), "--python", at.python, "--name", name),
        *("--model", str(model), "--data", str(at.work / "prompts.jsonl"), "--reward", reward),
        *("--rows-per-update", str(at.rows), "--max-prompt-length", str(at.prompt)),
        *("--max-completion-length", str(at.completion), "--no-history", "--no-serve", "--no-live"),
        *("--budget", "{left}s", *more),
    )  # fmt: skip
    return Stage(name, seconds + GRACE_S + 5, words, (model, at.work / "prompts.jsonl"), table=name)


def _trials(at: Places, name: str, seconds: int, model: Path, *knobs: str) -> Stage:
    """One trial, the baseline, with these knobs."""
    return _study(at, name, seconds, model, "--max-trials", "1", *(word for knob in knobs for word in ("--set", knob)))


@dataclass
class Visit:
    """Runs the plan.

    Args:
        speed: times as fast as the clock; above 1 in a dry run.
    """

    at: Places
    limit: float
    speed: float = 1.0

    def __post_init__(self) -> None:
        self._began, self._copied = time.monotonic(), 0.0
        self._journal = self.at.out / "visit.jsonl"

    def now(self) -> float:
        return (time.monotonic() - self._began) * self.speed

    def left(self) -> float:
        return self.limit - END_S - self.now()

    def say(self, event: str, stage: str, **more: object) -> None:
        """A line, on disk when this returns."""
        line = json.dumps({"at": round(self.now(), 1), "event": event, "stage": stage, **more})
        with self._journal.open("a", encoding="utf-8") as stream:
            stream.write(line + "\n")
            stream.flush()
            os.fsync(stream.fileno())
        print(line, flush=True)

    def run(self, stages: Sequence[Stage]) -> None:
        """All that fit."""
        try:
            for place, stage in enumerate(stages):
                self._look_at(stage, stages[place + 1 :])
        finally:
            self.copy()
            self.say("ended", "visit")

    def _look_at(self, stage: Stage, others: Sequence[Stage]) -> None:
        study = next((later for later in others if later.first and later.least <= self.left()), None)
        room = self.left() - (0.0 if study is None else study.least if stage.name in NEEDED else study.seconds)
        missing = [str(path) for path in stage.files if not path.exists()]
        if missing:
            self.say("left out", stage.name, why=f"{missing[0]} is not there")
        elif room < (stage.least or stage.seconds):
            self.say("left out", stage.name, why=f"{room:.0f} s are left for it")
        else:
            self._run(replace(stage, seconds=min(stage.seconds, room)))

    def _run(self, stage: Stage) -> None:
        self.say("begins", stage.name, seconds=round(stage.seconds))
        began, log = self.now(), self.at.out / f"{stage.name}.log"
        command = [word.replace("{left}", f"{stage.seconds - GRACE_S - 5:.0f}") for word in stage.command]
        bounds = (f"{stage.seconds / self.speed}", f"{GRACE_S / self.speed}")
        argv = [sys.executable, "-I", "-S", holder.__file__, *bounds, *command]
        environment = {**self.variables(), **stage.environment}
        with log.open("ab") as output:
            streams = {"stdin": subprocess.PIPE, "stdout": output, "stderr": output}
            held = subprocess.Popen(argv, cwd=ROOT, env=environment, **streams)  # type: ignore[call-overload]
        try:
            while held.poll() is None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    held.wait(COPY_S / self.speed)
                    break
                self.copy()
        finally:
            assert held.stdin is not None  # noqa: S101  (narrowing)
            held.stdin.close()  # the holder ends the stage, if it has not ended
            code = held.wait()
            holder.end_all()
        if stage.table and self.speed == 1.0:
            file = self.at.out / f"{stage.table}.jsonl"
            table = ("-m", "benchmarks.gpu.study_table", str(self.at.home), stage.table, str(file))
            with (self.at.out / f"{stage.table}.md").open("wb") as output:
                subprocess.run([self.at.tool, *table], cwd=ROOT, stdout=output, stderr=output, check=False)
        self.say("ended", stage.name, code=code, seconds=round(self.now() - began, 1), last=_last_line(log))
        self.copy()

    def variables(self) -> dict[str, str]:
        """Of a stage: with those that the unpacked packages want, whose interpreter finds them without a path."""
        script = self.at.work / "kit" / "env.sh"
        if not script.is_file():
            return dict(os.environ)
        words = ["bash", "-c", '. "$1" && env -0', "bash", str(script)]
        told = subprocess.run(words, capture_output=True, text=True, check=True).stdout
        found = dict(line.split("=", 1) for line in told.split("\0") if "=" in line)
        found.pop("PYTHONPATH", None)
        return {**found, "PATH": f"{self.at.work / 'env' / 'bin'}:{found['PATH']}"}

    def copy(self) -> None:
        """All there is so far: the study's database and records into OUT, and OUT into the archive."""
        copy(self.at.home, self.at.out)
        if self.at.archive:
            fresh = self.at.archive.with_suffix(".new")
            with tarfile.open(fresh, "w:gz") as made:
                made.add(self.at.out, ".")
            fresh.replace(self.at.archive)


def _last_line(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1][:200] if lines else ""


def pretended(stage: Stage, at: Places, speed: float) -> Stage:
    """A stand-in that has a process beside it, writes a line as it begins and one as it ends, and makes its files."""
    takes = min(stage.seconds, TAKES.get(stage.name, 40.0)) / speed
    makes = {"packages": "site-packages", "environment": "env/bin/python"}
    makes["inputs"] = "tiny.json recipe.json prompts.jsonl kept.yaml"
    made = " ".join(f"{at.work}/{name}" for name in makes.get(stage.name, stage.name).split())
    made += f" {at.out}/study.jsonl" if stage.name == "study" else ""
    words = f"sleep 1000 & echo {stage.name} begins; sleep {takes}; touch {made}; echo {stage.name} is whole"
    return replace(stage, command=("sh", "-c", f"mkdir -p {at.work}/env/bin; {words}"), environment={})


TAKES = {
    "packages": 12.0,
    "environment": 2.0,
    "inputs": 2.0,
    "tiny": 6.0,
    "model": 10.0,
    "questions": 45.0,
    "study": 480.0,
}
"""Seconds of stages on the visits, or as they are meant."""


def inputs(place: str, arch: str, prompt: str) -> None:
    """Writes recipes of the random models, prompts, the reward, and the space of trials that may share a process."""
    from benchmarks.gpu import inputs as made  # noqa: PLC0415  (the other commands run before autotune can be imported)
    from benchmarks.gpu.architectures import ARCHITECTURES, TINY  # noqa: PLC0415

    folder = Path(place)
    folder.mkdir(parents=True, exist_ok=True)
    for name, which in (("recipe", arch), ("tiny", TINY)):
        (folder / f"{name}.json").write_text(json.dumps(ARCHITECTURES[which].recipe()), encoding="utf-8")
    knobs = "knobs:\n  micro_batch_size: [1, 2, 4, 8]\n  gradient_checkpointing: [true, false]\n"
    (folder / "kept.yaml").write_text(knobs, encoding="utf-8")
    made.prompts(folder, int(prompt), seed=0)
    made.reward(folder)


def environment(place: str) -> None:
    """A trial gets no ``PYTHONPATH``, so its interpreter has to find the packages by itself."""
    env = Path(place) / "env"
    venv.EnvBuilder(with_pip=False, symlinks=True).create(env)
    own = Path(sysconfig.get_path("purelib", vars={"base": str(env)}))
    found = (str(Path(place) / "site-packages"), sysconfig.get_path("purelib"))
    lines = [f"import site; site.addsitedir({name!r})\n" for name in found]
    (own / "packages.pth").write_text("".join(lines), encoding="utf-8")


def copy(home: Path, out: Path) -> None:
    """The database, by its own backup, and the records and logs of all trials; safe while a study runs."""
    database = home / "autotune.sqlite"
    if database.is_file():
        source = sqlite3.connect(f"file:{database}?mode=ro", uri=True)
        backup = sqlite3.connect(out / "autotune.sqlite.new")
        with source, backup:
            source.backup(backup)
        source.close()
        backup.close()
        (out / "autotune.sqlite.new").replace(out / "autotune.sqlite")
    for pattern in KEPT:
        for path in (home / "runs").rglob(pattern):
            if path.is_file() and path.stat().st_size <= LARGEST and "scratch" not in path.parts:
                to = out / "runs" / path.relative_to(home / "runs")
                to.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, to)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu.visit", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--out", required=True, type=Path, help="folder of the results")
    made.add_argument("--work", required=True, type=Path, help="folder of everything else, the same for a further call")
    made.add_argument("--limit", type=float, default=585.0, metavar="S", help="seconds in all (585)")
    made.add_argument("--packages", type=Path, help="folder with unpack.sh, which fills $SITE; else all is in --python")
    made.add_argument("--python", default=sys.executable, help="of the trials, where nothing is unpacked")
    made.add_argument("--tool", default=sys.executable, help="of the tuner, where nothing is unpacked")
    made.add_argument("--archive", type=Path, metavar="FILE", help="that holds all of --out as well, as tar.gz")
    made.add_argument("--stages", metavar="NAMES", help="only these, with commas")
    made.add_argument("--cpu", action="store_true", help="try it on a CPU with a tiny model; its figures say nothing")
    made.add_argument("--dry", type=float, metavar="N", help="stand-ins, N times as fast")
    made.add_argument("--arch", default="qwen2.5-1.5b", help="whose shapes the study's random model has (qwen2.5-1.5b)")
    made.add_argument("--rows", type=int, default=128, help="per update (128)")
    made.add_argument("--prompt", type=int, default=256, help="most tokens (256)")
    made.add_argument("--completion", type=int, default=96, help="most tokens (96)")
    return made


def visit(words: Sequence[str]) -> int:
    """Returns the exit status: 2 for bad input."""
    given = parser().parse_args(words)
    at = Places(given)
    stages = plan(at)
    names = [stage.name for stage in stages]
    chosen = given.stages.split(",") if given.stages else names
    for name in chosen:
        if name not in names:
            print(f"error: --stages {name}: expected names with commas, of {', '.join(names)}", file=sys.stderr)
            return 2
    if given.packages and not (given.packages / "unpack.sh").is_file():
        print(f"error: --packages {given.packages} holds no unpack.sh", file=sys.stderr)
        return 2
    for folder in (at.out, at.work):
        folder.mkdir(parents=True, exist_ok=True)
    holder.become_subreaper()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(143))
    speed = given.dry or 1.0
    stages = [stage for stage in stages if stage.name in chosen]
    here = Visit(at, given.limit, speed)
    here.run([pretended(stage, at, speed) for stage in stages] if given.dry else stages)
    return 0


def main(words: list[str]) -> int:
    """Runs the visit, or a part of it."""
    command = {"inputs": inputs, "environment": environment}.get(words[0] if words else "")
    return int((command(*words[1:]) if command else visit(words)) or 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
