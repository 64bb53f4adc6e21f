"""Names and signatures of packages, read in their sources: a build for CPUs lacks half of them when it is imported.

``python -m tests.support.source_names SITE_PACKAGES...`` adds the versions found there to ``names.json``, which keeps
those of the lowest and highest supported versions.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

TABLE = Path(__file__).parents[1] / "fixtures" / "names.json"
FILES = {
    "torch": (
        *("torch/cuda/__init__.py", "torch/cuda/memory.py", "torch/cuda/random.py", "torch/cuda/streams.py"),
        *("torch/backends/cuda/__init__.py", "torch/utils/_triton.py"),
    ),
    "vllm": (
        *("vllm/v1/worker/gpu_worker.py", "vllm/v1/worker/gpu_model_runner.py", "vllm/v1/core/sched/scheduler.py"),
        *("vllm/v1/core/kv_cache_manager.py", "vllm/compilation/decorators.py", "vllm/engine/arg_utils.py"),
        *("vllm/entrypoints/llm.py", "vllm/config/compilation.py", "vllm/config/speculative.py"),
        *("vllm/entrypoints/openai/cli_args.py", "vllm/entrypoints/launchers/cli_args.py"),
    ),
    "deepspeed": ("deepspeed/runtime/zero/stage3.py", "deepspeed/runtime/zero/stage_1_and_2.py"),
    "transformers": (
        *("transformers/trainer.py", "transformers/training_args.py"),
        *(f"transformers/generation/continuous_batching/{name}.py" for name in ("continuous_api", "requests")),
    ),
    "nvidia_ml_py": ("pynvml.py",),
    "trl": ("trl/import_utils.py",),
}
CLASSES = frozenset(
    {
        *("Event", "Stream", "Worker", "GPUModelRunner", "Scheduler", "KVCacheManager", "EngineArgs", "LLM"),
        *("CompilationConfig", "SpeculativeConfig", "FrontendArgs", "BaseFrontendArgs"),
        *("DeepSpeedZeroOptimizer_Stage3", "DeepSpeedZeroOptimizer", "Trainer", "GenerationOutput"),
        *("ContinuousBatchingManager", "ContinuousMixin", "BackgroundThreadStatus"),
    }
)


def names(path: Path) -> Iterator[str]:
    """``NAME(ARGUMENTS)`` of functions and methods, ``NAME`` of all else in a module; the newest vLLM it accepts."""
    text = path.read_text(encoding="utf-8")
    yield from re.findall(r'_vllm_base_version <= Version\("([\d.]+)"\)', text)
    for node in ast.parse(text).body:
        if isinstance(node, ast.ClassDef) and node.name in CLASSES:
            yield node.name
            for inner in node.body:
                if isinstance(inner, ast.FunctionDef):
                    yield f"{node.name}.{inner.name}({arguments(inner)})"
                elif isinstance(inner, ast.AnnAssign):
                    yield f"{node.name}.{ast.unparse(inner.target)}"
            own = re.findall(r"^\s+self\.(\w+)(?:: .+)? = ", ast.unparse(node), re.MULTILINE)
            yield from (f"{node.name}.{name}" for name in own)
        elif isinstance(node, ast.FunctionDef):
            yield f"{node.name}({arguments(node)})"
        elif isinstance(node, ast.Assign):  # constants, and what is the same under another name
            yield from (each.id for each in node.targets if isinstance(each, ast.Name) and each.id.startswith("nvml"))
        elif isinstance(node, ast.ImportFrom):
            yield from (alias.asname or alias.name for alias in node.names)


def arguments(function: ast.FunctionDef) -> str:
    """Arguments without annotations, defaults as ``=0``."""
    given = function.args
    plain = [*given.posonlyargs, *given.args]
    required = len(plain) - len(given.defaults)
    words = [each.arg if place < required else f"{each.arg}=0" for place, each in enumerate(plain)]
    words += [f"*{given.vararg.arg}"] if given.vararg else ["*"] if given.kwonlyargs else []
    words += [k.arg if d is None else f"{k.arg}=0" for k, d in zip(given.kwonlyargs, given.kw_defaults, strict=True)]
    return ", ".join([*words, *([f"**{given.kwarg.arg}"] if given.kwarg else [])])


def version(site: Path, package: str) -> str:
    """As the package's own file says, else its metadata's folder."""
    (found,) = [d for d in site.glob("*.dist-info") if re.match(rf"{package}([-_]cpu)?-\d", d.name)]
    return found.name.removesuffix(".dist-info").partition("-")[2].partition("+")[0]


def of(site: Path) -> dict[str, dict[str, list[str]]]:
    """``PACKAGE VERSION`` -> file -> names, of the packages in ``site``."""
    return {
        f"{package} {version(site, package)}": {
            file: sorted(set(names(site / file))) for file in files if (site / file).is_file()
        }
        for package, files in FILES.items()
        if (site / files[0]).is_file()
    }


if __name__ == "__main__":
    table = json.loads(TABLE.read_text()) if TABLE.exists() else {}
    for place in sys.argv[1:]:
        table.update(of(Path(place)))
    lines = (f"{json.dumps(name)}: {json.dumps(table[name])}" for name in sorted(table))
    TABLE.write_text("{" + ",\n".join(lines) + "}\n")
