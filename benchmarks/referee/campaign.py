"""Whole studies one after another, each judged by the framework itself afterwards: a row a study, in a file."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from autotune.errors import MachineError
from autotune.machine import hardware
from benchmarks.referee.disturbances import Disturbances
from benchmarks.referee.recorded import rows_of

ROOT = Path(__file__).resolve().parents[2]
TOOL = (sys.executable, "-m", "autotune.cli")
RESULTS = (0, 3, 4, 5)
"""Exit codes of ``start`` and ``verify`` that are results: also nothing feasible, no result, not decided."""
ENDING_S = 90.0
SETTLE_S = 10.0
"""Of quiet before the judge begins."""


@dataclass(frozen=True)
class Campaign:
    """Studies of one kind."""

    out: Path
    kind: str
    """``disturbances.KINDS``."""
    budget: str
    model: str
    python: str
    rounds: int = 3
    updates: int = 10

    def name(self, number: int) -> str:
        """Returns the name of a study, by which its row is found again."""
        return f"{self.kind}-{self.budget}-{number:03d}"

    @property
    def folder(self) -> Path:
        """The folder of the study that runs."""
        return self.out.with_name(self.out.name + ".running")


def go_on(campaign: Campaign, count: int, say: Callable[[str], None]) -> None:
    """Runs the studies of the first ``count`` numbers that have no row yet; a study that was broken off begins anew.

    Raises:
        UsageError: the file holds something else.
        MachineError: a study cannot be run or read.
    """
    done = {row["study"] for row in rows_of(campaign.out, "study")} if campaign.out.exists() else set()
    for number in range(1, count + 1):
        if campaign.name(number) in done:
            continue
        say(f"study {campaign.name(number)}, {number} of {count}")
        shutil.rmtree(campaign.folder, ignore_errors=True)
        campaign.folder.mkdir(parents=True)
        row = run_study(campaign, number)
        with campaign.out.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(row) + "\n")
        shutil.rmtree(campaign.folder)
        say(json.dumps({key: row[key] for key in ("study", "trials", "stated", "decided", "referee")}))


def run_study(campaign: Campaign, number: int) -> dict[str, Any]:
    """Runs one study beside its disturbances, then the judge on the machine without them; returns the row."""
    home, name = campaign.folder / "home", campaign.name(number)
    began = time.monotonic()
    with Disturbances(campaign.kind, number, campaign.folder / "disturbances") as disturbances:
        code, _ = command(
            ("start", "--budget", campaign.budget, "--model", campaign.model, "--python", campaign.python),
            ("--name", name, "--seed", str(number), "--no-history", "--no-live", "--no-serve", "--quiet"),
            home=home,
        )
    seconds = time.monotonic() - began
    time.sleep(SETTLE_S)
    trials = json.loads(command(("trials", name, "--json"), home=home)[1])["trials"]
    best = {} if code else json.loads(command(("best", name, "--json"), home=home)[1])["recommendation"] or {}
    row = next(iter(best.get("rows", ())), None)
    verdict, fault = None, ""
    if row is not None and row["changes"]:
        try:
            verdict = ask_referee(name, home, campaign.rounds, campaign.updates)
        except MachineError as error:
            fault = str(error)
    machine = hardware.describe()
    return {
        "study": name,
        "disturbed": campaign.kind,
        "disturbed_share": round(disturbances.seconds / seconds, 3),
        "budget": campaign.budget,
        "seconds": round(seconds, 1),
        "trials": len(trials),
        "stated": row["gain"] if row else None,
        "confirmed": bool(row and row["confirmed"]),
        "decided": is_decided(row),
        "notes": best.get("notes", []),
        "referee": None if verdict is None else figures_of(verdict),
        "steps": [] if verdict is None else verdict["steps"],
        "fault": fault,
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": f"{machine['cpu']}, {machine['cores']} cores",
    }


def is_decided(row: Mapping[str, Any] | None) -> bool:
    """Returns whether an answer states a gain whose interval excludes none."""
    gain = row["gain"] if row else None
    return bool(row and gain and row["changes"] and (gain["low"] > 0 or gain["high"] < 0))


def ask_referee(study: str, home: Path | None, rounds: int, updates: int, trial: int | None = None) -> dict[str, Any]:
    """Returns what ``autotune verify --against-baseline`` says of a study's answer, or of one of its trials."""
    words = ("verify", study, "--against-baseline", "--rounds", str(rounds), "--updates", str(updates), "--json")
    chosen = () if trial is None else ("--trial", str(trial))
    verdict: dict[str, Any] = json.loads(command((*words, *chosen), home=home)[1])
    return verdict


def figures_of(verdict: Mapping[str, Any]) -> dict[str, Any] | None:
    """Returns the judge's figures, as gains; ``None`` where the machine was not quiet."""
    if verdict["disturbed"]:
        return None
    return {
        "by_tokens": round(verdict["tokens_per_hour_ratio"] - 1.0, 4),
        "by_seconds": round(verdict["step_speed_ratio"] - 1.0, 4),
        "rounds": [round(ratio - 1.0, 4) for ratio in verdict["round_step_speed_ratios"]],
        "counted": sum(step["counts"] for step in verdict["steps"]),
    }


def command(*words: tuple[str, ...], home: Path | None) -> tuple[int, str]:
    """Runs the tool's command line as a user would; returns its exit code and what it prints.

    Raises:
        MachineError: it ended with another exit code than ``RESULTS``, or printed nothing.
    """
    argv = [word for some in words for word in some]
    where = () if home is None else ("--home", str(home))
    process = subprocess.Popen((*TOOL, *argv, *where), cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    try:
        out = process.communicate()[0].decode()
    except BaseException:  # what was started is ended before
        process.terminate()
        try:
            process.wait(ENDING_S)
        except subprocess.TimeoutExpired:
            process.kill()
        raise
    if process.returncode not in RESULTS or not out.strip():
        raise MachineError(f"autotune {argv[0]} ended with exit code {process.returncode}")
    return process.returncode, out
