"""How fast a scripted trial is and what memory it needs: the two formulas, and nothing else decides either.

So a test can say beforehand which configuration is best and which do not fit. Cycles add seeded noise
(``script["noise"]``) to the seconds. Standard library only; Python 3.10 syntax.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainer.child.contract import Phase

MIB = 1 << 20
FLOOR = 400 * MIB
SPEED = {"fp32": 1.0, "bf16": 0.6, "fp16": 0.6, "fp8": 0.5}
WIDTH = {"fp32": 1.0, "bf16": 0.5, "fp16": 0.5, "fp8": 0.5}


@dataclass(frozen=True)
class Shape:
    """The batch algebra of one configuration."""

    micro: int
    rows: int
    """Rows of a cycle."""
    updates: int
    rollout_rows: int
    """Rows generated at once."""
    logprob_rows: int
    checkpointing: bool
    precision: str
    eager: bool

    @staticmethod
    def of(configuration: Mapping[str, Any], rows_per_update: int) -> Shape:
        micro = int(configuration.get("micro_batch_size", 1))
        accumulation = int(configuration.get("gradient_accumulation_steps", max(1, rows_per_update // micro)))
        steps = int(configuration.get("steps_per_generation", accumulation))
        updates = max(1, steps // accumulation)
        return Shape(
            micro=micro,
            rows=rows_per_update * updates,
            updates=updates,
            rollout_rows=min(micro * steps, rows_per_update * updates),
            logprob_rows=int(configuration.get("logprob_rows", micro)),
            checkpointing=bool(configuration.get("gradient_checkpointing", False)),
            precision=str(configuration.get("precision", "fp32")),
            eager=configuration.get("attn_implementation") == "eager",
        )


def chunks(lengths: Sequence[int], size: int) -> list[Sequence[int]]:
    return [lengths[i : i + size] for i in range(0, len(lengths), size)]


def computed_tokens(shape: Shape, lengths: Sequence[int], prompt: int) -> int:
    """Each micro-batch is padded to its longest row."""
    return sum(len(rows) * (prompt + max(rows)) for rows in chunks(lengths, shape.micro))


def phase_seconds(
    configuration: Mapping[str, Any], rows_per_update: int, lengths: Sequence[int], prompt: int
) -> dict[str, float]:
    """THE performance formula: noiseless seconds of one cycle by phase.

    generate  per rollout: longest row x (1 ms + 0.02 ms x rows at once) x precision
    reward    0.5 ms x rows
    logprob   padded tokens x 0.05 ms x (1 + 2 / logprob_rows) x precision x attention
    update    padded tokens x 0.2 ms x (1 + 1 / micro_batch_size) x 1.33 if checkpointing x precision x attention
    sync      5 ms x updates
    idle      1 % of all that

    precision: fp32 1, bf16 and fp16 0.6, fp8 0.5. attention: 1.15 for eager, else 1.
    """
    shape = Shape.of(configuration, rows_per_update)
    work = SPEED[shape.precision] * (1.15 if shape.eager else 1.0)
    tokens = computed_tokens(shape, lengths, prompt)
    rollouts = chunks(lengths, shape.rollout_rows)
    seconds = {
        Phase.GENERATE: sum(max(r) * (1e-3 + 2e-5 * len(r)) for r in rollouts) * SPEED[shape.precision],
        Phase.REWARD: 5e-4 * len(lengths),
        Phase.LOGPROB: tokens * 5e-5 * (1 + 2 / shape.logprob_rows) * work,
        Phase.UPDATE: tokens * 2e-4 * (1 + 1 / shape.micro) * (1.33 if shape.checkpointing else 1.0) * work,
        Phase.SYNC: 5e-3 * shape.updates,
    }
    seconds[Phase.IDLE] = 0.01 * sum(seconds.values())
    return {phase.value: value for phase, value in seconds.items()}


def phase_memory(
    configuration: Mapping[str, Any], rows_per_update: int, longest: int, prompt: int, floor: int = FLOOR
) -> dict[str, int]:
    """THE memory formula: host bytes by phase, ``longest`` being the longest completion. A trial OOMs in the
    first of these phases that needs more than its limit; the worst case decides, so it happens in the warm-up.

    generate  floor + rows at once x (prompt + longest) x 64 KiB
    logprob   floor + logprob_rows x longest x 256 KiB
    update    floor + micro_batch_size x (prompt + longest) x 2 MiB, x 0.3 if checkpointing, x 0.5 below fp32
    """
    shape = Shape.of(configuration, rows_per_update)
    row = 2 * MIB * (0.3 if shape.checkpointing else 1.0) * WIDTH[shape.precision]
    return {
        Phase.GENERATE.value: floor + shape.rollout_rows * (prompt + longest) * 64 * 1024,
        Phase.LOGPROB.value: floor + shape.logprob_rows * longest * MIB // 4,
        Phase.UPDATE.value: floor + int(shape.micro * (prompt + longest) * row),
    }
