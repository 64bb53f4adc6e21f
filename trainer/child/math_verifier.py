"""Subprocess of ``math_reward``: reads ``{"gold", "text"}`` lines, writes ``{"score"}`` lines.

Run by file path in the training interpreter. Ends when its input ends.
"""

import os
import sys

if __name__ == "__main__":  # before any other import: the files beside this one must hide nobody's modules
    _HERE = os.path.dirname(os.path.realpath(__file__))
    sys.path[:] = [entry for entry in sys.path if entry and os.path.realpath(entry) != _HERE]

import json
from typing import Optional

INNER_S = 3
"""``math-verify``'s own limit of each step, in seconds; the parent kills a step that ignores it."""


def score(gold_text: str, text: str) -> Optional[float]:
    """Returns 1.0 or 0.0; ``None`` if the correct answer cannot be read."""
    from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse, verify

    gold = parse(gold_text, parsing_timeout=INNER_S) or parse("$" + gold_text + "$", parsing_timeout=INNER_S)
    if not gold:
        return None
    ways = [LatexExtractionConfig(boxed_match_priority=0), ExprExtractionConfig()]
    given = parse(text, extraction_config=ways, parsing_timeout=INNER_S)
    return float(verify(gold, given, timeout_seconds=INNER_S))


def main() -> None:
    """Answers questions until the input ends."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what the package prints must not be taken for an answer
    try:
        import math_verify  # noqa: F401
    except Exception as error:
        answers.write(json.dumps({"ready": False, "error": "%s: %s" % (type(error).__name__, error)}) + "\n")
        return
    answers.write(json.dumps({"ready": True}) + "\n")
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            found = score(asked["gold"], asked["text"])
        except Exception:  # the package raises many kinds on odd mathematics: it is then no correct answer
            found = 0.0
        answers.write(json.dumps({"score": found}) + "\n")


if __name__ == "__main__":
    main()
