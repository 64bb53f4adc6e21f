"""``autotune plan``: what to expect before anything is run."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from autotune.cli import console, exit_codes
from autotune.cli.commands.space import (
    FrameworkOption,
    GenerationsOption,
    NodesOption,
    RowsOption,
    framework_word,
    space_for,
)
from autotune.cli.options import HomeOption, JsonOption, settings_for
from autotune.settings import Settings

if TYPE_CHECKING:
    from autotune.forecast.gpus import KnownGpu
    from autotune.forecast.question import PlanRequest, Question


class Format(StrEnum):
    """How a plan is printed."""

    TABLE = "table"
    JSON = "json"


ModelOption = Annotated[
    str,
    typer.Option("--model", metavar="DIR|FILE|ID", help="Model folder, config.json, or hub id in the local cache."),
]
GpuOption = Annotated[str, typer.Option("--gpu", help="Kind of GPU, such as h100, a100, l20, l4.")]
GpuMemoryOption = Annotated[
    float | None, typer.Option("--gpu-memory", min=1, max=4096, metavar="GIB", help="Memory of a GPU, in GiB.")
]
GpuTflopsOption = Annotated[
    float | None,
    typer.Option("--gpu-tflops", min=0.1, max=1e6, metavar="TFLOPS", help="Its dense BF16 or FP16 TFLOPS."),
]
GpuBandwidthOption = Annotated[
    float | None, typer.Option("--gpu-bandwidth", min=1, max=1e6, metavar="GB/S", help="Its memory's GB/s.")
]
PlanGpusOption = Annotated[int, typer.Option("--gpus", min=1, max=4096, help="GPUs of each node.")]
SpaceOption = Annotated[
    str | None, typer.Option("--space", help="Preset or YAML file; the preset for the machine if left out.")
]
PromptOption = Annotated[
    int | None, typer.Option("--max-prompt-length", min=1, max=10**7, help="Tokens of the longest prompt.")
]
CompletionOption = Annotated[
    int | None, typer.Option("--max-completion-length", min=1, max=10**7, help="Tokens of the longest completion.")
]
LoraOption = Annotated[
    int | None, typer.Option("--lora-rank", min=1, max=65536, help="Train adapters of this rank, not all weights.")
]
NeedOption = Annotated[bool, typer.Option("--need", help="The fewest GPUs of each kind that would do.")]
FormatOption = Annotated[Format, typer.Option("--format", help="For people or for programs.")]


def plan(
    model: ModelOption,
    gpu: GpuOption = "h100",
    gpu_memory: GpuMemoryOption = None,
    gpu_tflops: GpuTflopsOption = None,
    gpu_bandwidth: GpuBandwidthOption = None,
    gpus: PlanGpusOption = 1,
    nodes: NodesOption = 1,
    space: SpaceOption = None,
    framework: FrameworkOption = "trl",
    rows_per_update: RowsOption = None,
    num_generations: GenerationsOption = None,
    max_prompt_length: PromptOption = None,
    max_completion_length: CompletionOption = None,
    lora_rank: LoraOption = None,
    need: NeedOption = False,
    form: FormatOption = Format.TABLE,
    as_json: JsonOption = False,
    home: HomeOption = None,
) -> None:
    """Predict the best configurations of a model on GPUs nobody has tried: in seconds, without a GPU.

    Reads the model's config.json only. Everything is predicted; `autotune start` measures. With --need: the
    fewest GPUs of each kind that hold the model, with all weights trained, with offloads, with LoRA. Exit code 3:
    nothing is likely to fit.

    \b
    Examples:
      autotune plan --model ./Qwen2.5-1.5B --gpu l20 --gpus 4
      autotune plan --model ./Qwen2.5-7B --gpu h100 --gpus 8 --max-completion-length 2048
      autotune plan --model ./Qwen2.5-32B --need
      autotune plan --model ./Qwen2.5-7B --gpu mine --gpu-memory 64 --gpu-tflops 280 --gpu-bandwidth 1600
      autotune plan --model ./Qwen2.5-7B --gpu h100 --gpus 8 --format json | jq '.best[0].configuration'
    """
    framework = framework_word(framework)
    from autotune.forecast.model_file import model_at
    from autotune.forecast.question import PlanRequest

    lengths = max_prompt_length, max_completion_length
    request = PlanRequest(model, model_at(model), framework, rows_per_update, num_generations, *lengths, lora_rank)
    as_json = as_json or form is Format.JSON
    if need:
        _show_needs(request, as_json)
    else:
        from autotune.forecast.gpus import gpu_of

        kind = gpu_of(gpu, gpu_memory, gpu_tflops, gpu_bandwidth)
        _show_plan(_question(request, kind, gpus, nodes, space), settings_for(home), as_json)


def _question(request: PlanRequest, kind: KnownGpu, gpus: int, nodes: int, space: str | None) -> Question:
    from autotune.forecast.answer import Machine
    from autotune.forecast.question import Question

    machine = Machine(kind.name, kind.memory, gpus, nodes)
    return Question(request.load(machine), machine, kind, *space_for(request.framework, space, gpus, nodes))


def _show_plan(asked: Question, settings: Settings, as_json: bool) -> None:
    from autotune.cli.screens.plan import plan_screen
    from autotune.forecast.documents import plan_json
    from autotune.forecast.with_models import planned

    found = planned(asked, settings)
    if as_json:
        console.document(plan_json(found))
    else:
        console.show(plan_screen(found))
    if not found.feasible:
        raise typer.Exit(exit_codes.NOTHING_FEASIBLE)


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
