"""Two steps of ZeRO on DeepSpeed's CPU accelerator, with and without the optimizer primed.

``python tests/support/offload_steps.py FOLDER``, run by the training interpreter, prints by case whether it was primed,
whether that left the weights as they were, and the weights after two steps of each. An offloaded optimizer is
DeepSpeed's own Adam; its compiled part is made of torch.
"""

from __future__ import annotations

import json
import os
import sys
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

os.environ.update(DS_ACCELERATOR="cpu", RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", LOCAL_SIZE="1")
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import deepspeed
import torch
from deepspeed.ops.op_builder import CPUAdamBuilder

from tests.support.numerics_checks import package

CASES: dict[str, dict[str, Any]] = {
    **{f"stage {stage}": {"stage": stage} for stage in (1, 2, 3)},
    **{f"stage {stage}, offloaded": {"stage": stage, "offload_optimizer": {"device": "cpu"}} for stage in (1, 2, 3)},
    "stage 3, a part offloaded": {
        "stage": 3,
        "offload_optimizer": {"device": "cpu", "ratio": 0.5},
        "sub_group_size": 20,
    },
}


class CompiledAdam:
    """What ``cpu_adam`` does for the optimizer."""

    def create_adam(self, *_: object) -> None: ...

    def destroy_adam(self, *_: object) -> None: ...

    def adam_update(self, *given: Any) -> None:
        _, step, rate, one, two, epsilon, decay, _, weight, gradient, mean, square = given
        weight.mul_(1 - rate * decay)
        mean.lerp_(gradient, 1 - one)
        square.lerp_(gradient * gradient, 1 - two)
        weight.sub_(rate * mean / (1 - one**step) / ((square / (1 - two**step)).sqrt() + epsilon))


def steps(zero: dict[str, Any], prime: Any) -> dict[str, Any]:
    """Trains two steps; ``prime`` is called before them with a trainer's engine."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh(), torch.nn.Linear(4, 4))
    kind = deepspeed.ops.adam.DeepSpeedCPUAdam if "offload_optimizer" in zero else torch.optim.AdamW
    optimizer = kind(model.parameters(), lr=0.1, weight_decay=0.1)
    config = {
        "train_micro_batch_size_per_gpu": 2,
        "zero_optimization": {**zero, "stage3_param_persistence_threshold": 0},
    }
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
    if "ratio" in zero.get("offload_optimizer", {}):
        engine.optimizer.subgroup_to_device[0] = "cuda"  # its own optimizer steps it; here both places are the CPU
    before = weights(engine.module)
    wrapped = SimpleNamespace(optimizer=engine.optimizer)  # as accelerate does
    primed = prime(SimpleNamespace(is_fsdp_enabled=False, is_deepspeed_enabled=True, optimizer=wrapped))
    unchanged = before == weights(engine.module)
    for step in range(2):
        rows = torch.linspace(-1, 1, 8).reshape(2, 4) + step
        engine.backward(engine(rows).square().mean())
        engine.step()
    return {"primed": primed, "unchanged": unchanged, "weights": weights(engine.module)}


def weights(model: Any) -> list[float]:
    with deepspeed.zero.GatheredParameters(list(model.parameters())):
        return [value for each in model.parameters() for value in each.detach().flatten().tolist()]


def main(folder: Path) -> None:
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder / 'meet'}", rank=0, world_size=1)
    import_module("deepspeed.comm.torch").build_shm_op = lambda: None  # it would be compiled
    deepspeed.init_distributed("gloo")
    CPUAdamBuilder.load = lambda *_args, **_kwargs: CompiledAdam()
    prime_optimizer = import_module(package() + ".frameworks.hf_trainer.loop").prime_optimizer
    found: dict[str, Any] = {}
    for name, zero in CASES.items():
        try:
            found[name] = {**steps(zero, prime_optimizer), "plain": steps(zero, lambda _: None)["weights"]}
        except Exception as error:  # one case must not hide the others
            found[name] = {"error": repr(error)}
    (folder / "found.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
