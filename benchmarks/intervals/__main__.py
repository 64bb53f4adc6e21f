"""``python -m benchmarks.intervals``: what the interval of a gain is worth, on simulated studies.

A study is a baseline, six search trials, and rounds of the fastest measured beside the baseline until the gain is
proven, five at most: trials as the product stores them, read by the product. For each noise and each true ratio: how
often the stated interval holds the truth with 0, 1, 2, 3 and 5 rounds at most, how often an answer is called faster
that is not, how soon one is that is, and what that takes. Kept tables (``--json``) are printed as Markdown, several of
them side by side.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.intervals import fitting, report
from benchmarks.intervals.noises import NOISES
from benchmarks.intervals.recordings import recordings
from benchmarks.intervals.scoring import Row, scored


def kept(path: str) -> list[Row]:
    """The rows of a table that ``--json`` printed."""
    try:
        text = Path(path).read_bytes()
        rows: list[Row] = json.loads(gzip.decompress(text) if path.endswith(".gz") else text)["rows"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise argparse.ArgumentTypeError(f"{path}: expected a table that --json printed") from error
    return rows


def main(arguments: Sequence[str]) -> int:
    """Run and print."""
    worlds = "noises:\n" + "\n".join(f"  {name}: {noise.about}" for name, noise in NOISES.items())
    parser = argparse.ArgumentParser(
        "python -m benchmarks.intervals", None, __doc__, worlds, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tables", nargs="*", type=kept, metavar="TABLE", help="kept tables to print, instead")
    parser.add_argument("--studies", type=int, default=300, metavar="N", help="of each noise and true ratio (300)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--noise", action="append", choices=NOISES, metavar="NAME", help="only this; may be repeated")
    parser.add_argument("--fit", action="store_true", help="only print what the recordings say of prior and guard")
    parser.add_argument("--json", action="store_true", help="print the table to keep")
    options = parser.parse_args(arguments)
    if options.studies < 1:
        parser.error("--studies: expected a number of at least 1")
    if options.fit:
        print(fitting.fit_table(recordings()))
        return 0
    tables = options.tables
    if not tables:
        names = options.noise or NOISES
        tables = [[row for name in names for row in scored(name, options.studies, options.seed)]]
    lines = ",\n".join(json.dumps(row) for row in tables[-1])
    print(f'{{"seed": {options.seed}, "rows": [\n{lines}\n]}}' if options.json else report.as_text(tables))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
