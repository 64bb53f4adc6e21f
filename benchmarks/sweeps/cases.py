"""The tables recorded on a CPU: model, lengths, baseline, memory limit, and the commands that record one. Pure.

Trials of a table have to be short, so models are small and have random weights; what they compute takes the time it
would take with trained ones. Completions end by chance, as likely at every token (``random_model.end_after``), so the
lengths the baseline's natural cycles record are geometric, cut at the longest.

A model of 10 million parameters with 32,000 tokens is mostly LM head, on which few knobs act. So it is deep and thin:
with many layers, each little more than the launch of its kernels, generation takes its share of a cycle and
checkpointing, micro-batches, attention and the engine make a difference.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.gpu.architectures import Architecture
from search_spaces.configuration import KnobValue

SPACES = Path(__file__).parent
AGAIN = 80
"""Fastest rows that are run three times again. In the first table a run of a row was known to 6 %, and minutes later
most rows were a tenth slower, so a row that was run once cannot be judged beside others; those that are a quarter
slower than the best need no such care."""


@dataclass(frozen=True)
class Case:
    """One table."""

    name: str
    """Of its space too: ``NAME.yaml`` beside this file."""
    architecture: Architecture
    shortest_prompt: int
    longest_prompt: int
    """Tokens, which are bytes."""
    longest: int
    """Completion tokens."""
    rows: int
    """Completions per update."""
    memory_limit: str
    """Beyond which a quarter of the rows shall not fit."""
    baseline: Mapping[str, KnobValue] = field(default_factory=dict)
    """Beside the framework's own defaults."""
    again: int = AGAIN
    """Of its fastest rows that are run three times again; a table of fewer rows needs fewer."""

    recorded: int | None = None
    """Rows of the table, spread over the space; ``None``: every legal combination."""

    ranks: int = 1
    """Training processes, which share the CPU's cores."""

    @property
    def space(self) -> Path:
        return SPACES / f"{self.name}.yaml"


@dataclass(frozen=True)
class Inputs:
    """Files a sweep begins with."""

    model: Path
    prompts: Path
    reward: str
    """``FILE:FUNCTION``."""


def words(case: Case, made: Inputs, python: str, out: Path, more: Sequence[str] = ()) -> tuple[str, ...]:
    """What comes after ``autotune``: the sweep of a case.

    Args:
        case: what is swept.
        made: its inputs.
        python: the training interpreter.
        out: folder of the home and of the table.
        more: options that go last, so they win.
    """
    knobs = [word for name, value in case.baseline.items() for word in ("--set", f"{name}={_text(value)}")]
    which = ("--name", case.name, "--memory-limit", case.memory_limit, "--repeat-top", str(case.again))
    if case.recorded is not None:
        which = (*which, "--rows", str(case.recorded))
    if case.ranks > 1:
        knobs += ["--ranks", str(case.ranks)]
    return (
        "sweep", *which, "--space", str(case.space),
        "--model", str(made.model), "--data", str(made.prompts), "--reward", made.reward, "--python", python,
        "--max-prompt-length", str(case.longest_prompt), "--max-completion-length", str(case.longest),
        "--effective-batch", str(case.rows), *knobs, "--gpus", "0", "--home", str(out / "home"),
        "--export", str(out / f"search-{case.name}.jsonl.gz"), *more,
    )  # fmt: skip


def _text(value: KnobValue) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _made_up(name: str, shape: tuple[int, int, int, int, int], vocabulary: int, mean: int) -> Architecture:
    """``shape``: layers, width, inner width, heads, heads of keys and values."""
    return Architecture(name, *shape, vocabulary, 256, 1e4, "made up, for tables on a CPU", mean)


CASES = {
    case.name: case
    for case in (
        Case(
            name="cpu-14m-compiled",
            architecture=_made_up("random-14m", (20, 192, 512, 6, 2), 32_768, 8),
            shortest_prompt=8,
            longest_prompt=16,
            longest=32,
            rows=8,
            memory_limit="1583MiB",
            baseline={"micro_batch_size": 4, "num_generations": 4},
        ),
        Case(
            name="cpu-13m-prompts",
            architecture=_made_up("random-13m", (16, 192, 512, 4, 1), 32_768, 6),
            shortest_prompt=24,
            longest_prompt=48,
            longest=24,
            rows=8,
            memory_limit="965MiB",
            baseline={"micro_batch_size": 4, "num_generations": 2},
            again=32,
        ),
        Case(
            name="cpu-14m-wide",
            architecture=_made_up("random-14m-wide", (8, 256, 640, 4, 2), 32_768, 9),
            shortest_prompt=8,
            longest_prompt=24,
            longest=32,
            rows=8,
            memory_limit="1466MiB",
            baseline={"micro_batch_size": 4, "num_generations": 2},
            again=20,
            recorded=200,
        ),
        Case(
            name="cpu-14m-ranks",
            architecture=_made_up("random-14m-ranks", (12, 224, 608, 4, 2), 32_768, 8),
            shortest_prompt=8,
            longest_prompt=16,
            longest=32,
            rows=8,
            memory_limit="1981MiB",
            baseline={"micro_batch_size": 2, "num_generations": 2},
            again=20,
            ranks=2,
        ),
        Case(
            name="cpu-16m-batching",
            architecture=_made_up("random-16m", (10, 256, 704, 8, 4), 32_768, 10),
            shortest_prompt=12,
            longest_prompt=32,
            longest=40,
            rows=8,
            memory_limit="1548MiB",
            baseline={"micro_batch_size": 2, "num_generations": 4},
            again=20,
            recorded=200,
        ),
        Case(
            name="cpu-16m-engines",
            architecture=_made_up("random-16m-deep", (16, 224, 640, 7, 1), 32_768, 12),
            shortest_prompt=10,
            longest_prompt=28,
            longest=48,
            rows=8,
            memory_limit="1500MiB",
            baseline={"micro_batch_size": 4, "num_generations": 4},
            again=20,
            recorded=300,
        ),
        Case(
            name="cpu-18m-prompts",
            architecture=_made_up("random-18m", (10, 256, 768, 8, 2), 40_960, 9),
            shortest_prompt=16,
            longest_prompt=40,
            longest=40,
            rows=8,
            memory_limit="1600MiB",
            baseline={"micro_batch_size": 2, "num_generations": 4},
            again=20,
            recorded=240,
        ),
        Case(
            name="cpu-13m-decoders",
            architecture=_made_up("random-13m-decoders", (14, 192, 576, 6, 3), 36_864, 11),
            shortest_prompt=8,
            longest_prompt=24,
            longest=44,
            rows=8,
            memory_limit="1450MiB",
            baseline={"micro_batch_size": 2, "num_generations": 4},
            again=20,
            recorded=300,
        ),
        Case(
            name="cpu-15m-shares",
            architecture=_made_up("random-15m-shares", (18, 192, 480, 6, 2), 40_960, 8),
            shortest_prompt=8,
            longest_prompt=20,
            longest=40,
            rows=8,
            memory_limit="1580MiB",
            baseline={"micro_batch_size": 2, "num_generations": 2, "attn_implementation": "eager"},
            again=20,
        ),
        Case(
            name="cpu-11m-tokens",
            architecture=_made_up("random-11m", (24, 128, 352, 4, 4), 49_152, 9),
            shortest_prompt=6,
            longest_prompt=12,
            longest=36,
            rows=8,
            memory_limit="1100MiB",
            baseline={"micro_batch_size": 4, "num_generations": 2},
            again=32,
        ),
    )
}
