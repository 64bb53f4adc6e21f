"""``autotune space``: shows the knobs of a search space, and its legal combinations on a machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

import typer

from autotune.cli import console
from autotune.cli.commands.start_options import FrameworkOption, RowsOption
from autotune.cli.option_groups import takes
from autotune.cli.options import JsonOption
from autotune.cli.screens.space import counted, knob_table, space_json
from autotune.errors import UsageError
from autotune.wording.text import clean
from search_spaces import legality
from search_spaces.baseline import fitted
from search_spaces.batch import accumulated, served_by
from search_spaces.configuration import Configuration, KnobValue, ModelFacts, Resources
from search_spaces.errors import SpaceError

if TYPE_CHECKING:
    from search_spaces.space import SearchSpace

app = typer.Typer(
    name="space",
    help="Shows a search space, and checks configurations against rules.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

NodesOption = Annotated[int, typer.Option(min=1, max=65536, help="Number of nodes.")]
GenerationsOption = Annotated[int | None, typer.Option(min=2, max=10**9, help="Completions per prompt.")]


@dataclass(frozen=True)
class MachineOptions:
    """Options of a space and of the machine it is checked for."""

    space: Annotated[
        str | None,
        typer.Argument(metavar="[SPACE]", help="Preset or YAML file. Default: the preset for the machine."),
    ] = None
    framework: FrameworkOption = "trl"
    gpus: Annotated[int, typer.Option(min=0, max=65536, help="GPUs of each node; 0 runs on the CPU.")] = 0
    nodes: NodesOption = 1
    ranks: Annotated[int | None, typer.Option(min=1, max=65536, help="Training processes on a CPU. Default: 1.")] = None


@dataclass(frozen=True)
class ShowOptions(MachineOptions):
    """All options of ``autotune space show``."""

    rows_per_update: RowsOption = None
    as_json: JsonOption = False


@dataclass(frozen=True)
class CheckOptions(MachineOptions):
    """All options of ``autotune space check``."""

    rollout_gpus: Annotated[int | None, typer.Option(min=0, max=65536, help="GPUs of the rollout server.")] = None
    rows_per_update: RowsOption = None
    num_generations: GenerationsOption = None
    micro_batch: Annotated[int | None, typer.Option(min=1, help="Completions per rank and backward pass.")] = None
    compute_capability: Annotated[
        str | None, typer.Option(metavar="X.Y", help="CUDA compute capability of the GPUs, such as 8.9 for an L20.")
    ] = None
    attention_heads: Annotated[int | None, typer.Option(min=1, help="Attention heads of the model.")] = None
    max_length: Annotated[int | None, typer.Option(min=1, help="Longest prompt plus completion, in tokens.")] = None
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KNOB=VALUE", help="Knob of one configuration to check; may be repeated."),
    ] = None
    as_json: JsonOption = False


@dataclass(frozen=True)
class SpaceQuestion:
    """The machine and the configuration for which a space is checked."""

    resources: Resources
    configuration: Configuration


@app.command()
@takes(ShowOptions)
def show(options: ShowOptions) -> None:
    """Lists the knobs of a space, and counts legal combinations."""
    name, found, left_out = space_for(options.framework, options.space, options.gpus, options.nodes)
    needed = found.require.gpus or int(found.require.device == "cuda")
    options = replace(options, gpus=options.gpus or needed, nodes=max(options.nodes, found.require.nodes))
    question = _question(options, {}, options.rows_per_update)
    explanation = found.explain(_as_baseline(found, question), question.resources)
    if options.as_json:
        console.document({**space_json(name, found, question.resources.framework, explanation), "left_out": left_out})
        return
    console.show(knob_table(found, question.resources.framework))
    for text in counted(name, found, explanation, question.resources, left_out):
        console.line(text)


@app.command()
@takes(CheckOptions)
def check(options: CheckOptions) -> None:
    """Shows the rules that forbid a configuration, or parts of a space. Exit code 2 if nothing is legal, else 0."""
    given = _knobs_given(options)
    question = _question(options, given, options.rows_per_update)
    resources = replace(
        question.resources,
        compute_capability=_capability(options.compute_capability),
        model=ModelFacts(attention_heads=options.attention_heads),
        max_prompt_length=0 if options.max_length else None,
        max_completion_length=options.max_length,
    )
    question = replace(question, resources=resources)
    if options.settings or (given and options.space is None):
        legal = _check_configuration(question, options.as_json)
    else:
        legal = _check_space(options.space, question, options.as_json)
    if not legal:
        raise typer.Exit(UsageError.exit_code)


def _check_configuration(question: SpaceQuestion, as_json: bool) -> bool:
    found = legality.check_baseline(question.configuration, question.resources)
    notes = () if found else legality.notes(question.configuration, question.resources)
    lines = [*(f"{v.rule}: {clean(v.sentence)}" for v in found), *(f"note: {clean(note)}" for note in notes)]
    document = {"legal": not found, "violations": [v.as_json() for v in found], "notes": notes}
    console.answer(document, [*lines, "illegal" if found else "legal"], as_json=as_json)
    return not found


def _check_space(name: str | None, question: SpaceQuestion, as_json: bool) -> bool:
    machine = question.resources
    server = "rollout_gpus" in question.configuration
    name, space, left_out = space_for(machine.framework, name, machine.gpus, machine.nodes, server=server)
    baseline = _as_baseline(space, question)
    explanation = space.explain(baseline, question.resources)
    own = legality.check_baseline(baseline, question.resources) if question.configuration else ()
    lines = [f"as given, {violation.rule}: {clean(violation.sentence)}" for violation in own]
    for rule, count in explanation.removed.items():
        lines.append(f"{rule} removes {count:,} of {explanation.combinations:,}:")
        lines.append(f"  {clean(explanation.examples[rule].sentence)}")
    lines += counted(name, space, explanation, question.resources, left_out)
    given = [v.as_json() for v in own]
    document = {"space": name, "left_out": left_out, "as_given": given, **explanation.as_json()}
    console.answer(document, lines, as_json=as_json)
    return explanation.legal > 0


def space_for(
    framework: str, name: str | None, gpus: int, nodes: int, *, server: bool = False
) -> tuple[str, SearchSpace, str]:
    """Returns the space ``name`` (a preset or file), or the preset for the machine: its name, the space for
    ``framework``, and a sentence on omitted knobs, if any. Raises ``UsageError`` if there is no such space or
    framework, or it cannot be read."""
    from autotune.frameworks import framework_named
    from autotune.specification.build import planned
    from search_spaces.space import SearchSpace
    from search_spaces.space_file import preset_for

    wanted = name or preset_for(gpus, nodes)
    try:
        space, said = planned(SearchSpace.load(wanted), framework_named(framework), server=server)
    except SpaceError as error:
        raise UsageError(str(error)) from None
    return wanted, space, said


def _knobs_given(options: CheckOptions) -> dict[str, KnobValue]:
    """Returns the knobs of the command line. GPUs for a rollout server imply a server."""
    from autotune.cli.commands.start_request import knobs_of

    values: dict[str, KnobValue] = {}
    if options.rollout_gpus:
        values |= served_by(options.rollout_gpus)
    if options.num_generations is not None:
        values["num_generations"] = options.num_generations
    if options.micro_batch is not None:
        values["micro_batch_size"] = options.micro_batch
    return values | knobs_of(options.settings or ())


def _question(options: MachineOptions, knobs: Mapping[str, KnobValue], rows: int | None) -> SpaceQuestion:
    from autotune.frameworks import framework_named

    framework = framework_named(options.framework).name
    if options.ranks is not None and options.gpus:
        from autotune.specification.build import RANKS_WITH_GPUS

        raise UsageError(RANKS_WITH_GPUS)
    resources = Resources(
        gpus=options.gpus,
        nodes=options.nodes,
        device="cuda" if options.gpus else "cpu",
        framework=framework,
        rows_per_update=rows,
        cpu_ranks=options.ranks or 1,
    )
    return SpaceQuestion(resources, Configuration(accumulated(knobs, resources) if knobs else {}))


def _as_baseline(space: SearchSpace, question: SpaceQuestion) -> Configuration:
    """Completes the given knobs to a baseline, with the space's fixed knobs and the defaults."""
    from autotune.specification.request import TRL_DEFAULT_MICRO_BATCH, default_group, default_micro_batch

    name = question.resources.framework
    given = {"num_generations": default_group(name), **space.fixed, **question.configuration}
    if "micro_batch_size" not in given:
        micro = given["micro_batch_size"] = default_micro_batch(name)
        # With one row of a rank, as ms-swift has it, no update of a few GPUs would hold a group.
        given.setdefault("gradient_accumulation_steps", max(1, TRL_DEFAULT_MICRO_BATCH // micro))
    return Configuration(fitted(given, question.resources))


def _capability(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    major, dot, minor = text.partition(".")
    if not (major.isdecimal() and dot and minor.isdecimal() and len(text) < 8):
        raise UsageError(f"--compute-capability {clean(text)}: expected a number such as 8.9.")
    return int(major), int(minor)
