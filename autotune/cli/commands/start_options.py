"""The options of ``start`` and ``sweep``, by what they are about."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from autotune.cli.options import HomeOption
from autotune.cli.stopping import GRACE_S
from autotune.domain import Objective
from search_spaces.framework_names import SHORT

BudgetOption = Annotated[
    str | None,
    typer.Option("--budget", help="Wall-clock time for the whole study: 10m, 4h, 1h30m.", metavar="TIME"),
]
TrialsOption = Annotated[
    int | None,
    typer.Option(
        "--max-trials",
        min=1,
        help="Search at most N trials, the baseline included; confirming comes on top.",
        metavar="N",
    ),
]
AtOnceOption = Annotated[
    int | None,
    typer.Option(
        "--at-once",
        min=1,
        help="Trials side by side, each on --gpus GPUs of its own and an equal share of CPUs and memory; with --ray as "
        "many as fit, if left out.",
        metavar="N",
    ),
]
RayOption = Annotated[
    str | None,
    typer.Option(
        "--ray",
        help="Trials run on the nodes of this Ray cluster: host:port; auto is that of RAY_ADDRESS or this machine's.",
        metavar="ADDRESS",
    ),
]
NodesOption = Annotated[
    int,
    typer.Option("--nodes", min=1, help="Nodes of one trial, each with --gpus GPUs; several need --ray.", metavar="N"),
]
GpuHoursOption = Annotated[float | None, typer.Option("--gpu-hours", help="GPU time: GPUs held x hours.", metavar="H")]

_FRAMEWORK = typer.Option("--framework", help=f"What you train with: {', '.join(SHORT.values())}.", metavar="NAME")
FrameworkOption = Annotated[str, _FRAMEWORK]
StartFrameworkOption = Annotated[str | None, _FRAMEWORK]
AccelerateOption = Annotated[
    Path | None, typer.Option("--accelerate", help="The accelerate file that launches TRL or Open-R1.", metavar="FILE")
]
ServerOption = Annotated[
    Path | None,
    typer.Option(
        "--server",
        help="The script that starts your rollout server beside --config: trl vllm-serve, vllm serve, swift rollout.",
        metavar="FILE",
    ),
]
OpenR1Option = Annotated[
    str | None, typer.Option("--openr1", help="Your checkout of Open-R1, whose grpo.py trains.", metavar="PATH")
]
BaselineOption = Annotated[
    str | None,
    typer.Option(
        "--baseline",
        help="Begin with a published configuration, scaled to the GPUs held: openr1:qwen2.5-1.5b-demo.",
        metavar="NAME",
    ),
]
ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config",
        help="Your framework's own config: its knobs are the baseline, the rest passes through; options go before it.",
        metavar="FILE",
    ),
]
ModelOption = Annotated[
    str | None,
    typer.Option("--model", help="Model folder or hub id; the bundled model if none is named.", metavar="MODEL"),
]
PythonOption = Annotated[
    str, typer.Option("--python", help="Interpreter of your training environment.", metavar="PATH")
]
DataOption = Annotated[
    str | None,
    typer.Option("--data", help='Your prompts: JSONL with "prompt" and the columns the reward reads.', metavar="FILE"),
]
RewardOption = Annotated[
    list[str] | None,
    typer.Option(
        "--reward", help="FILE.py:FUNCTION with TRL's signature, or math-verify; may be repeated.", metavar="REWARD"
    ),
]
TaskOption = Annotated[
    str | None,
    typer.Option("--task", help="Prompts of a task: reasoning-gym:NAME (chain_sum if none is named).", metavar="TASK"),
]
RowsOption = Annotated[
    int | None,
    typer.Option(
        "--effective-batch",
        "--rows-per-update",
        min=2,
        help="Completions per optimizer update, over all GPUs; the same in all trials.",
        metavar="N",
    ),
]
PromptLengthOption = Annotated[
    int | None,
    typer.Option(
        "--max-prompt-length", min=1, help="Longest prompt, in tokens; the longest found if left out.", metavar="N"
    ),
]
CompletionLengthOption = Annotated[
    int | None,
    typer.Option("--max-completion-length", min=2, help="Longest completion, in tokens.", metavar="N"),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", help="A knob of your present configuration: --set micro_batch_size=4.", metavar="KNOB=VALUE"),
]

SpaceOption = Annotated[
    str | None, typer.Option("--space", help="Search space: a preset or a YAML file.", metavar="SPACE")
]
SamplerOption = Annotated[
    str | None,
    typer.Option(
        "--sampler",
        help="Who proposes: grey (forecasts phases and memory; the default), tpe, random, grid, or "
        "module:Class for an Optuna sampler of your own.",
        metavar="NAME",
    ),
]
ObjectiveOption = Annotated[
    Objective,
    typer.Option(
        "--objective",
        help="What configurations are ranked by. They differ where training_gpus or rollout_gpus change the GPUs held.",
    ),
]
NoHistoryOption = Annotated[
    bool, typer.Option("--no-history", help="Begin with nothing that earlier studies measured.")
]
SeedOption = Annotated[int, typer.Option("--seed", help="Of the sampler and the prompts.", metavar="N")]
MemoryLimitOption = Annotated[
    str | None,
    typer.Option(
        "--memory-limit",
        help="Host memory of a trial's whole process tree, compilers aside: 6GiB. If left out, none; in a container "
        "with a limit that limit, less what the tuner needs.",
        metavar="SIZE",
    ),
]
RanksOption = Annotated[
    int | None,
    typer.Option("--ranks", help="Training processes on a CPU, which share its cores; 1 if left out.", metavar="N"),
]
GpusOption = Annotated[
    int | None,
    typer.Option(
        "--gpus", min=0, help="GPUs of a trial: the first N visible; all if left out, 0 is a CPU run.", metavar="N"
    ),
]
RolloutGpusOption = Annotated[
    int | None,
    typer.Option(
        "--rollout-gpus",
        min=1,
        help="GPUs your present configuration gives to a vLLM server; the others train.",
        metavar="N",
    ),
]
NameOption = Annotated[str | None, typer.Option("--name", help="Name of the study.", metavar="NAME")]
NewOption = Annotated[bool, typer.Option("--new", help="Start beside a study of this name that differs.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Show the plan and stop.")]
AllowBusyOption = Annotated[
    bool, typer.Option("--allow-busy", help="Measure although others use the GPU; results are marked.")
]
ColdOption = Annotated[
    bool,
    typer.Option("--cold", help="Start a process for each trial, not forked from a loaded one nor used twice. Slower."),
]

GraceOption = Annotated[
    str,
    typer.Option(
        "--grace", help="After a scheduler's SIGTERM or SIGUSR1 all has ended within this time.", metavar="TIME"
    ),
]
SignalOption = Annotated[
    list[str] | None,
    typer.Option("--signal", help="A further signal that announces the end, such as USR2.", metavar="NAME"),
]
AsJsonOption = Annotated[bool, typer.Option("--json", help="One JSON record per event on stdout.")]
NoLiveOption = Annotated[bool, typer.Option("--no-live", help="Plain lines instead of the live table.")]
QuietOption = Annotated[bool, typer.Option("--quiet", help="Only the end screen.")]
NoServeOption = Annotated[bool, typer.Option("--no-serve", help="No page in the browser while it runs.")]
PortOption = Annotated[
    int | None,
    typer.Option("--port", min=0, max=65535, help="Port of the page; the next free one if left out.", metavar="N"),
]


@dataclass(frozen=True)
class BudgetOptions:
    """Options that limit time, trials and GPU-hours."""

    budget: BudgetOption = None
    max_trials: TrialsOption = None
    gpu_hours: GpuHoursOption = None


@dataclass(frozen=True)
class FrameworkOptions:
    """Options that name the framework and its files."""

    framework: StartFrameworkOption = None
    accelerate: AccelerateOption = None
    openr1: OpenR1Option = None
    published: BaselineOption = None


@dataclass(frozen=True)
class StudyOptions:
    """The workload, the machine, and how trials are run and shown: the same for a search and a sweep."""

    config: ConfigOption = None
    server: ServerOption = None
    model: ModelOption = None
    python: PythonOption = sys.executable
    data: DataOption = None
    reward: RewardOption = None
    task: TaskOption = None
    rows_per_update: RowsOption = None
    max_prompt_length: PromptLengthOption = None
    max_completion_length: CompletionLengthOption = None
    baseline: SetOption = None
    space: SpaceOption = None
    seed: SeedOption = 0
    memory_limit: MemoryLimitOption = None
    gpus: GpusOption = None
    rollout_gpus: RolloutGpusOption = None
    ranks: RanksOption = None
    nodes: NodesOption = 1
    name: NameOption = None
    dry_run: DryRunOption = False
    allow_busy: AllowBusyOption = False
    cold: ColdOption = False
    grace: GraceOption = f"{GRACE_S:.0f}s"
    signal: SignalOption = None
    as_json: AsJsonOption = False
    no_live: NoLiveOption = False
    quiet: QuietOption = False
    home: HomeOption = None


@dataclass(frozen=True)
class StartOptions(StudyOptions, FrameworkOptions, BudgetOptions):
    """All of ``autotune start``."""

    at_once: AtOnceOption = None
    ray: RayOption = None
    sampler: SamplerOption = None
    objective: ObjectiveOption = Objective.PER_HOUR
    no_history: NoHistoryOption = False
    new: NewOption = False
    no_serve: NoServeOption = False
    port: PortOption = None
