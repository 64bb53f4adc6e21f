"""The user's configuration, model, prompts and rewards, read and tried in the training interpreter."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from autotune.domain import Resources
from autotune.errors import UsageError
from autotune.interpreter import Interpreter
from autotune.preparation import model_digest
from autotune.request import CPU_SIZE, Complete, Request, completed, gpu_size
from autotune.user_config import with_config
from autotune.user_input import is_folder, sha256_of
from autotune.words import clean
from search_spaces.batch import training_gpus
from search_spaces.yaml_text import MAX_BYTES
from trainer.child.contract import Result, encode, write_atomic
from trainer.frameworks.trl import import_config

Talk = Callable[[str], None]


def complete(
    request: Request, python: Interpreter, machine: Resources, bundled: str = "", talk: Talk = lambda _: None
) -> Complete:
    """The request with its configuration read and nothing left open; ``talk`` is told what may not be expected.

    Raises:
        UsageError: the configuration is refused, by us or by the framework, or something is lacking.
        MachineError: the interpreter cannot say what the framework takes.
    """
    if request.config is not None:
        request = _configured(request, python, machine, talk)
    size = gpu_size(machine.gpus, training_gpus(request.baseline, machine)) if machine.gpus else CPU_SIZE
    return completed(request, size, bundled)


def _configured(request: Request, python: Interpreter, machine: Resources, talk: Talk) -> Request:
    text, name = request.config or "", request.config_name
    try:
        files = read_files(import_config.named_files(text, name), name, Path(request.folder))
        keys, known = import_config.read_keys(text, name, files), python.known_fields()
        ranks = _ranks(keys, request, machine)
        if known is not None:  # most mistakes are found without asking again
            import_config.import_config(text, name, import_config.fields_of(known), ranks, files)
        answer = python.describe(keys)
        fields = import_config.fields_of(answer.data["fields"])
        imported = import_config.import_config(text, name, fields, ranks, files)
    except import_config.ConfigError as error:
        raise UsageError(str(error)) from None
    if not answer.ok:
        raise UsageError(import_config.located(answer.message, name, imported.lines))
    _check_split(imported, request, machine)
    for said in imported.notes:
        talk(said)
    return with_config(request, imported, fields, ranks)


def _ranks(keys: Mapping[str, Any], request: Request, machine: Resources) -> int:
    """Processes that train: without those of a rollout server, of which only the command line says how many."""
    served = keys.get("use_vllm") is True and keys.get("vllm_mode") == "server"
    own = {"rollout_engine": "vllm", "rollout_mode": "server"} if served else {}
    return training_gpus({**own, **request.baseline}, machine)


def _check_split(imported: import_config.Imported, request: Request, machine: Resources) -> None:
    """TRL's file says that there is a rollout server, not how many GPUs it has; the rows per update depend on it.

    Raises:
        UsageError: nobody says it.
    """
    knobs = {**imported.knobs, **request.baseline}
    if knobs.get("rollout_engine") != "vllm" or knobs.get("rollout_mode") != "server" or "rollout_gpus" in knobs:
        return
    if machine.gpus == 0:  # legality says that a server needs a GPU
        return
    others = f"say with --rollout-gpus how many of the {machine.gpus} GPUs are its; the others train"
    alone = "the server needs a GPU of its own, and one is held; write vllm_mode: colocate"
    sentence = f"vllm_mode server: {others if machine.gpus > 1 else alone}"
    raise UsageError(import_config.located(sentence, request.config_name, imported.lines))


def read_files(named: Mapping[str, tuple[str, int]], name: str, folder: Path) -> dict[str, str]:
    """Key -> text of the files a configuration names, which are looked up from ``folder`` as TRL does.

    Args:
        named: key -> (path, line), as ``import_config.named_files`` says.
        name: what messages call the configuration.

    Raises:
        UsageError: one cannot be read.
    """
    found = {}
    for key, (path, line) in named.items():
        try:
            with (folder / path).open("rb") as stream:
                found[key] = stream.read(MAX_BYTES + 1).decode("utf-8")
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) and error.strerror else "it is not UTF-8 text"
            raise UsageError(f"{name}, line {line}: {key}: {clean(path)} cannot be read: {why}") from None
        if len(found[key]) > MAX_BYTES:
            raise UsageError(f"{name}, line {line}: {key}: {clean(path)} is larger than {MAX_BYTES} bytes")
    return found


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
