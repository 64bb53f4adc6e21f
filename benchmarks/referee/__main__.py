"""``python -m benchmarks.referee STUDY [--home H] [--trial N]``: is a stated gain true? The framework is the judge.

It runs the baseline's export and the answer's in turns, with no code of the tool but what an export holds, and its own
log is read (``autotune verify --against-baseline``). Three more forms:

* ``--recorded DIR``: what the product states today from recorded cycles (``study.jsonl``), beside a recorded check
  (``plain_trl.jsonl``); ``--quiet`` takes ``study-quiet.jsonl`` and ``plain_trl-quiet.jsonl``.
* ``--campaign N --disturbed KIND --out FILE``: N whole studies of ``--budget``, beside programs that come and go, each
  followed by the judge on the machine without them. A row is appended as a study ends; the same command goes on.
* ``--summary FILE ...``: how often stated intervals hold, and by how much gains are overstated.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from autotune.errors import AutotuneError
from benchmarks.referee.campaign import ROOT, Campaign, ask_referee, figures_of, go_on
from benchmarks.referee.disturbances import KINDS
from benchmarks.referee.recorded import judge_recording, rows_of
from benchmarks.referee.summary import summary, words

BUNDLED = ROOT / ".models" / "SmolLM2-135M-Instruct"
ROW = ("study", "disturbed", "decided", "stated", "referee")


def parser() -> argparse.ArgumentParser:
    """Returns the command line."""
    made = argparse.ArgumentParser(
        prog="python -m benchmarks.referee", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("study", nargs="?", help="name or id of a finished study")
    made.add_argument("--home", type=os.path.abspath, help="its home; $AUTOTUNE_HOME if left out")
    made.add_argument("--trial", type=int, metavar="N", help="the configuration of trial N instead of the answer's")
    made.add_argument("--rounds", type=int, default=3, help="turns of each side (3)")
    made.add_argument("--updates", type=int, default=10, help="steps of a turn that count, after two that do not (10)")
    made.add_argument("--json", action="store_true", help="print one JSON object")
    made.add_argument("--recorded", type=Path, metavar="DIR", help="folder of a recording, or its file of a study")
    made.add_argument("--quiet", action="store_true", help="the recording of the quiet machine")
    made.add_argument("--campaign", type=int, metavar="N", help="so many studies")
    made.add_argument("--disturbed", choices=KINDS, default="none", help="what comes and goes beside them (none)")
    made.add_argument("--out", type=Path, metavar="FILE", help="file of the campaign's rows")
    made.add_argument("--budget", default="5m", help="of each study (5m)")
    made.add_argument("--model", default=os.environ.get("AUTOTUNE_BUNDLED_MODEL", str(BUNDLED)))
    python = str(ROOT / ".venv-train" / "bin" / "python")
    made.add_argument("--python", default=os.environ.get("AUTOTUNE_TEST_PYTHON", python), help="training interpreter")
    made.add_argument("--summary", type=Path, nargs="+", metavar="FILE", help="files of campaigns")
    return made


def _answer(wanted: argparse.Namespace) -> tuple[dict[str, Any], str]:
    """Returns what was asked for, as a document and in words."""
    if wanted.recorded is not None:
        both = judge_recording(wanted.recorded, quiet=wanted.quiet)
        return both, "\n".join(f"{name:<9}{value}" for name, value in both.items())
    if wanted.summary is not None:
        figures = summary([row for path in wanted.summary for row in rows_of(path, *ROW)])
        return figures, words(figures)
    home = None if wanted.home is None else Path(wanted.home)
    verdict = ask_referee(wanted.study, home, wanted.rounds, wanted.updates, wanted.trial)
    gain, shown = verdict["stated_gain"], figures_of(verdict)
    stated = "none" if gain is None else f"{gain['value']:+.3f} ({gain['low']:+.3f} to {gain['high']:+.3f})"
    ratio = "none: the machine was not quiet"
    if shown is not None:
        ratio = f"{shown['by_tokens']:+.3f} by tokens/hour, {shown['by_seconds']:+.3f} by the seconds of a step"
    sure = "decided" if gain is not None and (gain["low"] > 0 or gain["high"] < 0) else "not decided"
    holds = {True: "holds it", False: "does not hold it", None: "not compared"}[verdict["interval_holds"]]
    return verdict, f"stated   {stated}, {sure}\nreferee  {ratio}\ninterval {holds}"


def main(arguments: Sequence[str]) -> int:
    """0: done; 2: refused; 5: a command failed."""
    reader = parser()
    wanted = reader.parse_args(arguments)
    forms = (wanted.study, wanted.recorded, wanted.campaign, wanted.summary)
    if sum(form is not None for form in forms) != 1:
        reader.error("expected one of STUDY, --recorded, --campaign and --summary")
    if wanted.campaign is not None and (wanted.out is None or wanted.campaign < 1):
        reader.error("--campaign N: expected a number above 0, and --out FILE")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what was started is ended before
    try:
        if wanted.campaign is None:
            document, text = _answer(wanted)
            print(json.dumps(document) if wanted.json else text)
            return 0
        model = str(Path(wanted.model).resolve()) if Path(wanted.model).exists() else wanted.model
        fixed = (wanted.disturbed, wanted.budget, model, os.path.abspath(wanted.python), wanted.rounds, wanted.updates)
        campaign = Campaign(wanted.out.resolve(), *fixed)
        go_on(campaign, wanted.campaign, lambda line: print(line, file=sys.stderr, flush=True))
    except AutotuneError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
