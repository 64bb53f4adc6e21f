"""Reads the user's configuration, model, prompts and rewards, and tries them in the training interpreter."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from autotune.domain import Resources
from autotune.errors import UsageError
from autotune.frameworks import Integration, Source, framework_named
from autotune.specification.build import model_digest, refuse_server
from autotune.specification.interpreter import Describes, Interpreter
from autotune.specification.request import CPU_SIZE, Request, ResolvedRequest, gpu_size, with_defaults
from autotune.specification.user_config import with_config
from autotune.specification.user_input import is_folder, sha256_of
from autotune.wording.text import clean
from search_spaces import legality
from search_spaces.batch import training_gpus
from search_spaces.knobs import key_of
from search_spaces.yaml_text import MAX_BYTES
from trainer.child.contract import Result, encode, write_atomic
from trainer.frameworks.common.config_entries import Imported, located
from trainer.frameworks.common.fields import Field

Talk = Callable[[str], None]


def resolve_request(
    request: Request, python: Describes, machine: Resources, bundled: str = "", talk: Talk = lambda _: None
) -> ResolvedRequest:
    """Reads the request's configuration and fills in defaults; ``talk`` receives notes that may surprise the user.
    Raises ``UsageError``: the configuration is refused, or something is missing; ``MachineError``: the interpreter
    fails."""
    if request.config is not None:
        request = _configured(request, python, machine, talk)
    size = gpu_size(machine.gpus, training_gpus(request.baseline, machine)) if machine.gpus else CPU_SIZE
    return with_defaults(request, size, bundled)


def _configured(request: Request, python: Describes, machine: Resources, talk: Talk) -> Request:
    name = request.config_name
    framework = framework_named(request.framework)
    beside = (request.accelerate, request.accelerate_name, request.server, request.server_name)
    source = Source(request.config or "", name, *beside)
    files = read_files(framework.named_files(source), request.accelerate_name or name, Path(request.folder))
    keys = framework.read_keys(source, files)
    ranks = _ranks(framework, keys, request, machine)

    def understood(fields: Mapping[str, Field]) -> Imported:
        return framework.import_config(source, fields, ranks, files)

    fields = _described(framework, keys, python, name, understood) if framework.describes else framework.fields_of({})
    imported = understood(fields)
    request = _split(framework, imported, request, machine, talk)
    for said in imported.notes:
        talk(said)
    knobs = {**imported.knobs, **request.baseline}
    for knob in ("rollout_engine", "rollout_mode") if "rollout_gpus" in request.baseline else ():
        if imported.knobs.get(knob, knobs.get(knob)) != knobs.get(knob):
            own = key_of(knob, framework.name)
            talk(located(f"{own}: --rollout-gpus goes before it, and says a rollout server", name, imported.lines))
    training = training_gpus(knobs, machine) if machine.gpus else ranks
    launched, counted = framework.launched(imported), training + int(knobs.get("rollout_gpus", 0))
    if launched and not training <= launched <= counted and request.rows_per_update is None:
        other = _as_it_is(machine, machine.total_gpus - training + launched) if launched < training else ""
        talk(
            f"{name} starts {launched} training processes, a trial here {training}, with the same rows per update; "
            f"{other or 'other rows are said with --rows-per-update'}"
        )
    return with_config(request, imported, fields, training)


def _as_it_is(machine: Resources, gpus: int) -> str:
    """Returns command-line options that hold ``gpus`` GPUs of the machine's nodes; empty if no options do."""
    nodes, rest = divmod(gpus, machine.gpus)
    if machine.nodes > 1 and nodes and not rest:
        return f"--nodes {nodes} measures it as it is"
    each, rest = divmod(gpus, machine.nodes)
    return "" if rest or not each else f"--gpus {each} measures it as it is"


def _described(
    framework: Integration,
    keys: Mapping[str, Any],
    python: Describes,
    name: str,
    understood: Callable[[Mapping[str, Field]], Imported],
) -> Mapping[str, Field]:
    """Returns the keys that the framework takes. Raises ``UsageError``: framework or reader refuses the file's keys."""
    known = python.known_fields(framework.name)
    if known is not None:  # most mistakes are found without asking again
        understood(framework.fields_of(known))
    answer = python.describe(keys, framework.name)
    fields = framework.fields_of(answer.data["fields"])
    if not answer.ok:
        raise UsageError(located(answer.message, name, understood(fields).lines))
    return fields


def _ranks(framework: Integration, keys: Mapping[str, Any], request: Request, machine: Resources) -> int:
    """Returns the number of training processes, without the GPUs that the command line gives a rollout server."""
    own = {"rollout_engine": "vllm", "rollout_mode": "server"} if framework.serves(keys) else {}
    return training_gpus({**own, **request.baseline}, machine)


def _split(framework: Integration, imported: Imported, request: Request, machine: Resources, talk: Talk) -> Request:
    """Returns the request with the GPUs of a rollout server, on which the rows per update depend.

    A file says that there is a server. Its number of GPUs comes from the command that starts it, from
    ``--rollout-gpus``, or from the number of training processes: the other GPUs are the server's. Raises
    ``UsageError``: the number is unknown, or a trial cannot have a server.
    """
    knobs = {**imported.knobs, **request.baseline}
    refuse_server(framework, knobs, machine, request.config_name, imported.lines)
    if not legality.Case(knobs, machine).server or "rollout_gpus" in knobs:
        return request
    if machine.gpus == 0:  # legality says that a server needs a GPU
        return request
    key, left = key_of("rollout_mode", framework.name), machine.gpus - framework.launched(imported)
    if 0 < left < machine.gpus:
        said = f"{key} server: {machine.gpus - left} of {machine.gpus} GPUs train, so the server has the other {left}"
        talk(located(said, request.config_name, imported.lines))
        return replace(request, baseline={**request.baseline, "rollout_gpus": left})
    others = f"say with --rollout-gpus how many of the {machine.gpus} GPUs are its; the others train"
    alone = f"the server needs a GPU of its own, and one is held; write {key}: colocate"
    sentence = f"{key} server: {others if machine.gpus > 1 else alone}"
    raise UsageError(located(sentence, request.config_name, imported.lines))


def read_files(named: Mapping[str, tuple[str, int]], name: str, folder: Path) -> dict[str, str]:
    """Returns the text by key of the files a configuration names, looked up from ``folder`` as the framework does.

    ``named``: key -> (path, line), from ``Integration.named_files``. Raises ``UsageError``: a file cannot be read.
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


def prepared_prompts(request: ResolvedRequest, python: Interpreter, found: Result, talk: Talk) -> Result:
    """Writes and measures the prompts; tells the user how many of a larger dataset are used."""
    local = is_folder(request.model)
    payload = {
        "model": request.model,
        "framework": request.framework,
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


def _prompts_of(request: ResolvedRequest) -> dict[str, Any]:
    if request.data:
        return {"data": request.data, "data_sha256": sha256_of(request.data)}
    if request.dataset:
        return {"dataset": encode(request.dataset)}
    options = dict(request.task_options)
    return {"task": {"name": request.task, "size": request.prompts, "seed": request.seed, "options": options}}


def keep_prompts(home: Path, written: Path, sha256: str) -> Path:
    """Copies the prompts to a path of their own digest, which no later preparation overwrites; returns the path."""
    kept = home / "prompts" / f"{sha256[:16]}.jsonl"
    if not kept.is_file() or sha256_of(kept) != sha256:
        write_atomic(kept, written.read_text(encoding="utf-8"))
    return kept
