"""Chooses and writes the export of a study; only the writing has side effects."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from autotune.domain import RecommendationRow, Study, Trial, TrialState
from autotune.errors import UsageError
from autotune.frameworks import Integration, framework_named
from autotune.recommendation.reading import StudyReading
from autotune.recommendation.recommend import native_best, row_of
from autotune.statistics import evidence
from autotune.statistics.evidence import Row
from autotune.wording.numbers import rate
from autotune.wording.sentences import gain_words, interval_words
from autotune.wording.text import clean
from search_spaces.batch import batch_of, training_gpus
from search_spaces.native import is_native
from trainer.child.contract import NoteRecord, write_atomic
from trainer.frameworks.common.exported import Export, ExportRequest, with_folder

README = "README.md"
TRAIN = "train.jsonl"


@dataclass(frozen=True)
class ExportChoice:
    """Selects the configuration of a study to export."""

    row: int = 1
    """Number of the row: 1 learns as the baseline does, 2 has permitted changes."""
    trial: int | None = None
    """Number of a trial whose configuration is exported instead of a row's."""
    native_only: bool = False


@dataclass(frozen=True)
class Exported:
    """An export with its configuration and evidence."""

    row: RecommendationRow
    framework: Integration
    export: Export
    wanted: ExportRequest
    native: RecommendationRow | None
    """Best configuration that the framework's own settings reproduce, if ``row`` needs more than those."""
    prompts: Path | None
    """File to copy as ``prompts/train.jsonl``; ``None`` if it is not needed, or not on this machine."""

    @property
    def main(self) -> str:
        """Name of the file with the configuration: the framework's own, else the script that trains."""
        names = self.framework.names
        return names.config if names.config in self.export.files else names.run


def chosen(reading: StudyReading, choice: ExportChoice) -> RecommendationRow:
    """Returns the selected configuration with its evidence. Raises ``UsageError`` if it does not exist, or is not known
    to be feasible."""
    study, trials = reading.study, reading.trials
    if choice.trial is not None:
        return _of_trial(study, trials, choice.trial)
    found = reading.recommendation
    if found is None or not found.rows:
        raise UsageError(f"study {clean(study.spec.name)!r} has no feasible configuration yet, so nothing to export")
    if choice.native_only:
        kind = Row.SAME_LEARNING if choice.row == 1 else Row.PERMITTED
        native = native_best(study.spec, trials, kind)
        if native is None:
            raise UsageError("no configuration that the framework's own settings reproduce was feasible")
        top = found.rows[min(choice.row, len(found.rows)) - 1]
        return top if _native(study, top) else native
    if choice.row > len(found.rows):
        raise UsageError(f"the recommendation has no row {choice.row}; its only row is 1")
    return found.rows[choice.row - 1]


def _of_trial(study: Study, trials: Sequence[Trial], number: int) -> RecommendationRow:
    trial = next((t for t in trials if t.number == number), None)
    if trial is None:
        raise UsageError(f"study {clean(study.spec.name)!r} has no trial {number}")
    if not trial.state.is_finished:
        raise UsageError(f"trial {number} has not ended; it can be exported when it has")
    row = row_of(study.spec, trials, trial.configuration)
    if row is not None:
        return row
    if trial.state is TrialState.FAIL and trial.outcome is not None:
        raise UsageError(f"trial {number} failed ({clean(trial.outcome.sentence())}), so there is nothing to export")
    if trial.state is TrialState.PRUNED and trial.outcome is not None:
        raise UsageError(
            f"trial {number} was ended early ({clean(trial.outcome.sentence())}), so what it needs is not known; "
            "it is not exported"
        )
    if trial.emulated:
        raise UsageError(f"trial {number} ran FP8 in emulation, whose speed is nobody's; it is not exported")
    raise UsageError(f"the configuration of trial {number} is not known to hold, so it is not exported")


def export_or_reason(reading: StudyReading, choice: ExportChoice, store: HasNotes) -> Exported | str:
    """Builds the files of an export, or a sentence on why it cannot be exported."""
    try:
        return build(reading, choice, store)
    except UsageError as error:
        return str(error)


def supporting(row: RecommendationRow, trials: Sequence[Trial]) -> list[Trial]:
    """Returns the trials that the figure of ``row`` is based on."""
    return evidence.basis([t for t in trials if t.number in row.trials])


class HasNotes(Protocol):
    """Reads a trial's notes: a store, or a server's client."""

    def notes(self, study_id: int, number: int) -> Sequence[NoteRecord]:
        """Returns the notes of the last attempt, in the order they were added."""


