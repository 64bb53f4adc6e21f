"""``python -m benchmarks.cases FOLDER``: asks the product every case below FOLDER, a line each; 0 when all are right.

A case is a folder with case.yaml and the files it is about:

    ask: import            # import, check, plan or diagnose
    framework: trl         # trl, openr1, swift or verl
    input: grpo.yaml       # import: the configuration; diagnose: the text of the log
    accelerate: zero3.yaml # import: the accelerate file beside it
    server: rollout.sh     # import: the script that starts the rollout server
    machine: {gpus: 2, nodes: 1, compute_capability: "8.0", memory_gib: 80}      # import; made up
    given: {rollout_gpus: 1, model: some/model, data: p.jsonl, reward: math-verify, set: {micro_batch_size: 4}}
    framework_says: ...    # import: what the framework's own check says against it
    model: {attention_heads: 28}                                                 # import: facts of the model
    options: --gpus 4 --rollout-gpus 1                                           # check and plan: the command's words
    result: {reason: CRASH, message: ..., detail: ...}   # diagnose: the child's own report
    stopped: hang          # diagnose: why the tuner ended the trial
    phase: sync            # diagnose: where it was last; silent_s: 90, without progress for so long
    right:                 # what is right; at least one of
      legal: true          # not refused
      refused: [words]     # refused; the words stand in the sentence, "a | b" asks for one of them
      said: [words]        # stand in all that was said
      never: [words]       # stand nowhere
      rows: 64             # rows per update
      knobs: {zero_stage: 3}            # of the baseline; "nothing": not set
      passthrough: {key: value}         # what every trial is given
      exported: {run.sh: [words]}       # of import: words in the files that the baseline is exported as
      reason: OOM          # with pool, phase, suggests: [words]
      fits: likely         # of a plan: something is; or "not likely"
      peak_gib: [40, 60]   # of its first configuration; measured_gib: 48.1 lies in its interval

Nothing is started: keys of TRL and ms-swift are those recorded in tests/fixtures.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from benchmarks.cases.asking import asked
from benchmarks.cases.case import Case, CaseError, cases_below
from benchmarks.cases.judging import wrong

WIDEST = 300
"""Characters of a sentence on a line."""


def main(words: list[str]) -> int:
    """The exit code: 0 all right, 1 some wrong, 2 a case that cannot be read."""
    made = argparse.ArgumentParser(
        prog="python -m benchmarks.cases", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("folder", type=Path)
    made.add_argument("--json", action="store_true", help="one document: cases with what is wrong with each")
    options = made.parse_args(words)
    try:
        found = {str(case.folder): _put(case) for case in cases_below(options.folder)}
    except CaseError as error:
        print(f"benchmarks.cases: {error}", file=sys.stderr)
        return 2
    bad = sum(bool(sentences) for sentences in found.values())
    if options.json:
        print(json.dumps({"cases": len(found), "wrong": bad, "answers": found}, indent=1))
    else:
        for name, sentences in found.items():
            said = " ".join("; ".join(sentences).split())
            print(f"wrong  {name}: {said[:WIDEST]}" if sentences else f"right  {name}")
        print(f"{len(found) - bad} of {len(found)} right")
    return 1 if bad else 0


def _put(case: Case) -> list[str]:
    """What is wrong; a fault of the product is told like a wrong answer, so that the other cases are still put."""
    try:
        answer = asked(case)
    except CaseError:
        raise
    except Exception as error:
        return [f"the product crashed: {type(error).__name__}: {error}"]
    return wrong(case, answer)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
