"""A real TRL trial beside a rollout server, without a GPU: run by the training interpreter as the trial's process.

``python tests/support/served_trial.py trial --directory DIR``. One thing is not TRL's own: weights go to the server
through a file and vLLM's ``reload_weights`` instead of NCCL, which takes two GPUs.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import shutil
import sys
from pathlib import Path
from typing import Any

START = Path(__file__).resolve().parents[2] / "trainer" / "child" / "start.py"


def through_a_file(model: str, folder: Path) -> None:
    """Replace what of TRL's client needs a GPU."""
    from safetensors.torch import save_file  # noqa: PLC0415
    from trl.generation.vllm_client import VLLMClient  # noqa: PLC0415

    def update(self: Any, metadata: Any, named_params: Any) -> None:
        folder.mkdir(exist_ok=True)
        for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
            shutil.copy(Path(model) / name, folder / name)
        weights = {name: value.detach().clone().contiguous() for name, value in named_params}
        assert sorted(weights) == sorted(name for name, _, _ in metadata)
        save_file(weights, folder / "model.safetensors")
        arguments = {"method": "reload_weights", "kwargs": {"weights_path": str(folder)}}
        self._post(f"{self.base_url}/collective_rpc", json=arguments)

    VLLMClient.init_communicator = lambda self, device=0: None
    VLLMClient.update_named_params = update


def main(directory: str) -> int:
    spec = importlib.util.spec_from_file_location("start_of_child", START)
    start = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(start)
    start.load_package()
    worker, engine, contract = (
        importlib.import_module(f"{start.PACKAGE}.{name}") for name in ("worker", "frameworks.trl.engine", "contract")
    )
    settings = contract.read_spec(contract.RunPaths(Path(directory)).config)
    engine.before_import(settings.device)
    through_a_file(settings.model, Path(os.getcwd()) / "weights")
    from trl.generation.vllm_generation import VLLMGeneration  # noqa: PLC0415

    engine.sync_by_reload = VLLMGeneration.sync_weights  # what a GPU has; on a CPU only colocated engines are known
    return 0 if worker.main(Path(directory)).ok else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[-1]))
