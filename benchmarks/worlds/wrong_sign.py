"""One GPU on which rules of thumb have the wrong sign: short completions, a slow engine, kernels that dislike size.

True here: vLLM generates slower than transformers; passes of more than two rows cost more for each row; keeping
activations is slower than computing them again; eager attention is faster than any other. As after a bad build of
kernels, and with memory that is paged.
"""

from dataclasses import dataclass

from benchmarks.worlds.models import A10, HALF, spread
from benchmarks.worlds.physics import World
from benchmarks.worlds.reading import Run


@dataclass(frozen=True, eq=False)
class WrongSign(World):
    """The physics with those signs turned round."""

    def rows_slow(self, rows: float) -> float:
        """Large passes miss a cache."""
        return float(max(1.0, rows / 2.0) ** 0.45)

    def kept_slow(self, run: Run, tokens: float) -> float:  # noqa: ARG002
        """Kept activations are paged."""
        return 1.7


WORLD = WrongSign(
    name="wrong-sign", chip=A10, model=HALF, rows=128, prompt=90, max_prompt=160, max_completion=64,
    lengths=spread(128, 8, 64, 44), baseline={"micro_batch_size": 16}, launch=0.1e-3, decode_launch=0.25e-3,
    engine_step=34e-3, eager_reads=2.0, attention={"sdpa": 20.0, "flash_attention_2": 28.0, "eager": 1.0}, peak=0.4,
    half=60.0,
)  # fmt: skip
