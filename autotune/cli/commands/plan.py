"""``autotune plan``: predicts configurations before any trial."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from autotune.cli import console, exit_codes
from autotune.cli.commands.space import GenerationsOption, NodesOption, space_for
from autotune.cli.commands.start_options import FrameworkOption, PriceOption, SizedOptions, UpdatesOption
from autotune.cli.option_groups import takes
from autotune.cli.options import HomeOption, JsonOption, settings_for
from autotune.errors import UsageError
from search_spaces.errors import SpaceError

if TYPE_CHECKING:
    from autotune.forecast.answer import Plan
    from autotune.forecast.question import PlanRequest, Question
    from autotune.recommendation.whole_run import WholeRun


@dataclass(frozen=True)
class PlanOptions(SizedOptions):
    """All options of ``autotune plan``."""

    model: Annotated[
        str | None,
        typer.Option(
            metavar="DIR|FILE|ID", help="Model folder, config.json, or hub id. Default: the model that --config names."
        ),
    ] = None
    gpu: Annotated[str, typer.Option(help="Kind of GPU, such as h100, a100, l20, l4.")] = "h100"
    gpu_memory: Annotated[
        float | None, typer.Option(min=1, max=4096, metavar="GIB", help="Memory of a GPU, in GiB.")
    ] = None
    gpu_tflops: Annotated[
        float | None, typer.Option(min=0.1, max=1e6, metavar="TFLOPS", help="Dense BF16 or FP16 TFLOPS of a GPU.")
    ] = None
    gpu_bandwidth: Annotated[
        float | None, typer.Option(min=1, max=1e6, metavar="GB/S", help="Memory bandwidth of a GPU, in GB/s.")
    ] = None
    gpus: Annotated[int, typer.Option(min=1, max=4096, help="GPUs of each node.")] = 1
    nodes: NodesOption = 1
    space: Annotated[str | None, typer.Option(help="Preset or YAML file. Default: the preset for the machine.")] = None
    framework: FrameworkOption = "trl"
    num_generations: GenerationsOption = None
    lora_rank: Annotated[
        int | None, typer.Option(min=1, max=65536, help="Train LoRA adapters of this rank, not all weights.")
    ] = None
    need: Annotated[bool, typer.Option("--need", help="Show the fewest GPUs of each kind that fit the model.")] = False
    updates: UpdatesOption = None
    price: PriceOption = None
    as_json: JsonOption = False
    home: HomeOption = None


@takes(PlanOptions)
def plan(options: PlanOptions) -> None:
    """Predicts the best configurations for GPUs, before any trial.

    Reads only the model's config.json. All figures are predictions; `autotune start` measures. With --config, shows
    whether your configuration or script fits, when its memory is highest, its speed, and faster configurations. With
    --need, shows the fewest GPUs of each kind that fit the model: with all weights trained, with offloads, with LoRA.
    Exit code 3: the model or configuration probably does not fit.

    \b
    Examples:
      autotune plan --model ./Qwen2.5-1.5B --gpu l20 --gpus 4
      autotune plan --model ./Qwen2.5-7B --gpu h100 --gpus 8 --max-completion-length 2048
      autotune plan --model ./Qwen2.5-7B --gpu h100 --gpus 8 --updates 2000 --price 2.50
      autotune plan --model ./Qwen2.5-32B --need
      autotune plan --config grpo.yaml --gpu h100 --gpus 8
      autotune plan --config run.sh --framework verl --model Qwen2.5-7B/config.json --gpu a100 --gpus 8
      autotune plan --model ./Qwen2.5-7B --gpu mine --gpu-memory 64 --gpu-tflops 280 --gpu-bandwidth 1600
      autotune plan --model ./Qwen2.5-7B --gpu h100 --gpus 8 --json | jq '.best[0].configuration'
    """
    from autotune.forecast.model_file import model_at
    from autotune.forecast.question import PlanRequest
    from autotune.frameworks import framework_named
    from autotune.recommendation.whole_run import check_asked

    check_asked(options.updates, options.price)
    if options.config is None and options.model is None:
        raise UsageError("name a model with --model, or your own configuration with --config")
    if options.config is not None:
        _refuse_beside_config(options)
        question = _configured(options)
    else:
        word, framework = options.model or "", framework_named(options.framework).name
        lengths = options.max_prompt_length, options.max_completion_length
        sizes = options.rows_per_update, options.num_generations, *lengths, options.lora_rank
        request = PlanRequest(word, model_at(word), framework, *sizes)
        if options.need:
            return _show_needs(request, options.as_json)
        question = _question(request, options)
    return _show_plan(question, options)


def _refuse_beside_config(options: PlanOptions) -> None:
    beside = {"--need": options.need, "--num-generations": options.num_generations, "--lora-rank": options.lora_rank}
    for option, value in beside.items():
        if value:
            raise UsageError(f"{option} cannot be used with --config, which says it (--set num_generations=8)")


def _configured(options: PlanOptions) -> Question:
    """Returns the question about the user's configuration; the model is ``--model``'s, else the configuration's."""
    from autotune.cli.commands.start_request import paper_request
    from autotune.forecast.answer import Machine
    from autotune.forecast.gpus import gpu_of
    from autotune.forecast.model_file import model_at
    from autotune.forecast.question import described, of_config
    from autotune.specification import on_paper

    kind = gpu_of(options.gpu, options.gpu_memory, options.gpu_tflops, options.gpu_bandwidth)
    machine = Machine(kind.name, kind.memory, options.gpus, options.nodes)
    request = paper_request(options, options.framework, model=options.model or "", space=options.space, **options.sizes)
    try:
        paper = on_paper.read(request, described(machine, kind))
    except SpaceError as error:
        raise UsageError(str(error)) from None
    return of_config(paper, model_at(paper.request.model), machine, kind)


