"""Tables computed by a seeded function, for the tests of what reads them. Nothing in them was measured.

They say so themselves (``Header.synthetic``), and never go where recorded tables are.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations, product

from autotune.domain import Configuration, Trial, TrialKind, TrialState
from autotune.tables.table import Header, RecordedTable, TableRow
from search_spaces.configuration import KnobValue
from search_spaces.knobs.model import Restart
from search_spaces.knobs.restart import restart_between
from tests.support import factories as f

KNOBS: Mapping[str, Sequence[KnobValue]] = {
    "micro_batch_size": (1, 2, 4, 8),
    "gradient_checkpointing": (True, False),
    "optimizer": ("adamw_torch_fused", "adamw_torch"),
    "logprob_token_chunk": (256, 1024, 4096),
    "logprob_rows": (1, 2, 4),
    "attn_implementation": ("sdpa", "eager"),
}
"""288 combinations; only the last of them needs another process."""
COLD_S, WARM_S = 20.0, 2.0
LENGTHS = (8, 8, 16, 16, 16, 24, 40, 128)
"""Heavy-tailed: the longest is four times the mean."""


def table(
    *,
    seed: int = 0,
    knobs: Mapping[str, Sequence[KnobValue]] = KNOBS,
    interaction: float = 0.4,
    oom_from: float = 0.7,
    repeats: int = 3,
    top: int = 20,
    noise: float = 0.004,
    phases: Mapping[str, float] = f.SHARES,
    synthetic: bool = True,
    device: str = "cpu",
    name: str = "synthetic",
) -> RecordedTable:
    """All combinations of ``knobs``, in an order that spares restarts.

    Args:
        seed: of effects and noise.
        knobs: names and values; micro_batch_size and attn_implementation have to be among them.
        interaction: standard deviation of what each pair of values adds to log cycle time; of one value it is 0.2.
        oom_from: the share of rows, by the memory they need, that fit; those that need as much as the last one too.
        repeats: of each of the ``top`` fastest.
        top: how many are repeated.
        noise: standard deviation of a cycle's logarithm.
        phases: share of the cycle by phase.
        synthetic: what the header says of itself.
        device: on which all ran; on a GPU a process runs several rows.
        name: of the table.
    """
    chance = random.Random(seed)
    names = list(knobs)
    rows = sorted((dict(zip(names, values, strict=True)) for values in product(*knobs.values())), key=_process)
    effects = {(n, v): chance.gauss(0.0, 0.2) for n in names for v in knobs[n]}
    pairs = {
        ((a, x), (b, y)): chance.gauss(0.0, interaction)
        for a, b in combinations(names, 2)
        for x in knobs[a]
        for y in knobs[b]
    }
    needs = [_need(row) for row in rows]
    limit = sorted(needs)[max(0, math.ceil(oom_from * len(rows)) - 1)]
    seconds = [10.0 * math.exp(_log(row, effects, pairs)) for row in rows]
    configurations = [_configuration(row) for row in rows]
    feasible = [i for i in range(len(rows)) if needs[i] <= limit]
    baseline = max(feasible, key=lambda i: seconds[i])
    fastest = sorted(feasible, key=lambda i: seconds[i])[:top]
    order = [baseline, *(i for i in range(len(rows)) if i != baseline)]
    made, before = [], None
    for number, i in enumerate(order):
        cold = before is None or restart_between(before, configurations[i]) > Restart.NONE
        kind = TrialKind.BASELINE if number == 0 else TrialKind.SEARCH
        started = COLD_S if cold else WARM_S
        if i in feasible:
            trial = _ok(number, kind, configurations[i], seconds[i], started, phases, noise, chance)
        else:
            trial = f.failed(number, kind=kind, configuration=configurations[i], startup={"load": started})
            trial = trial.with_(seconds=started + 5.0)
        again = repeats if i in fastest else 0
        repeated = tuple(
            _ok(n, TrialKind.VERIFY, configurations[i], seconds[i], COLD_S, phases, noise, chance)
            for n in range(10_000 + 100 * number, 10_000 + 100 * number + again)
        )
        made.append(TableRow(trial, same_learning=True, repeats=repeated))
        before = configurations[i] if i in feasible else None
    return RecordedTable(_header(knobs, configurations[baseline], synthetic, device, name), tuple(made), name)


def _process(row: Mapping[str, KnobValue]) -> str:
    return str(row["attn_implementation"])


def _configuration(row: Mapping[str, KnobValue]) -> Configuration:
    micro = int(row["micro_batch_size"])
    return f.configuration(**{**row, "gradient_accumulation_steps": f.ROWS // micro})


def _need(row: Mapping[str, KnobValue]) -> float:
    kept = 1.0 if row.get("gradient_checkpointing") else 3.0
    return float(row["micro_batch_size"]) * kept


def _log(
    row: Mapping[str, KnobValue],
    effects: Mapping[tuple[str, KnobValue], float],
    pairs: Mapping[tuple[tuple[str, KnobValue], tuple[str, KnobValue]], float],
) -> float:
    alone = sum(effects[item] for item in row.items())
    return alone + sum(pairs[a, b] for a, b in combinations(row.items(), 2))


def _ok(
    number: int,
    kind: TrialKind,
    configuration: Configuration,
    seconds: float,
    started: float,
    phases: Mapping[str, float],
    noise: float,
    chance: random.Random,
) -> Trial:
    durations = [seconds * math.exp(chance.gauss(0.0, noise)) for _ in range(3)]
    cycles = tuple(
        f.cycle(i, seconds=s, lengths=LENGTHS, phases={n: share * s for n, share in phases.items()})
        for i, s in enumerate(durations)
    )
    return f.finished(
        number,
        kind=kind,
        state=TrialState.COMPLETE,
        configuration=configuration,
        cycles=3,
    ).with_(cycles=cycles, startup={"load": started}, seconds=started + sum(durations))


def _header(
    knobs: Mapping[str, Sequence[KnobValue]], baseline: Configuration, synthetic: bool, device: str, name: str
) -> Header:
    return Header(
        study=name,
        framework="trl",
        model="small",
        resources=replace(f.resources(), device=device, gpus=int(device == "cuda")),
        space={"knobs": {n: list(values) for n, values in knobs.items() if len(values) > 1}},
        baseline=baseline,
        rows_per_update=f.ROWS,
        max_prompt_length=f.MAX_PROMPT,
        max_completion_length=f.MAX_COMPLETION,
        protocol=f.protocol(lengths=LENGTHS),
        memory_limit=8 * f.GIB,
        synthetic=synthetic,
    )
