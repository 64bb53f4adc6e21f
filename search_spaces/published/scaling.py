"""Scales a published baseline to the user's GPUs, at the same rows per update. Pure.

Published configurations are written for their authors' machines. The learning of an update depends on its rows, so the
rows stay; the accumulation makes up for the number of GPUs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from search_spaces.batch import TOLERANCE_PERCENT, Batch, fit, on_policy, rows_allowed
from search_spaces.configuration import Configuration, KnobValue
from search_spaces.errors import SpaceError
from search_spaces.published.model import Published, Scaled

_SERVER = ("rollout_gpus", "rollout_data_parallel_size")


@dataclass(frozen=True)
class _Split:
    """GPUs that train, and GPUs of the rollout server; 0 for an engine that shares the training GPUs."""

    training: int
    serving: int


def scaled(baseline: Published, gpus: int, *, colocated: str = "") -> Scaled:
    """Scales ``baseline`` to ``gpus`` GPUs.

    A rollout server keeps nearly its share of the GPUs; on a single GPU the engine is colocated. The micro-batch is
    the published one if legal, else the largest smaller legal one.

    Args:
        colocated: reason against a rollout server, a sentence without its full stop; empty if a server is possible.

    Raises:
        SpaceError: no GPUs, or a number that cannot share the rows per update; names a number that can.
    """
    if gpus < 1:
        raise SpaceError(f"{baseline.name} is written for GPUs, and none is held")
    for split in _splits(baseline, gpus, colocated):
        batch = _batch(baseline, split.training)
        if batch is not None:
            return _scaled(baseline, gpus, split, batch, colocated)
    rows, off = baseline.rows_per_update, TOLERANCE_PERCENT
    fewer = next((n for n in range(gpus - 1, 0, -1) if _possible(baseline, n, colocated)), 1)
    raise SpaceError(
        f"{baseline.name}: {gpus} GPUs cannot share its {rows} rows per update to within {off} %; hold {fewer}"
    )


def _possible(baseline: Published, gpus: int, colocated: str) -> bool:
    return any(_batch(baseline, split.training) is not None for split in _splits(baseline, gpus, colocated))


def _splits(baseline: Published, gpus: int, colocated: str) -> Iterator[_Split]:
    """Yields splits of ``gpus`` into training and rollout server, nearest to the published share first."""
    if not baseline.rollout_gpus or gpus == 1 or colocated:
        yield _Split(gpus, 0)
        return
    share = gpus * baseline.rollout_gpus / baseline.gpus
    size = int(baseline.configuration.get("tensor_parallel_size", 1))
    serving = [n for n in range(1, gpus) if n % size == 0] or list(range(1, gpus))
    yield from (_Split(gpus - n, n) for n in sorted(serving, key=lambda n: (abs(n - share), n)))


def _batch(baseline: Published, ranks: int) -> Batch | None:
    """Returns the batch of ``ranks`` training GPUs with the largest legal micro-batch; ``None`` if there is none."""
    values, rows, reuse = baseline.configuration, baseline.rows_per_update, baseline.reuse
    group = int(values["num_generations"])
    steps: KnobValue | Fraction = "accumulation" if reuse == 1 else reuse
    for micro in range(min(int(values["micro_batch_size"]), rows), 0, -1):
        accumulation, count = fit(ranks, micro, group, steps, rows, max(reuse, Fraction(1)))
        batch = Batch(ranks, micro, accumulation, group, count)
        if _legal(batch, baseline):
            return batch
    return None


def _legal(batch: Batch, baseline: Published) -> bool:
    whole = batch.rollout_rows % batch.group == 0 and batch.rows % batch.group == 0
    reuse = baseline.reuse
    fresh = batch.steps == reuse * batch.accumulation if reuse > 1 else on_policy(batch.steps, batch.accumulation)
    return whole and fresh and rows_allowed(batch.rows, baseline.rows_per_update, batch.ranks)


def _scaled(baseline: Published, gpus: int, split: _Split, batch: Batch, colocated: str) -> Scaled:
    values: dict[str, KnobValue] = {
        **baseline.configuration,
        "micro_batch_size": batch.micro,
        "gradient_accumulation_steps": batch.accumulation,
        "steps_per_generation": batch.steps,
    }
    lines = [f"{baseline.name} is {baseline.source}.", *baseline.notes, *_rows(baseline, batch)]
    if "logprob_rows" in values:
        lines += _logprob(values, batch.micro * batch.steps)
    lines += _spread(baseline, split, values, colocated or "One GPU has none to spare for a rollout server")
    if gpus != baseline.gpus:
        lines.append(_memory(baseline, gpus))
    return Scaled(baseline, gpus, Configuration(values), batch.rows, tuple(lines))


def _logprob(values: dict[str, KnobValue], rows: int) -> list[str]:
    """Sets ``logprob_rows`` to a divisor of a rank's ``rows``, as verl requires; returns a sentence on the change."""
    was = int(values["logprob_rows"])
    fitting = max(n for n in range(1, min(was, rows) + 1) if rows % n == 0)
    values["logprob_rows"] = fitting
    return [] if fitting == was else [f"logprob_rows {fitting} instead of {was}: a rank has {rows} rows."]


