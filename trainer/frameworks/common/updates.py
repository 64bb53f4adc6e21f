"""How many micro-batches an update has, where a configuration leaves that to its rows. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from search_spaces.configuration import KnobValue


def following(configuration: Mapping[str, KnobValue], rows_per_update: int, ranks: int) -> int | None:
    """The accumulation that keeps an update's rows; ``None`` where it is set, or no micro-batch is.

    Args:
        ranks: training processes with rows of their own.
    """
    micro = configuration.get("micro_batch_size")
    if micro is None or "gradient_accumulation_steps" in configuration:
        return None
    return max(1, rows_per_update // (int(micro) * ranks))
