"""What a trial and an exported configuration make TRL build: run by the training interpreter in the export's folder.

``python resolved_training.py TRIAL_DIRECTORY GRPO_YAML`` prints ``{"trial": ..., "script": ...}``: every field of
the resolved ``GRPOConfig`` and what the trainer's model is. Both trainers are TRL's own; the second is the one its
script builds.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import sys
from pathlib import Path
from typing import Any

START = Path(__file__).resolve().parents[2] / "trainer" / "child" / "start.py"


def facts(trainer: Any) -> dict[str, Any]:
    """Plain data of a trainer that could move its speed."""
    model = trainer.accelerator.unwrap_model(trainer.model)
    parameters = list(model.named_parameters())
    return {
        "arguments": {k: repr(v) for k, v in trainer.args.to_dict().items()},
        "dtypes": sorted({str(p.dtype) for _, p in parameters}),
        "trained": sum(p.numel() for _, p in parameters if p.requires_grad),
        "frozen": sum(p.numel() for _, p in parameters if not p.requires_grad),
        "attention": model.config._attn_implementation,
        "reference": trainer.ref_model is not None,
        "beta": trainer.beta,
        "rewards": len(trainer.reward_funcs),
        "batch": [trainer.args.world_size, trainer.args.steps_per_generation, trainer.args.generation_batch_size],
        "prompt": str(trainer.train_dataset[0]["prompt"]),
        "generation": repr(trainer.generation_config),
        "template": repr(trainer.chat_template_kwargs),
    }


def of_trial(directory: Path) -> dict[str, Any]:
    """As ``run.run_trial`` builds it."""
    spec = importlib.util.spec_from_file_location("start_of_child", START)
    start = importlib.util.module_from_spec(spec)  # type: ignore[arg-type]
    spec.loader.exec_module(start)  # type: ignore[union-attr]
    start.load_package()
    contract = importlib.import_module(f"{start.PACKAGE}.contract")
    build = importlib.import_module(f"{start.PACKAGE}.frameworks.trl.build")
    wanted = contract.read_spec(contract.RunPaths(directory).config)
    config, _ = build.configure(wanted, 1, directory)
    model = build.load_model(wanted, config, wanted.model)
    prompts = build.load_prompts(wanted.prompts, 4, 8)
    return facts(build.build_trainer(wanted, config, model, build.rewards_of(wanted), prompts))


def of_script(path: str) -> dict[str, Any]:
    """As TRL's script builds it."""
    import trl  # noqa: PLC0415
    from trl.scripts import grpo  # noqa: PLC0415

    built = []

    class Recorder(trl.GRPOTrainer):  # type: ignore[misc,name-defined]
        def train(self, *_: Any, **__: Any) -> None:
            built.append(self)
            raise KeyboardInterrupt

    trl.GRPOTrainer = Recorder
    try:
        grpo.main(*grpo.make_parser().parse_args_and_config(["--config", path]))
    except KeyboardInterrupt:
        return facts(built[0])
    raise AssertionError("the script did not train")


if __name__ == "__main__":
    os.environ["HF_HUB_OFFLINE"] = "1"
    sys.path.insert(0, os.getcwd())  # as `python -m` has it
    sys.stdout = sys.stderr
    found = {"trial": of_trial(Path(sys.argv[1])), "script": of_script(sys.argv[2])}
    sys.__stdout__.write(json.dumps(found))