def _question(request: PlanRequest, options: PlanOptions) -> Question:
    from autotune.forecast.answer import Machine
    from autotune.forecast.gpus import gpu_of
    from autotune.forecast.question import Question

    kind = gpu_of(options.gpu, options.gpu_memory, options.gpu_tflops, options.gpu_bandwidth)
    machine = Machine(kind.name, kind.memory, options.gpus, options.nodes)
    space = space_for(request.framework, options.space, options.gpus, options.nodes)
    return Question(request.load(machine, space[1]), machine, kind, *space)


def _show_plan(question: Question, options: PlanOptions) -> None:
    from autotune.cli.screens.plan import plan_screen
    from autotune.forecast.documents import plan_json
    from autotune.forecast.with_models import planned
    from autotune.recommendation.whole_run import whole_run_json, whole_run_words

    found = planned(question, settings_for(options.home))
    run = None if options.updates is None else _whole_run(found, options.updates, options.price)
    if options.as_json:
        console.document({**plan_json(found), **({"whole_run": whole_run_json(run)} if run else {})})
    else:
        console.show(plan_screen(found, () if run is None else whole_run_words(run)))
    if not found.feasible:
        raise typer.Exit(exit_codes.NOTHING_FEASIBLE)


def _whole_run(plan: Plan, updates: int, price: float | None) -> WholeRun:
    """Estimates a run with the fastest configuration, and one with the user's or the default one if that fits."""
    from autotune.forecast.answer import LIKELY
    from autotune.recommendation.whole_run import WholeRun, hours_of

    each, gpus = plan.load.rows_per_update * plan.load.mean_completion, plan.machine.total
    before = hours_of(updates * each, plan.baseline) if plan.baseline.fits >= LIKELY else None
    after = hours_of(updates * each, (plan.faster or (plan.baseline,))[0])
    return WholeRun(updates, each, gpus, gpus, before, after, None, None, price)


def _show_needs(request: PlanRequest, as_json: bool) -> None:
    from autotune.cli.screens.plan import needs_screen
    from autotune.forecast.documents import needs_json
    from autotune.forecast.with_models import needed

    found = needed(request)
    if as_json:
        console.document(needs_json(found))
    else:
        console.show(needs_screen(found))
    if all(n.machine is None for n in found.needs):
        raise typer.Exit(exit_codes.NOTHING_FEASIBLE)
