"""``python -m benchmarks.intervals``: what the interval of a gain is worth, on synthetic studies with recorded noise.

A study is a baseline, six search trials, the fastest of which is truly 1.5 times the baseline, and one to three rounds
of the fastest measured beside the baseline, all read by ``statistics.evidence.gain``. Processes, cycles (three of one
recorded trial, in their order) and the machine's drift from round to round are drawn from a recording: the tables of
benchmarks/tables that measured anything twice. Where a recording has fewer than twenty processes only their spread is
taken, and the shape from the others.

Printed for each recording and number of rounds: how often the 95 % interval holds the truth, how often it proves a true
1.5 times, and its median half width as a logarithm. "new" is the interval of today; "unseen" the same with what is
presumed of processes fitted without this recording; "old" the interval before; "known" proves with the recorded spread
known exactly, which no honest interval does more often by much. Then the recorded study of the H100 read again, and how
often a steady trial loses a cycle as a warm-up. Last, studies that look after each of five rounds: how many call a
leader faster that truly is not, as it is and with 95 % at every look, and by which round a true 1.5 times is proven.

``--limits`` prints instead, for the recordings of GPUs, how often a true 1.5 times is proven (and the truth held) with
more cycles of a process, more processes looked at together, and more known of their spread. ``--earlier`` prints what
one round proves where 0, 1, 3 and 8 earlier studies on the same machine have told of its processes.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from benchmarks.intervals import earlier, limits, report, scoring
from benchmarks.intervals.looks import looked
from benchmarks.intervals.recordings import recordings


def main(arguments: Sequence[str]) -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.intervals", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--studies", type=int, default=200, metavar="N", help="of each recording (200)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fit", action="store_true", help="only print what the recordings say of the prior")
    parser.add_argument("--limits", action="store_true", help="only print what limits the power of one round")
    parser.add_argument("--earlier", action="store_true", help="only print what earlier studies on the machine bring")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of tables")
    options = parser.parse_args(arguments)
    if options.studies < 1:
        parser.error("--studies: expected a number of at least 1")
    found = recordings()
    if options.fit:
        print(report.fit_table(found))
        return 0
    if options.limits:
        print(limits.as_text(list(limits.limits(found, options.studies, options.seed))))
        return 0
    if options.earlier:
        for line in earlier.lines(found, options.studies, options.seed):
            print(line, flush=True)
        return 0
    scores = [scoring.scored(one, found, options.studies, options.seed) for one in found]
    again = scoring.recorded_studies(found)
    warm = scoring.warm_ups(found, options.seed)
    looks = [looked(one, found, options.studies, options.seed) for one in found]
    if options.json:
        print(json.dumps(report.as_json(scores, again, warm, looks), indent=2))
    else:
        print(report.as_text(scores, again, warm, looks))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