def _rows(baseline: Published, batch: Batch) -> list[str]:
    """Returns sentences that compare rows per update with those of the published run."""
    was = baseline.configuration
    own = (baseline.training_gpus, int(was["micro_batch_size"]), int(was["gradient_accumulation_steps"]))
    here = (batch.ranks, batch.micro, batch.accumulation)
    rows = baseline.rows_per_update
    if own == here:
        return [f"{rows} rows per update, as published: {_product(*own)}."]
    if batch.rows == rows:
        return [f"Its {rows} rows per update are kept: {_product(*here)}; published: {_product(*own)}."]
    off = 100 * (batch.rows / rows - 1)
    return [
        f"{batch.rows} rows per update instead of its {rows} ({off:+.1f} %), which {batch.ranks} training GPUs cannot "
        f"share: {_product(*here)}; published: {_product(*own)}."
    ]


def _product(ranks: int, micro: int, accumulation: int) -> str:
    return f"{ranks} training GPU{'' if ranks == 1 else 's'} × micro-batch {micro} × accumulation {accumulation}"


def _spread(baseline: Published, split: _Split, values: dict[str, KnobValue], colocated: str) -> list[str]:
    """Changes ``values`` to fit the split; returns a sentence for each change."""
    lines = []
    if baseline.rollout_gpus and not split.serving:
        for name in _SERVER:
            values.pop(name, None)
        values["rollout_mode"] = "colocate"
        share = values.pop("gpu_memory_utilization", None)
        own = "" if share is None else f", with the framework's own share of memory instead of the server's {share}"
        lines.append(f"{colocated}, so the engine is colocated{own}.")
    size = int(values.get("tensor_parallel_size", 1))
    room = split.serving or split.training
    fitting = max(n for n in range(1, min(size, room) + 1) if size % n == 0 and room % n == 0)
    if fitting != size:
        values["tensor_parallel_size"] = fitting
        lines.append(f"tensor_parallel_size {fitting} instead of {size}: {room} GPUs generate.")
    if split.serving:
        values["rollout_gpus"] = split.serving
        values["rollout_data_parallel_size"] = split.serving // fitting
        lines.append(
            f"Of {split.training + split.serving} GPUs {split.serving} serve the rollout; "
            f"published: {baseline.rollout_gpus} of {baseline.gpus}."
        )
    return lines


def _memory(baseline: Published, gpus: int) -> str:
    what = "fewer GPUs hold what its authors spread over" if gpus < baseline.gpus else "more GPUs share what was on"
    return f"Whether it fits is measured, not known: {what} {baseline.gpus}."
