"""One H100 and 3B parameters where a new engine takes three minutes: cold disks and compilation.

True here: a trial in a living process costs a twentieth of one that starts an engine; vLLM is worth its start.
"""

from benchmarks.worlds.models import H100, THREE, spread
from benchmarks.worlds.physics import Starts, World

WORLD = World(
    name="slow-starts", chip=H100, model=THREE, rows=96, prompt=180, max_prompt=384, max_completion=256,
    lengths=spread(96, 30, 256, 150, seed=1), baseline={"micro_batch_size": 4}, launch=1.4e-3, decode_launch=1.2e-3,
    starts=Starts(transformers=(32.0, 24.0), engine=(180.0, 165.0), eager_engine=(105.0, 95.0), kept=6.0),
)  # fmt: skip
