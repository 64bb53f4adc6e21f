"""``autotune export``: writes the recommendation as files and a command."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from autotune.cli import console
from autotune.cli.commands.start_options import RewardOption, SizedOptions
from autotune.cli.option_groups import takes
from autotune.cli.options import HomeOption, JsonOption, StudyArgument
from autotune.cli.source import UrlOption, source_at
from autotune.documents.recommendation import row_json
from autotune.domain import Resources, Study, Trial
from autotune.errors import UsageError
from autotune.settings import HomePaths
from autotune.wording.numbers import rate
from autotune.wording.text import clean, clean_line
from search_spaces.frameworks import SHORT, resolved

if TYPE_CHECKING:
    from autotune.recommendation.export import ExportChoice, Exported
    from autotune.specification.on_paper import Paper


RowOption = Annotated[
    int, typer.Option(min=1, max=2, help="Row 1 keeps the baseline's numerics; row 2 changes numerics or the update.")
]
TrialOption = Annotated[
    int | None, typer.Option(min=0, help="Export the configuration of trial N instead of a row.", metavar="N")
]
NativeOption = Annotated[
    bool, typer.Option("--native-only", help="Export the fastest configuration that needs no patches by autotune.")
]


@dataclass(frozen=True)
class ExportOptions(SizedOptions):
    """Options of ``autotune export``; those of ``SizedOptions`` and ``gpus`` to ``python`` apply with ``--config``."""

    study: StudyArgument = None
    row: RowOption = 1
    trial: TrialOption = None
    form: Annotated[
        str | None, typer.Option("--format", "--framework", help=f"{', '.join(SHORT.values())}. Default: the study's.")
    ] = None
    native_only: NativeOption = False
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Folder to write. Default: ./STUDY-FORMAT.", metavar="DIR")
    ] = None
    force: Annotated[bool, typer.Option("--force", help="Overwrite existing files.")] = False
    optuna: Annotated[
        Path | None,
        typer.Option(help="Write the study's trials as an Optuna storage (SQLite) instead.", metavar="FILE.db"),
    ] = None
    gpus: Annotated[int | None, typer.Option(min=1, help="With --config: GPUs of each node.", metavar="N")] = None
    nodes: Annotated[int, typer.Option(min=1, help="With --config: number of nodes.", metavar="N")] = 1
    model: Annotated[
        str | None, typer.Option(help="Model folder or hub id instead of the file's.", metavar="MODEL")
    ] = None
    data: Annotated[str | None, typer.Option(help="Prompts instead of the file's data set.", metavar="FILE")] = None
    reward: RewardOption = None
    python: Annotated[str, typer.Option(help="Interpreter of the training environment.", metavar="PATH")] = "python3"
    as_json: JsonOption = False
    home: HomeOption = None
    url: UrlOption = None


@takes(ExportOptions)
def export(options: ExportOptions) -> None:
    """Writes the recommendation as your framework's own files.

    If the study began with `start --config`, the export is a copy of that file with only the knobs changed, and the
    difference is shown. With --config, export needs no study: it sets the knobs of --set in your file and checks
    the rules, but measures nothing. --format then names the framework of the file.

    \b
    Examples:
      autotune export
      autotune export my-study --row 2 -o ./run
      autotune export --trial 7 --native-only --force
      autotune export --config grpo.yaml --gpus 8 --set zero_stage=3 -o ./run
      autotune export --optuna study.db && optuna-dashboard sqlite:///study.db
    """
    from autotune.recommendation.export import build, write

    if options.config is not None:
        _export_config(options, options.config)
        return
    with source_at(options.home, options.url) as source:
        read = source.read(options.study)
        found, word = read.study, _format(read.study, options.form)
        if options.optuna is not None:
            _write_optuna(found, read.trials, options.optuna, as_json=options.as_json)
            return
        made = build(read, choice_of(options.row, options.trial, options.native_only), source)
        made = made if source.home else replace(made, prompts=None)
    folder = (options.output or Path(f"{HomePaths(Path()).study(found.id, found.spec.name).name}-{word}")).absolute()
    files = write(made, found, folder, force=options.force)
    console.answer(_document(made, found, folder, files), _export_lines(made, folder, files), as_json=options.as_json)


def _export_config(options: ExportOptions, config: Path) -> None:
    """Writes the user's own configuration with changed knobs; reads no study."""
    from autotune.cli.commands.start_request import paper_request
    from autotune.frameworks import framework_named
    from autotune.specification import on_paper
    from autotune.specification.user_input import data_named, rewards_named

    if options.study or options.optuna or options.trial is not None or options.native_only:
        raise UsageError("--config needs no study; leave out its name, --trial, --native-only and --optuna")
    if options.gpus is None:
        raise UsageError("say with --gpus how many GPUs each node has that --config is written for")
    framework = framework_named(options.form or "trl")
    request = paper_request(
        options,
        framework.name,
        model=options.model or "",
        data="" if options.data is None else data_named(options.data, Path.cwd()),
        rewards=rewards_named(options.reward or (), Path.cwd()),
        python=options.python,
        **options.sizes,
    )
    request = replace(request, checkout=request.checkout or str(Path("open-r1").absolute()))
    paper = on_paper.read(request, Resources(gpus=options.gpus, nodes=options.nodes, device="cuda"), exported=True)
    _write_config(paper, options, (options.output or Path(f"{config.stem}-{SHORT[framework.name]}")).absolute())


