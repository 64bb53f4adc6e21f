"""Names that only a GPU asks of packages exist in the lowest and the highest supported version of each."""

from __future__ import annotations

import ast
import inspect
import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from autotune.machine import nvml
from search_spaces.configuration import KnobValue
from tests.support import source_names, standin_cuda
from tests.support.trl_keys import EVERY
from trainer.child import preload
from trainer.child.frameworks.trl import engine
from trainer.frameworks.trl import server

ROOT = Path(__file__).resolve().parents[3]
CHILD, MACHINE = Path(preload.__file__).parent, Path(nvml.__file__).parent
TABLE: Mapping[str, Mapping[str, list[str]]] = json.loads(source_names.TABLE.read_text())
TORCH, VLLM, DEEPSPEED, TRANSFORMERS, NVML, TRL = (
    [name for name in TABLE if name.startswith(f"{package} ")]
    for package in ("torch", "vllm", "deepspeed", "transformers", "nvidia_ml_py", "trl")
)
RUN = {  # class -> what is called or read of it
    "": ("_try_load_aot_compiled_fn", "_model_hash_key"),
    "LLM": ("wake_up(tags)", "reset_prefix_cache()", "generate()", "sleep(level)"),
    "Worker": ("reload_weights(weights_iterator)", "model_runner"),
    "GPUModelRunner": ("get_model()", "reload_weights(weights_iterator)"),
    "Scheduler": ("schedule()", "_preempt_request(request, timestamp)", "kv_cache_manager"),
    "KVCacheManager": ("usage",),
}
BATCHES = {
    "ContinuousMixin": ("generate_batch(inputs, generation_config=)",),
    "ContinuousBatchingManager": (
        *("add_requests(inputs, max_new_tokens=)", "_use_prefix_sharing"),
        "add_request(input_ids, request_id=, max_new_tokens=, eos_token_id=)",
    ),
    "GenerationOutput": ("error",),
    "Trainer": ("_clip_grad_norm(model)",),
    "": ("is_torch_bf16_gpu_available",),
}
STAGES = {
    "DeepSpeedZeroOptimizer_Stage3": (
        *("fp32_partitioned_groups_flat", "backup_optimizer", "_optimizer_step(sub_group_id)", "swap_optimizer"),
        *("subgroup_to_device", "offload_optimizer"),
    ),
    "DeepSpeedZeroOptimizer": ("single_partition_of_fp32_groups", "cpu_offload"),
}
ASKED = {"vllm": RUN, "deepspeed": STAGES, "transformers": BATCHES}


def known(package: str) -> dict[str, inspect.Signature | None]:
    """Name -> signature; ``None`` of what is no function."""
    found: dict[str, inspect.Signature | None] = {}
    for name in (name for names in TABLE[package].values() for name in names):
        bare, opened, rest = name.partition("(")
        found[bare] = signature(rest[:-1]) if opened else found.get(bare)
    return found


def signature(arguments: str) -> inspect.Signature:
    made: dict[str, Any] = {}
    exec(f"def made({arguments}): ...", made)  # noqa: S102  (a list of names from our own table)
    return inspect.signature(made["made"])


def missing(names: Mapping[str, inspect.Signature | None], place: str, wanted: str) -> str:
    """Why ``wanted`` cannot be had of ``place``: there is no such name, or it takes no such arguments."""
    bare, opened, rest = wanted.partition("(")
    dotted = f"{place}.{bare}".lstrip(".")
    if dotted not in names:
        return f"no {dotted}"
    taken = names[dotted]
    if not opened or taken is None:
        return ""
    words = [word.strip() for word in rest[:-1].split(",") if word.strip()]
    given = [word for word in words if not word.endswith("=")]
    keywords = {word[:-1]: 0 for word in words if word.endswith("=")}
    try:
        first = next(iter(taken.parameters), "")
        taken.bind_partial(*([0] if first == "self" else []), *given, **keywords)
    except TypeError as error:
        return f"{dotted}: {error}"
    return ""


def called(folder: Path, name: str) -> Iterator[tuple[str, str]]:
    """(file, ``NAME(ARGUMENTS)``) of every call in ``folder`` whose function matches ``name``, or of a ``partial``."""
    for path in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            function, given = node.func, node.args
            if ast.unparse(function) == "partial":
                function, given = node.args[0], node.args[1:]
            match = re.fullmatch(name, ast.unparse(function))
            if match and "ctypes" not in ast.unparse(function):
                words = ["0" for _ in given] + [f"{each.arg}=" for each in node.keywords if each.arg]
                yield path.name, f"{match[1]}({', '.join(words)})"


def of_torch_cuda() -> Iterator[tuple[str, str]]:
    """Everything that the child calls of ``torch.cuda`` or ``torch.backends.cuda``."""
    return called(CHILD, r".*\b_?(?:cuda|CUDA)\.(\w+)")


@pytest.mark.parametrize("version", NVML)
def test_what_is_taken_from_the_binding_of_nvml_is_there(version: str) -> None:
    names, used = known(version), sorted(set(called(MACHINE, r".*\bnvml\.(nvml\w+)")))
    assert len(used) > 20
    assert {text: why for _, text in used if (why := missing(names, "", text))} == {}
    read = re.findall(r"\bnvml\.(nvml\w+)", (MACHINE / "nvml.py").read_text())
    assert set(read) <= set(names)


