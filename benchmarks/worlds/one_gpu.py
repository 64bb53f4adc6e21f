"""One A100 and 1.5B parameters, TRL's defaults: a machine as physics has it.

True here: vLLM generates faster than transformers; keeping activations is faster where they fit; passes of one row are
slower than passes of eight.
"""

from benchmarks.worlds.models import A100, ONE_AND_HALF, spread
from benchmarks.worlds.physics import World

WORLD = World(
    name="one-gpu", chip=A100, model=ONE_AND_HALF, rows=128, prompt=150, max_prompt=256, max_completion=320,
    lengths=spread(128, 20, 320, 190), baseline={"micro_batch_size": 8},
)  # fmt: skip