def _write_config(paper: Paper, options: ExportOptions, folder: Path) -> None:
    from autotune.recommendation.export import TRAIN, put, shell_line

    made, names = paper.exported(), paper.framework.names
    texts = dict(made.files)
    if made.prompts and options.data is None:
        raise UsageError("a script is exported as a whole file beside its prompts; name them with --data FILE.jsonl")
    if made.prompts:
        texts[f"{names.prompts}/{TRAIN}"] = Path(paper.request.data).read_text(encoding="utf-8")
    files = sorted(str(path.relative_to(folder)) for path in put(texts, folder, force=options.force))
    (folder / names.run).chmod(0o755)
    line = shell_line(made, names.run, folder)
    document = {"measured": False, "folder": str(folder), "files": files, "shell": line, "notes": paper.notes}
    said = [*made.diff.splitlines(), *(f"note     {note}" for note in paper.notes), "figure   none: not measured"]
    said += [f"folder   {folder}", f"files    {', '.join(files)}"]
    said += [f"first    sh {folder / 'server.sh'}"] if made.server else []
    lines = map(clean_line, (*said, f"train    {line}"))
    console.answer({**document, "diff": made.diff or None}, lines, as_json=options.as_json)


def _write_optuna(study: Study, trials: Sequence[Trial], file: Path, *, as_json: bool) -> None:
    from autotune.proposals.optuna_storage import write_storage

    count = write_storage(study, trials, file)
    opened = f"open     optuna-dashboard {shlex.quote(f'sqlite:///{file}')}"
    document = {"study": study.spec.name, "file": str(file), "trials": count}
    console.answer(document, (f"file     {clean(file)}", f"trials   {count}", opened), as_json=as_json)


def _format(study: Study, chosen: str | None) -> str:
    """Returns the framework of the exported files. Raises ``UsageError`` if the study used another framework."""
    own = SHORT.get(study.spec.framework, study.spec.framework)
    if chosen is not None and resolved(chosen) != study.spec.framework:
        raise UsageError(
            f"--format {clean(chosen)}: study {clean(study.spec.name)!r} was measured in {clean(own)}, and its figures "
            "say nothing about another framework; leave --format out"
        )
    return own


def choice_of(row: int, trial: int | None, native_only: bool) -> ExportChoice:
    """Returns the configuration that the options choose. Raises ``UsageError`` if the options contradict each other."""
    from autotune.recommendation.export import ExportChoice

    if trial is not None and native_only:
        raise UsageError("--trial names one configuration, so --native-only cannot choose another; give one of them")
    return ExportChoice(row=row, trial=trial, native_only=native_only)


def _document(exported: Exported, study: Study, folder: Path, files: tuple[Path, ...]) -> dict[str, Any]:
    from autotune.recommendation.export import command_of, missing_prompts, seam_sentence, shell_line

    words, place, environment = command_of(exported.export, folder)
    return {
        "study": study.spec.name,
        "row": row_json(exported.row),
        "folder": str(folder),
        "files": [str(path.relative_to(folder)) for path in files],
        "command": {"argv": words, "folder": place or None, "environment": environment},
        "shell": shell_line(exported.export, exported.framework.names.run, folder),
        "seams": exported.export.seams,
        "launcher": seam_sentence(exported) or None,
        "native_only": None if exported.native is None else row_json(exported.native),
        "diff": exported.export.diff or None,
        "missing": missing_prompts(exported) or None,
    }


def _export_lines(exported: Exported, folder: Path, files: tuple[Path, ...]) -> Iterator[str]:
    from autotune.recommendation.export import missing_prompts, native_sentence, seam_sentence, shell_line

    row, run = exported.row, exported.framework.names.run
    sure = "confirmed" if row.confirmed else "not confirmed"
    if exported.export.diff:
        yield from map(clean_line, exported.export.diff.splitlines())
        yield ""
    yield f"figure   {rate(row.tokens_per_hour)} tokens/hour ({rate(row.low)} to {rate(row.high)}, {sure})"
    for place, change in enumerate(row.changes):
        yield f"{'' if place else 'change':<9}{clean(change)}"
    yield f"folder   {clean(folder)}"
    yield f"files    {', '.join(sorted(clean(path.relative_to(folder)) for path in files))}"
    if seams := seam_sentence(exported):
        yield f"launcher {seams}"
        yield f"         {native_sentence(exported.native)}"
    if missing := missing_prompts(exported):
        yield f"missing  {missing}: the study's prompts stay where it ran; put them there"
    if exported.export.server:
        yield f"first    sh {clean(folder / 'server.sh')}"
    yield f"train    {shell_line(exported.export, run, folder)}"
    if not exported.export.server:
        yield f"or       sh {folder / run}"