@pytest.mark.parametrize("version", TORCH)
def test_what_is_taken_from_torch_cuda_is_there(version: str) -> None:
    names, used = known(version), sorted(set(of_torch_cuda()))
    assert len(used) > 15
    assert {text: why for _, text in used if (why := missing(names, "", text))} == {}
    assert {question for _, question, _ in preload.ANSWERS} <= set(names)


@pytest.mark.parametrize("version", TORCH)
def test_the_stand_in_has_the_signatures_of_torch_cuda(version: str) -> None:
    names, cuda = known(version), standin_cuda.StandInCuda()
    own = {
        name: getattr(cuda, name) for name in dir(cuda) if callable(getattr(cuda, name)) and not name.startswith("_")
    }
    theirs = {name: made for name, made in own.items() if name in names and names[name] is not None}
    assert {"mem_get_info", "memory_stats", "reset_peak_memory_stats", "empty_cache", "synchronize"} <= set(theirs)
    for name, made in theirs.items():
        assert list(inspect.signature(made).parameters) == list(names[name].parameters), name  # type: ignore[union-attr]
    assert list(inspect.signature(cuda.Event).parameters) == list(names["Event.__new__"].parameters)[1:4]  # type: ignore[union-attr]


@pytest.mark.parametrize("version", [*VLLM, *DEEPSPEED, *TRANSFORMERS])
def test_what_is_called_and_read_of_a_package_is_there(version: str) -> None:
    names, asked = known(version), ASKED[version.split(maxsplit=1)[0]]
    assert [why for place, wanted in asked.items() for each in wanted if (why := missing(names, place, each))] == []
    ended = {f"{place}.fatal_error" for place in ("ContinuousBatchingManager", "BackgroundThreadStatus")}
    assert len(ended & set(names)) == (version in TRANSFORMERS), "the error that ended the thread of batches"


@pytest.mark.parametrize("version", VLLM)
def test_every_argument_of_the_engine_is_there(version: str) -> None:
    names = known(version)
    given = {"EngineArgs": set(engine.ENGINE_SEAMS.values()) | {"compilation_config", "speculative_config"}}
    given["CompilationConfig"] = {*engine.COMPILATION.values(), "cudagraph_capture_sizes"}
    given["SpeculativeConfig"] = set(engine.SPECULATION.values())
    assert [
        f"{place}.{name}" for place, all_ in given.items() for name in sorted(all_) if f"{place}.{name}" not in names
    ] == []


SERVED: Mapping[str, KnobValue] = {
    "rollout_engine": "vllm",
    "rollout_mode": "server",
    "rollout_gpus": 1,
    **EVERY,
    "speculative_decoding": "ngram",
    "speculative_tokens": 2,
    "speculative_lookup": 2,
}


@pytest.mark.parametrize("version", VLLM)
def test_every_option_of_the_server_is_there(version: str) -> None:
    given = {"longest": 8, "name": "n", "revision": "r", "passthrough": {"trust_remote_code": True}}
    argv = server.server_command(SERVED, "m", "python", 1, vllm=version.split()[1], **given)
    fields = {name.rpartition(".")[2] for name in known(version) if "Args." in name}
    options = [word[2:].removeprefix("no-").replace("-", "_") for word in argv if word.startswith("--")]
    assert len(options) > 20
    assert [each for each in options if each not in fields and f"no_{each}" not in fields] == []


def test_the_table_holds_the_ends_of_the_windows() -> None:
    versions = [tuple(map(int, name.split()[1].split(".")[:2])) for name in VLLM]
    low, high = engine.SUPPORTED
    assert (versions[0], versions[-1]) == (low, (high[0], high[1] - 1))
    assert VLLM[-1].split()[1] in TABLE[TRL[-1]]["trl/import_utils.py"], "the newest vLLM that TRL accepts"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needs = map(Requirement, [*project["dependencies"], *project["optional-dependencies"]["trl"]])
    takes = {need.name: need.specifier for need in needs}
    for table, name in ((TRANSFORMERS, "transformers"), (NVML, "nvidia-ml-py")):
        assert all(each.split()[1] in takes[name] for each in table)
    locks = "".join((ROOT / "requirements" / f"{name}.txt").read_text() for name in ("train-gpu", "dev"))
    for name in (TORCH[-1], VLLM[-1], DEEPSPEED[-1], TRANSFORMERS[-1], NVML[-1], TRL[-1]):
        assert f"{name.replace('_', '-').replace(' ', '==')}" in locks, "python -m tests.support.source_names"


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        ("self._cuda.mem_get_infos()", "no mem_get_infos"),
        ("torch.cuda.memory_stats(0, True, 3)", "memory_stats: too many positional arguments"),
        ("torch.cuda.empty_cache(all=True)", "empty_cache: got an unexpected keyword argument 'all'"),
    ],
)
def test_a_wrong_name_or_argument_would_be_seen(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, fault: str, why: str
) -> None:
    (tmp_path / "child.py").write_text(fault)
    monkeypatch.setitem(globals(), "CHILD", tmp_path)
    ((_, text),) = of_torch_cuda()
    assert missing(known(TORCH[-1]), "", text) == why
