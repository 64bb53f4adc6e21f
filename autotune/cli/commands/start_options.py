"""The options of ``start``, by subject."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from autotune.cli.options import HomeOption
from autotune.cli.stopping import GRACE_S
from autotune.domain import Objective
from search_spaces.frameworks import SHORT

RayOption = Annotated[
    str | None,
    typer.Option(
        help="Trials run on the nodes of this Ray cluster: host:port; auto is that of RAY_ADDRESS or this machine's.",
        metavar="ADDRESS",
    ),
]

_FRAMEWORK = typer.Option(help=f"What you train with: {', '.join(SHORT.values())}.", metavar="NAME")
FrameworkOption = Annotated[str, _FRAMEWORK]
StartFrameworkOption = Annotated[str | None, _FRAMEWORK]
AccelerateOption = Annotated[
    Path | None, typer.Option(help="The accelerate file that launches TRL or Open-R1.", metavar="FILE")
]
ServerOption = Annotated[
    Path | None,
    typer.Option(
        help="The script that starts your rollout server beside --config: trl vllm-serve, vllm serve, swift rollout.",
        metavar="FILE",
    ),
]
ConfigOption = Annotated[
    Path | None,
    typer.Option(
        help="Your framework's own config: its knobs are the baseline, the rest passes through; options go before it.",
        metavar="FILE",
    ),
]
RewardOption = Annotated[
    list[str] | None,
    typer.Option(help="FILE.py:FUNCTION with TRL's signature, or math-verify; may be repeated.", metavar="REWARD"),
]
TaskOption = Annotated[
    str | None, typer.Option(help="Prompts of a task: reasoning-gym:NAME (chain_sum if none is named).", metavar="TASK")
]

GpusOption = Annotated[
    int | None,
    typer.Option(min=0, help="GPUs of a trial: the first N visible; all if left out, 0 is a CPU run.", metavar="N"),
]
RolloutGpusOption = Annotated[
    int | None,
    typer.Option(min=1, help="GPUs your present configuration gives to a vLLM server; the others train.", metavar="N"),
]
OpenR1Option = Annotated[
    str | None, typer.Option(help="Your checkout of Open-R1, whose grpo.py trains.", metavar="PATH")
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", help="A knob of your present configuration: --set micro_batch_size=4.", metavar="KNOB=VALUE"),
]
EnvOption = Annotated[
    list[str] | None,
    typer.Option("--env", help="An environment variable that your reward reads; may be repeated.", metavar="NAME"),
]
AllowBusyOption = Annotated[
    bool, typer.Option("--allow-busy", help="Measure although others use the GPU; results are marked.")
]

RowsOption = Annotated[
    int | None,
    typer.Option(
        "--effective-batch",
        "--rows-per-update",
        min=2,
        max=10**9,
        help="Completions per optimizer update, over all GPUs; the same in all trials.",
        metavar="N",
    ),
]
PromptOption = Annotated[
    int | None,
    typer.Option(min=1, max=10**7, help="Longest prompt, in tokens; the longest found if left out.", metavar="N"),
]
CompletionOption = Annotated[
    int | None, typer.Option(min=2, max=10**7, help="Longest completion, in tokens.", metavar="N")
]

UpdatesOption = Annotated[
    int | None, typer.Option(min=1, help="Also the hours of your whole run of N updates.", metavar="N")
]
PriceOption = Annotated[
    float | None, typer.Option(help="With --updates: also its money, at so much for a GPU-hour.", metavar="PRICE")
]


@dataclass(frozen=True)
class ConfigOptions:
    """Your own configuration and the files beside it, for GPUs that may be elsewhere."""

    config: ConfigOption = None
    accelerate: AccelerateOption = None
    openr1: OpenR1Option = None
    server: ServerOption = None
    rollout_gpus: RolloutGpusOption = None
    settings: SetOption = None


@dataclass(frozen=True)
class SizedOptions(ConfigOptions):
    """The same with other sizes."""

    rows_per_update: RowsOption = None
    max_prompt_length: PromptOption = None
    max_completion_length: CompletionOption = None

    @property
    def sizes(self) -> dict[str, int | None]:
        return {name: getattr(self, name) for name in SizedOptions.__annotations__}


AsJsonOption = Annotated[bool, typer.Option("--json", help="One JSON record per event on stdout.")]
NoLiveOption = Annotated[bool, typer.Option("--no-live", help="Plain lines instead of the live table.")]


@dataclass(frozen=True)
class StartOptions(SizedOptions):
    """All of ``autotune start``."""

    budget: Annotated[
        str | None, typer.Option(help="Wall-clock time for the whole study: 10m, 4h, 1h30m.", metavar="TIME")
    ] = None
    max_trials: Annotated[
        int | None,
        typer.Option(
            min=1, help="Search at most N trials, the baseline included; confirming comes on top.", metavar="N"
        ),
    ] = None
    gpu_hours: Annotated[float | None, typer.Option(help="GPUs held times hours, for all of it.", metavar="H")] = None
    framework: StartFrameworkOption = None
    published: Annotated[
        str | None,
        typer.Option(
            "--baseline",
            help="Begin with a published configuration, scaled to the GPUs held: openr1:qwen2.5-1.5b-demo.",
            metavar="NAME",
        ),
    ] = None
    model: Annotated[
        str | None, typer.Option(help="Model folder or hub id; the bundled model if none is named.", metavar="MODEL")
    ] = None
    python: Annotated[
        str | None,
        typer.Option(help="Interpreter of your training environment; else that of $VIRTUAL_ENV.", metavar="PATH"),
    ] = None
    data: Annotated[
        str | None,
        typer.Option(help='Your prompts: JSONL with "prompt" and the columns the reward reads.', metavar="FILE"),
    ] = None
    reward: RewardOption = None
    task: TaskOption = None
    env: EnvOption = None
    space: Annotated[str | None, typer.Option(help="Search space: a preset or a YAML file.", metavar="SPACE")] = None
    seed: Annotated[int, typer.Option(help="Seed of the sampler and of the order of prompts.", metavar="N")] = 0
    memory_limit: Annotated[
        str | None,
        typer.Option(
            help="Host memory of a trial's whole process tree, compilers aside: 6GiB. If left out, none; in a "
            "container with a limit that limit, less what the tuner needs.",
            metavar="SIZE",
        ),
    ] = None
    gpus: GpusOption = None
    ranks: Annotated[
        int | None, typer.Option(help="Training processes on a CPU, which share its cores; 1 if left out.", metavar="N")
    ] = None
    nodes: Annotated[
        int, typer.Option(min=1, help="Nodes of one trial, each with --gpus GPUs; several need --ray.", metavar="N")
    ] = 1
    name: Annotated[str | None, typer.Option(help="Name of the study.", metavar="NAME")] = None
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan and stop.")] = False
    anyway: Annotated[bool, typer.Option("--anyway", help="Begin though the budget seems to hold no trial.")] = False
    allow_busy: AllowBusyOption = False
    cold: Annotated[
        bool,
        typer.Option(
            "--cold", help="Start a process for each trial, not forked from a loaded one nor used twice. Slower."
        ),
    ] = False
    grace: Annotated[
        str, typer.Option(help="After a scheduler's SIGTERM or SIGUSR1 all ends within this time.", metavar="TIME")
    ] = f"{GRACE_S:.0f}s"
    signal: Annotated[
        list[str] | None, typer.Option(help="A further signal that announces the end, such as USR2.", metavar="NAME")
    ] = None
    as_json: AsJsonOption = False
    no_live: NoLiveOption = False
    quiet: Annotated[bool, typer.Option("--quiet", help="Only the end screen.")] = False
    home: HomeOption = None
    at_once: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Trials side by side, each on --gpus GPUs of its own and an equal share of CPUs and memory; with "
            "--ray as many as fit, if left out.",
            metavar="N",
        ),
    ] = None
    ray: RayOption = None
    sampler: Annotated[
        str | None,
        typer.Option(
            help="Who proposes: grey (forecasts phases and memory; the default), tpe, random, grid, or "
            "module:Class for an Optuna sampler of your own.",
            metavar="NAME",
        ),
    ] = None
    objective: Annotated[
        Objective,
        typer.Option(
            help="What configurations are ranked by. They differ where training_gpus or rollout_gpus change the "
            "GPUs held."
        ),
    ] = Objective.PER_HOUR
    no_history: Annotated[
        bool, typer.Option("--no-history", help="Begin with nothing that earlier studies measured.")
    ] = False
    new: Annotated[bool, typer.Option("--new", help="Start beside a study of this name that differs.")] = False
    no_serve: Annotated[bool, typer.Option("--no-serve", help="No page in the browser while it runs.")] = False
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Port of the page; the next free one if left out.", metavar="N")
    ] = None