def build(reading: StudyReading, choice: ExportChoice, store: HasNotes) -> Exported:
    """Builds the files of an export. Raises ``UsageError`` if the configuration does not exist, or the framework cannot
    express it."""
    study, trials = reading.study, reading.trials
    row = chosen(reading, choice)
    native = None
    if not _native(study, row):
        native = native_best(study.spec, trials, Row.SAME_LEARNING if choice.row == 1 else Row.PERMITTED)
    framework = framework_named(study.spec.framework)
    notes = [note for number in row.trials for note in store.notes(study.id, number)]
    facts = {note.name: note.data for note in reversed(notes)}
    wanted = replace(wanted_of(study, row, _threads(study, row, facts)), added=framework.added(facts))
    export = framework.export(wanted)
    prompts = Path(study.spec.workload.prompts) if export.prompts else None
    return Exported(row, framework, export, wanted, native, prompts)


def _native(study: Study, row: RecommendationRow) -> bool:
    return is_native(row.configuration, study.spec.framework, study.spec.resources.device)


def wanted_of(study: Study, row: RecommendationRow, threads: int) -> ExportRequest:
    """Returns the request for an export: the study's workload with the configuration of ``row``."""
    spec, workload = study.spec, study.spec.workload
    return ExportRequest(
        title=f"{spec.name}: {rate(row.tokens_per_hour, row.low, row.high)} tokens/hour "
        f"({interval_words(row.low, row.high)}), trials {', '.join(map(str, row.trials))}",
        configuration=row.configuration,
        python=spec.python,
        model=workload.model,
        rewards=workload.rewards,
        rows_per_update=workload.rows_per_update,
        max_completion_length=workload.max_completion_length,
        passthrough=workload.passthrough,
        revision="" if os.path.isabs(workload.model) else workload.model_sha256,
        device=spec.resources.device,
        max_prompt_length=workload.max_prompt_length,
        world_size=training_gpus(row.configuration, spec.resources),
        nodes=spec.resources.nodes,
        seed=spec.seed,
        threads=threads,
        cores=spec.resources.cpu_cores,
        user_config=spec.user_config,
        own_data=spec.user_prompts,
        folder=spec.user_folder,
        accelerate=spec.user_accelerate,
        checkout=spec.checkout,
        vllm=spec.resources.software.get("vllm", ""),
    )


