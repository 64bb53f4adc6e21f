"""Four A100 and 1.5B parameters under verl with completions that differ tenfold, padded to the longest at first.

True here: packing rows computes less than half of the tokens; cutting micro-batches by tokens needs fewer of them than
rows do at the same memory. A user lists verl's knobs for both beside the preset's.
"""

from benchmarks.worlds.models import A100, ONE_AND_HALF, spread
from benchmarks.worlds.physics import Starts, World

WORLD = World(
    name="ragged", chip=A100, model=ONE_AND_HALF, rows=256, prompt=120, max_prompt=512, max_completion=1536,
    lengths=spread(256, 100, 1536, 340, seed=4), preset="node-8gpu", gpus=4, framework="verl", budgets=(3600.0,),
    baseline={"micro_batch_size": 2, "rollout_engine": "vllm", "logprob_rows": 2, "remove_padding": False},
    extra={"remove_padding": [False, True], "dynamic_batching": [False, True],
           "update_tokens": [4096, 8192, 16384, 32768], "logprob_tokens": [8192, 16384, 32768]},
    starts=Starts(transformers=(50.0, 44.0), engine=(65.0, 50.0), eager_engine=(40.0, 34.0), end=2.5),
)  # fmt: skip
