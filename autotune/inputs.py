"""The user's configuration, model, prompts and rewards, read and tried in the training interpreter."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from autotune.domain import Resources
from autotune.errors import UsageError
from autotune.interpreter import Interpreter
from autotune.preparation import model_digest
from autotune.request import CPU_SIZE, GPU_SIZE, Complete, Request, completed
from autotune.user_config import with_config
from autotune.user_input import is_folder, sha256_of
from trainer.child.contract import Result, encode, write_atomic
from trainer.frameworks.trl import import_config

Talk = Callable[[str], None]


def complete(request: Request, python: Interpreter, machine: Resources, bundled: str = "") -> Complete:
    """The request with its configuration read and nothing left open.

    Raises:
        UsageError: the configuration is refused, by us or by the framework, or something is lacking.
        MachineError: the interpreter cannot say what the framework takes.
    """
    if request.config is not None:
        request = _configured(request, python, machine.training_processes)
    size = GPU_SIZE if machine.device == "cuda" else CPU_SIZE
    return completed(request, size, bundled)


def _configured(request: Request, python: Interpreter, ranks: int) -> Request:
    text, name = request.config or "", request.config_name
    try:
        keys, known = import_config.read_keys(text, name), python.known_fields()
        if known is not None:  # most mistakes are found without asking again
            import_config.import_config(text, name, import_config.fields_of(known), ranks)
        answer = python.describe(keys)
        fields = import_config.fields_of(answer.data["fields"])
        imported = import_config.import_config(text, name, fields, ranks)
    except import_config.ConfigError as error:
        raise UsageError(str(error)) from None
    if not answer.ok:
        raise UsageError(import_config.located(answer.message, name, imported.lines))
    return with_config(request, imported, fields, ranks)


def prepared_prompts(request: Complete, python: Interpreter, found: Result, talk: Talk) -> Result:
    """The prompts, written and measured; tells how many of a larger dataset were taken."""
    local = is_folder(request.model)
    payload = {
        "model": request.model,
        "max_prompt_length": request.max_prompt_length,
        "rewards": encode(request.rewards),
        "passthrough": encode(request.passthrough),
        "folder": request.folder,
        "seed": request.seed,
        **_prompts_of(request),
        # Not read by the child: another model in the same folder, or another stack, is another preparation.
        "model_sha256": model_digest(Path(request.model)) if local else "",
        "packages": found.data.get("packages", {}),
    }
    # What a dataset's name stands for may have changed since the last time.
    keep = not request.dataset
    if not keep or not python.kept("prepare", payload):
        source = request.task or request.data or "the dataset"
        talk(
            f"writing the prompts of {source} and trying the reward" + ("" if local else f"; fetching {request.model}")
        )
    result = python.prepare(payload, keep=keep, far=not local or bool(request.dataset))
    count, total = result.data["count"], result.data["found"]
    if count != total:
        talk(f"{count:,} of {f'{total:,}' if total else 'a stream of'} prompts are used, drawn by --seed")
    return result


def _prompts_of(request: Complete) -> dict[str, Any]:
    if request.data:
        return {"data": request.data, "data_sha256": sha256_of(request.data)}
    if request.dataset:
        return {"dataset": encode(request.dataset)}
    options = dict(request.task_options)
    return {"task": {"name": request.task, "size": request.prompts, "seed": request.seed, "options": options}}


def keep_prompts(home: Path, written: Path, sha256: str) -> Path:
    """A copy under its own digest, which no later preparation writes over."""
    kept = home / "prompts" / f"{sha256[:16]}.jsonl"
    if not kept.is_file():
        write_atomic(kept, written.read_text(encoding="utf-8"))
    return kept
