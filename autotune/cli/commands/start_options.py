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
        help="Run trials on the nodes of this Ray cluster: host:port, or auto ($RAY_ADDRESS, else this machine's).",
        metavar="ADDRESS",
    ),
]

_FRAMEWORK = typer.Option(help=f"Framework that trains: {', '.join(SHORT.values())}.", metavar="NAME")
FrameworkOption = Annotated[str, _FRAMEWORK]
StartFrameworkOption = Annotated[str | None, _FRAMEWORK]
AccelerateOption = Annotated[
    Path | None, typer.Option(help="The accelerate file that launches TRL or Open-R1.", metavar="FILE")
]
ServerOption = Annotated[
    Path | None,
    typer.Option(
        help="The script that starts your rollout server (trl vllm-serve, vllm serve or swift rollout); with --config.",
        metavar="FILE",
    ),
]
ConfigOption = Annotated[
    Path | None,
    typer.Option(
        help="Your framework's own config. Its knobs are the baseline; the rest is kept. Options override it.",
        metavar="FILE",
    ),
]
RewardOption = Annotated[
    list[str] | None,
    typer.Option(help="FILE.py:FUNCTION with TRL's signature, or math-verify; may be repeated.", metavar="REWARD"),
]
TaskOption = Annotated[
    str | None, typer.Option(help="Generate prompts of a task: reasoning-gym:NAME (default chain_sum).", metavar="TASK")
]

GpusOption = Annotated[
    int | None,
    typer.Option(min=0, help="GPUs of a trial: the first N visible. Default: all; 0 runs on the CPU.", metavar="N"),
]
RolloutGpusOption = Annotated[
    int | None,
    typer.Option(min=1, help="GPUs that your configuration gives to a rollout server; the others train.", metavar="N"),
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
    bool, typer.Option("--allow-busy", help="Measure even if other programs use the GPU; marks the results.")
]

RowsOption = Annotated[
    int | None,
    typer.Option(
        "--effective-batch",
        "--rows-per-update",
        min=2,
        max=10**9,
        help="Completions per optimizer update, over all GPUs. All trials use this number.",
        metavar="N",
    ),
]
PromptOption = Annotated[
    int | None,
    typer.Option(min=1, max=10**7, help="Longest prompt, in tokens. Default: the longest in the data.", metavar="N"),
]
CompletionOption = Annotated[
    int | None, typer.Option(min=2, max=10**7, help="Longest completion, in tokens.", metavar="N")
]

UpdatesOption = Annotated[
    int | None, typer.Option(min=1, help="Also show the hours that your whole run of N updates takes.", metavar="N")
]
PriceOption = Annotated[
    float | None, typer.Option(help="With --updates: also show the cost, at this price per GPU-hour.", metavar="PRICE")
]


@dataclass(frozen=True)
class ConfigOptions:
    """The user's own configuration and its companion files, for GPUs that may be on another machine."""

    config: ConfigOption = None
    accelerate: AccelerateOption = None
    openr1: OpenR1Option = None
    server: ServerOption = None
    rollout_gpus: RolloutGpusOption = None
    settings: SetOption = None


@dataclass(frozen=True)
class SizedOptions(ConfigOptions):
    """``ConfigOptions``, and other rows per update and lengths than the configuration's."""

    rows_per_update: RowsOption = None
    max_prompt_length: PromptOption = None
    max_completion_length: CompletionOption = None

    @property
    def sizes(self) -> dict[str, int | None]:
        return {name: getattr(self, name) for name in SizedOptions.__annotations__}


AsJsonOption = Annotated[bool, typer.Option("--json", help="One JSON record per event on stdout.")]
NoLiveOption = Annotated[bool, typer.Option("--no-live", help="Print plain lines instead of the live table.")]


@dataclass(frozen=True)
class StartOptions(SizedOptions):
    """All options of ``autotune start``."""

    budget: Annotated[
        str | None, typer.Option(help="Wall-clock time for the whole study: 10m, 4h, 1h30m.", metavar="TIME")
    ] = None
    max_trials: Annotated[
        int | None,
        typer.Option(
            min=1, help="Search at most N trials, including the baseline; confirmation runs do not count.", metavar="N"
        ),
    ] = None
    gpu_hours: Annotated[float | None, typer.Option(help="Most GPU-hours for the whole study.", metavar="H")] = None
    framework: StartFrameworkOption = None
    published: Annotated[
        str | None,
        typer.Option(
            "--baseline",
            help="Take a published configuration as the baseline, scaled to your GPUs: openr1:qwen2.5-1.5b-demo.",
            metavar="NAME",
        ),
    ] = None
    model: Annotated[
        str | None, typer.Option(help="Model folder or hub id. Default: the bundled model.", metavar="MODEL")
    ] = None
    python: Annotated[
        str | None,
        typer.Option(help="Interpreter of your training environment. Default: that of $VIRTUAL_ENV.", metavar="PATH"),
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
            help="Most host memory of a trial's processes, such as 6GiB; compilers do not count. Default: no limit; in "
            "a container, its limit minus the tuner's own memory.",
            metavar="SIZE",
        ),
    ] = None
    gpus: GpusOption = None
    ranks: Annotated[
        int | None, typer.Option(help="Training processes on a CPU; they share its cores. Default: 1.", metavar="N")
    ] = None
    nodes: Annotated[
        int, typer.Option(min=1, help="Nodes of one trial, each with --gpus GPUs; several need --ray.", metavar="N")
    ] = 1
    name: Annotated[str | None, typer.Option(help="Name of the study.", metavar="NAME")] = None
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan and stop.")] = False
    anyway: Annotated[bool, typer.Option("--anyway", help="Start even if the budget seems too short.")] = False
    allow_busy: AllowBusyOption = False
    cold: Annotated[
        bool,
        typer.Option("--cold", help="Start a new process for each trial, without preloaded imports. Slower."),
    ] = False
    grace: Annotated[
        str, typer.Option(help="Most time to exit after a scheduler's SIGTERM or SIGUSR1.", metavar="TIME")
    ] = f"{GRACE_S:.0f}s"
    signal: Annotated[
        list[str] | None, typer.Option(help="Another signal of a scheduler's notice, such as USR2.", metavar="NAME")
    ] = None
    as_json: AsJsonOption = False
    no_live: NoLiveOption = False
    quiet: Annotated[bool, typer.Option("--quiet", help="Print only the final result.")] = False
    home: HomeOption = None
    at_once: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Run N trials in parallel, each on its own --gpus GPUs and an equal share of CPUs and memory. "
            "Default: 1; with --ray as many as fit.",
            metavar="N",
        ),
    ] = None
    ray: RayOption = None
    sampler: Annotated[
        str | None,
        typer.Option(
            help="Sampler that proposes trials: grey (predicts phase times and memory; the default), tpe, random, "
            "grid, or module:Class for your own Optuna sampler.",
            metavar="NAME",
        ),
    ] = None
    objective: Annotated[
        Objective,
        typer.Option(
            help="Figure that ranks configurations. The two differ only if training_gpus or rollout_gpus change "
            "the number of GPUs."
        ),
    ] = Objective.PER_HOUR
    no_history: Annotated[bool, typer.Option("--no-history", help="Do not use earlier studies.")] = False
    new: Annotated[bool, typer.Option("--new", help="If the named study differs, start one with a number.")] = False
    no_serve: Annotated[bool, typer.Option("--no-serve", help="Do not serve the web page during the study.")] = False
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Port of the web page. Default: a free one.", metavar="N")
    ] = None