def _threads(study: Study, row: RecommendationRow, facts: Mapping[str, Mapping[str, Any]]) -> int:
    """Returns CPU threads per process: torch's count in the trials' notes, else cores per training process (min. 1)."""
    threads = facts.get("threads", {}).get("torch")
    if isinstance(threads, int) and threads > 0:
        return threads
    return max(1, study.spec.resources.cpu_cores // training_gpus(row.configuration, study.spec.resources))


def missing_prompts(exported: Exported) -> str:
    """Returns the prompts file that the command needs but ``write`` does not write; empty if there is none."""
    needed = exported.export.prompts and exported.prompts is None
    return f"{exported.framework.names.prompts}/{TRAIN}" if needed else ""


def write(exported: Exported, study: Study, folder: Path, *, force: bool = False) -> tuple[Path, ...]:
    """Writes an export into ``folder``; returns the files. Raises the errors of ``put`` and ``texts_of``."""
    files = put(texts_of(exported, study), folder, force=force)
    (folder / exported.framework.names.run).chmod(0o755)
    return files


def texts_of(exported: Exported, study: Study) -> dict[str, str]:
    """Returns name -> text of every file of an export. Raises ``UsageError`` if the prompts cannot be read."""
    texts = {**exported.export.files, README: readme(exported, study)}
    if exported.prompts is not None:
        try:
            texts[f"{exported.framework.names.prompts}/{TRAIN}"] = exported.prompts.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or error
            raise UsageError(f"{exported.prompts} cannot be read: {reason}") from None
    return texts


def put(texts: Mapping[str, str], folder: Path, *, force: bool = False) -> tuple[Path, ...]:
    """Writes each text under its name, which may contain folders; returns the files. Raises ``UsageError`` if a file
    exists and ``force`` is false, or the folder cannot be written."""
    targets = {folder / name: text for name, text in texts.items()}
    try:
        there = [path.name for path in targets if path.exists()]
        if there and not force:
            raise UsageError(f"{folder} already holds {', '.join(sorted(there))}; --force writes over them")
        for path, text in targets.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(path, text)
    except OSError as error:
        where = error.filename or folder
        raise UsageError(f"{where} cannot be written: {error.strerror or error}") from None
    return tuple(targets)


def command_of(export: Export, folder: Path) -> tuple[tuple[str, ...], str, dict[str, str]]:
    """Returns (words, working directory or empty, environment) of the training command of an export in ``folder``."""
    command = export.command
    words = tuple(with_folder(word, str(folder)) for word in command.argv)
    environment = {name: with_folder(value, str(folder)) for name, value in command.environment.items()}
    return words, with_folder(command.folder, str(folder)), environment


def shell_line(export: Export, run: str, folder: Path) -> str:
    """Returns the command for a shell; with a rollout server the script ``run``, which reserves the server's GPUs."""
    if export.server:
        return f"sh {shlex.quote(str(folder / run))}"
    words, place, environment = command_of(export, folder)
    settings = [f"{name}={shlex.quote(value)}" for name, value in environment.items()]
    line = " ".join([*settings, *(shlex.quote(word) for word in words)])
    return f"cd {shlex.quote(place)} && {line}" if place else line


def readme(exported: Exported, study: Study) -> str:
    """Returns the text of the export's README: the figure, its measurement, and the changes."""
    row, spec = exported.row, study.spec
    served = "(with the rollout server running: start `sh server.sh` in another terminal and wait for it)"
    how = "confirmed in fresh processes next to the baseline" if row.confirmed else "from search trials, NOT confirmed"
    lines = [
        f"# {clean(spec.name)}",
        "",
        f"**{rate(row.tokens_per_hour, row.low, row.high)} tokens/hour** ({interval_words(row.low, row.high)}), {how}"
        f"; trials {', '.join(f'#{n}' for n in row.trials)}.",
        "",
        f"    sh {exported.framework.names.run}",
        "",
        *([served, ""] if exported.export.server else []),
        *_prompt_lines(exported),
        f"trains with it. `autotune verify` runs {'both' if exported.export.server else 'this'} and compares.",
        "",
        "## What changed against the baseline",
        "",
        *([f"- `{clean(change)}`" for change in row.changes] or ["Nothing: this is the baseline."]),
    ]
    if row.gain is not None:
        lines += ["", f"Gain: {gain_words(row.gain)}."]
    lines += ["", "## How it was measured", "", *_measured(exported, study)]
    sentence = seam_sentence(exported)
    if sentence:
        head = f"## What `{exported.framework.names.helper}` is for"
        lines += ["", head, "", f"{sentence}.", native_sentence(exported.native)]
    return "\n".join(lines) + "\n"


def _prompt_lines(exported: Exported) -> list[str]:
    missing = missing_prompts(exported)
    line = f"(the prompts are not here: put the study's own into `{missing}`, one JSON object a line)"
    return [line, ""] if missing else []


def _measured(exported: Exported, study: Study) -> list[str]:
    workload = study.spec.workload
    resources = study.spec.resources
    gpus = "one GPU" if resources.total_gpus == 1 else f"{resources.total_gpus} GPUs"
    where = f"{resources.cpu_cores} CPU cores" if resources.device == "cpu" else gpus
    ranks = training_gpus(exported.row.configuration, resources)
    if ranks > 1 or exported.export.server:
        where += f", {ranks} training process{'es' if ranks > 1 else ''}"
    if exported.export.server:
        where += f" and a rollout server on the other {resources.gpus - ranks}"
    batch = batch_of(exported.row.configuration, resources)
    lines = [
        "Tokens/hour counts every completion token once, over whole cycles (generate, reward, update); the first",
        f"batch never counts. {batch.rows} completions per update, recorded completion lengths of at",
        f"most {workload.max_completion_length} tokens, {where}.",
    ]
    if exported.row.worst_case_passed:
        lines.append("A batch of maximum prompt and completion length fits.")
    return lines


def native_sentence(native: RecommendationRow | None) -> str:
    """Describes the best configuration that needs no helper file."""
    if native is None:
        return "No configuration that does without it was feasible."
    sure = "confirmed" if native.confirmed else "not confirmed"
    return (
        f"Without it the best is {rate(native.tokens_per_hour, native.low, native.high)} tokens/hour "
        f"({interval_words(native.low, native.high)}; {sure}): `--native-only` exports it."
    )


def seam_sentence(exported: Exported) -> str:
    """Describes the helper file of the export, without a full stop; empty if there is no helper."""
    names = ", ".join(f"{name} {value}" for name, value in exported.export.seams.items())
    framework = exported.framework
    reasons = [f"{framework.title} has no key for {names}"] if names else []
    reasons += exported.export.parts
    if not reasons:
        return ""
    helper, script = framework.names.helper, framework.own_script
    imported = framework.names.helper_is_imported
    does = f"{helper}, which {script} imports, sees to it" if imported else f"{helper} sees to it and runs {script}"
    return f"{'; '.join(reasons)}: {does}"
