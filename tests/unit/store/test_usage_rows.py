"""What a cycle used, in a database: kept whole, or absent."""

from __future__ import annotations

import json
from dataclasses import replace

from autotune.domain import GpuUse, ProcessUse
from autotune.store.rows import cycle_of, cycle_row
from tests.support import factories as make


def test_what_a_cycles_process_and_gpus_did_is_kept_and_a_cycle_without_it_is_read() -> None:
    process = ProcessUse({"update": 1.5}, {"update": 1.6}, 0.2, 900, 3, 0.1, 12, 4, 0, 0, 2, 1 << 21, 77)
    whole = make.cycle(process=process, gpu={"update": GpuUse(8, 0.45, 0.2, 1980.0, None, 900.5)})
    row = cycle_row(1, whole)
    assert cycle_of(row, whole.phases, whole.peaks) == whole
    old = {name: value for name, value in json.loads(row.rest).items() if name not in ("process", "gpu")}
    row.rest = json.dumps(old)
    assert cycle_of(row, whole.phases, whole.peaks) == replace(whole, process=None, gpu={})
