"""A framework without a framework, in a copy of the child's package: what a forked trial is, and what can go wrong.

``passthrough`` is the script: ``ahead`` what the import does (``hang``, ``raise``, ``thread``, ``cuda``, ``exit``,
``spoil``), ``key`` its key, ``trial`` what the trial does (``hold``, ``exit``, ``fail``, ``fork``).
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from trainer.child.contract import Protocol, RunPaths, TrialSpec, dumps, write_atomic

CHILD = Path(__file__).resolve().parents[2] / "trainer" / "child"
FRAMEWORK = """
import ctypes, os, random, sys, threading, time

imported = []
act_of = {}

def key(spec):
    return str(spec.passthrough.get("key", "one"))

def bring_in_ahead(spec):
    act = spec.passthrough.get("ahead")
    if act == "hang":
        with open(spec.passthrough.get("mark", os.devnull), "w") as mark:
            mark.write(str(os.getpid()))
        time.sleep(600)
    if act == "raise":
        raise ImportError("no module named vllm")
    if act == "exit":
        os._exit(3)
    if act == "thread":
        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
    if act == "cuda":
        ctypes.CDLL(spec.passthrough["library"]).cuInit(0)
    act_of["ahead"] = act
    imported.append(os.getpid())

def hold(trial):
    new = trial.paths.root / "held.new"
    new.write_text(str(os.getpid()))
    new.rename(trial.paths.root / "held")
    time.sleep(600)

def rehearse():
    return imported[0] != os.getpid() and act_of.get("ahead") != "spoil"

def run_trial(trial):
    trial.facts.update({
        "imported": list(imported), "pid": os.getpid(), "parent": os.getppid(), "session": os.getsid(0),
        "cwd": os.getcwd(), "tag": os.environ["AUTOTUNE_TAG"], "mark": os.environ.get("MARK"), "argv": sys.argv[1:],
        "random": random.random(), "stdin": os.readlink("/proc/self/fd/0"),
        "descriptors": len(os.listdir("/proc/self/fd")),
    })
    print("said by the trial", flush=True)
    act = trial.spec.passthrough.get("trial")
    if act == "hold":
        hold(trial)
    if act == "fork":
        if os.fork() == 0:
            os.setsid()
            time.sleep(600)
        hold(trial)
    if act == "exit":
        os._exit(7)
    if act == "fail":
        raise ValueError("as the trial was told")
"""


def copy_child(folder: Path) -> Path:
    """``start.py`` of a copy of the child whose framework is this one."""
    child = folder / "child"
    shutil.copytree(CHILD, child, ignore=shutil.ignore_patterns("__pycache__", "trl"))
    place = child / "frameworks" / "trl"
    place.mkdir()
    (place / "__init__.py").write_text(FRAMEWORK)
    return child / "start.py"


def write_trial(directory: Path, **script: Any) -> RunPaths:
    """A trial that can be started in ``directory``."""
    paths = RunPaths(directory)
    paths.scratch.mkdir(parents=True)
    spec = TrialSpec(
        trial="1/0",
        framework="trl",
        model="none",
        prompts="none",
        rewards=(),
        settings={},
        model_settings={},
        seams={},
        rows_per_update=1,
        max_prompt_length=1,
        max_completion_length=1,
        protocol=Protocol(),
        passthrough=script,
    )
    write_atomic(paths.config, dumps(spec))
    return paths
