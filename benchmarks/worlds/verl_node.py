"""Eight H100 and 3B parameters under verl: FSDP shards, the engine sleeps beside it, every trial starts Ray anew.

True here: a wider replica of the engine decodes slower in all; passes of more rows gather weights less often; no trial
goes on in the process of another.
"""

from benchmarks.worlds.models import H100, THREE, spread
from benchmarks.worlds.physics import Starts, World

WORLD = World(
    name="verl-node", chip=H100, model=THREE, rows=512, prompt=220, max_prompt=512, max_completion=1024,
    lengths=spread(512, 80, 1024, 500, seed=3), preset="node-8gpu", gpus=8, framework="verl", budgets=(3600.0,),
    baseline={"micro_batch_size": 2, "rollout_engine": "vllm", "logprob_rows": 2}, launch=1.0e-3,
    starts=Starts(transformers=(60.0, 52.0), engine=(70.0, 55.0), eager_engine=(45.0, 38.0), end=2.5),
)  # fmt: skip
