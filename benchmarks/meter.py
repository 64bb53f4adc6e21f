"""What the meter costs: recorded cycles of one trial with the meter on and off in turn.

``PYTHON benchmarks/meter.py DIR CYCLES`` runs, under the training interpreter, the trial whose
``config.json`` is in DIR with 2 x CYCLES recorded cycles, every second one unmetered, and prints how
much longer the metered ones took, with a 95 % interval from neighbouring pairs. One process, so that
both kinds meet the same model, memory and machine.
"""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import json
import math
import statistics
import sys
from pathlib import Path
from typing import Any


def load_child() -> Any:
    """The child's start module, loaded as it is when a trial is started."""
    path = Path(__file__).resolve().parents[1] / "trainer" / "child" / "start.py"
    spec = importlib.util.spec_from_file_location("start_of_child", path)
    if spec is None or spec.loader is None:
        raise ImportError(str(path))
    start = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(start)
    start.load_package()
    return start


def alternate(meter_class: Any) -> None:
    """Let every second cycle run without the meter."""
    begin = meter_class.begin

    def begin_alternating(self: Any, index: int, cycle_kind: str) -> None:
        self.enabled = index % 2 == 0
        begin(self, index, cycle_kind)

    meter_class.begin = begin_alternating


def main(directory: Path, cycles: int) -> None:
    """Run and print."""
    start = load_child()
    contract = importlib.import_module(f"{start.PACKAGE}.contract")
    worker = importlib.import_module(f"{start.PACKAGE}.worker")
    alternate(importlib.import_module(f"{start.PACKAGE}.meter").Meter)
    paths = contract.RunPaths(directory)
    spec = contract.read_spec(paths.config)
    protocol = dataclasses.replace(
        spec.protocol, warmup=2, natural=0, maximum=0, recorded=2 * cycles, drift_limit=1e9, outside_cpu_limit=1e9
    )
    contract.write_atomic(paths.config, contract.dumps(dataclasses.replace(spec, protocol=protocol)))
    paths.metrics.unlink(missing_ok=True)
    result = worker.run(paths, worker.ResultClaim(paths))
    if not result.ok:
        sys.exit(f"{result.reason}: {result.message}")
    lines = [json.loads(line) for line in paths.metrics.read_text().splitlines()]
    recorded = [line for line in lines if line.get("cycle_kind") == "recorded"]
    seconds = [line["seconds"] for line in recorded]
    busy = [sum(line["cpu_seconds"] for line in recorded[first::2]) for first in (0, 1)]
    ratios = [on / off - 1.0 for on, off in zip(seconds[::2], seconds[1::2], strict=True)]
    half = 1.96 * statistics.stdev(ratios) / math.sqrt(len(ratios))
    print(f"cycle {statistics.median(seconds):.3f} s, {len(ratios)} pairs")
    print(
        f"meter on / off - 1: median {statistics.median(ratios):+.2%}, mean {statistics.mean(ratios):+.2%} ± {half:.2%}"
    )
    print(f"the same by CPU seconds, which a busy machine disturbs less: {busy[0] / busy[1] - 1:+.2%}")
    print(f"computing inside the meter's hooks: {result.data['meter_share']:.3%} of the time of all cycles")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
