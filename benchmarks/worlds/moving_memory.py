"""One L40S and 1.5B parameters where the limit of memory moves: others hold up to 6 GB, gaps up to a fifth.

True here: whether a configuration near the limit fits is chance, drawn for each process; a larger micro-batch never
fits in more processes than a smaller one.
"""

from benchmarks.worlds.models import L40S, ONE_AND_HALF, spread
from benchmarks.worlds.physics import GB, World

WORLD = World(
    name="moving-memory", chip=L40S, model=ONE_AND_HALF, rows=64, prompt=200, max_prompt=384, max_completion=384,
    lengths=spread(64, 40, 384, 230, seed=2), baseline={"micro_batch_size": 2}, fragmentation=(0.02, 0.2),
    others=(0.0, 6.0 * GB),
)  # fmt: skip
