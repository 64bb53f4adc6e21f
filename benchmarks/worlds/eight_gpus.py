"""Eight H100 and 7.6B parameters, TRL with DeepSpeed: baseline ZeRO-3, vLLM beside the training, one row at a time.

True here: whole copies of the model and its optimizer do not fit (ZeRO-0); gathers of ZeRO-3 cost more the more
micro-batches an update has; an engine on GPUs of its own leaves more memory to fewer ranks; offloading the optimizer
costs the host's link.
"""

from benchmarks.worlds.models import H100, SEVEN, spread
from benchmarks.worlds.physics import Starts, World

WORLD = World(
    name="eight-gpus", chip=H100, model=SEVEN, rows=256, prompt=260, max_prompt=512, max_completion=1024,
    lengths=spread(256, 60, 1024, 420), preset="node-8gpu", gpus=8, budgets=(3600.0,), launch=0.9e-3,
    baseline={"micro_batch_size": 1, "rollout_engine": "vllm", "zero_stage": 3, "logprob_rows": 1},
    starts=Starts(transformers=(45.0, 38.0), engine=(110.0, 85.0), eager_engine=(70.0, 58.0), server=30.0, end=2.0),
)  # fmt: skip
