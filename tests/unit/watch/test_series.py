"""The lines of five frameworks' logs become the same steps; what a log lacks is missing, never made up."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml

from autotune.watch.findings import lacking, look, state_words
from autotune.watch.series import GIB, Series

PUBLIC: dict[str, Any] = yaml.safe_load(Path("tests/fixtures/watch_logs.yaml").read_text())


def read(lines: Iterable[str]) -> Series:
    series = Series()
    series.read(lines)
    return series


def trl(step: int, mean: float, epoch: float = 0.1, **more: float) -> str:
    figures = {"loss": 0.0, "completions/mean_length": mean, "completions/max_length": 2 * mean, "step_time": 9.5}
    return str({**figures, **more, "epoch": epoch})


TRL = {
    "loss": -0.1,
    "completions/mean_length": 210.5,
    "completions/max_length": 441.0,
    "completions/clipped_ratio": 0.25,
}
SWIFT = {**TRL, "memory(GiB)": 52.25, "train_speed(s/it)": 80.0, "elapsed_time": "16m 0s", "epoch": 0.5}


@pytest.mark.parametrize(
    "lines",
    [
        [f"  2%|▏         | 12/600 [16:00<1:00:00, 80s/it]{' ' * 20}{ {**TRL, 'step_time': 80.0, 'epoch': 0.5} }"],
        [str({name: str(value) for name, value in {**TRL, "step_time": 80.0, "global_step": 12}.items()})],
        json.dumps({"max_steps": 600, "log_history": [{**TRL, "step": 12, "step_time": 80.0}]}, indent=2).splitlines(),
        [json.dumps({f"train/{k}": v for k, v in {**TRL, "step_time": 80.0, "global_step": 12}.items()})],
        [json.dumps({**SWIFT, "global_step/max_steps": "11/600", "elapsed_time": "14m 40s"}),
         json.dumps({**SWIFT, "global_step/max_steps": "12/600"})],
        [json.dumps({"step": 12, "data": {"response_length/mean": 210.5, "response_length/max": 441,
                                          "response_length/clip_ratio": 0.25, "timing_s/step": 80.0}})],
        ["\x1b[36m(TaskRunner pid=7)\x1b[0m step:12 - response_length/mean:np.float64(210.5)"
         " - response_length/max:441.0 - response_length/clip_ratio:0.25 - timing_s/step:80.0 - timing_s/gen:1.0"],
    ],
    ids=["trl", "trl-as-words", "trainer_state", "trackio", "ms-swift", "verl-file", "verl-console"],
)  # fmt: skip
def test_every_framework_s_lines_give_the_same_step(lines: list[str]) -> None:
    step = read(lines).steps[-1]
    figures = (step.number, step.mean, step.longest, step.clipped)
    assert figures == (12, 210.5, 441.0, 0.25)
    assert step.seconds == pytest.approx(80.0)


def test_public_lines_of_verl_are_read() -> None:
    first, second = read(PUBLIC["verl_console"]["lines"]).steps
    assert (first.mean, first.longest, first.seconds) == (288.698, 963.0, None)
    assert (second.clipped, second.seconds, second.memory) == (0.004, 96.551, 25.921 * GIB)


def test_a_public_healthy_run_gives_no_alarm_at_any_step() -> None:
    run = PUBLIC["verl_healthy"]
    lines = [json.dumps({"step": row[0], "data": dict(zip(run["columns"], row, strict=True))}) for row in run["rows"]]
    for count in range(1, len(lines) + 1):
        assert [f for f in look(read(lines[:count]), limit=60 * GIB) if f.level] == []
    assert state_words(read(lines)).startswith("step 19: mean 1,901 tokens, longest 7,695, 1 min 4")


def test_a_log_without_lengths_has_no_step_of_theirs() -> None:
    assert read(PUBLIC["ms_swift_without_lengths"]["lines"]).steps == ()
    found = lacking(read([str({"completion_length": 200.0, "epoch": 0.1})]))
    assert any("completions/max_length" in names for names in found)
    assert any("step_time" in names for names in found)


def test_evaluation_and_summaries_are_no_steps() -> None:
    series = read([trl(0, 9.0), str({"train_runtime": 12.0})])
    assert (len(series.steps), series.ended) == (1, True)
    assert (
        read([str({"eval_completions/mean_length": 9.0, "eval_loss": 1.0}), str({"train_runtime": 12.0})]).steps == ()
    )


def test_lines_without_numbers_are_counted_and_a_restart_goes_back() -> None:
    series = read([trl(0, mean, epoch) for mean, epoch in ((10.0, 0.1), (11.0, 0.2), (12.0, 0.3), (21.0, 0.2))])
    assert [(step.number, step.mean) for step in series.steps] == [(1, 10.0), (2, 21.0)]


def test_output_that_a_buffer_parted_from_its_progress_bar_is_counted_by_lines() -> None:
    bar = "10%|█         | 193/1875 [3:53:48<30:25:28, 65.12s/it]"
    series = read([bar, *(trl(0, 100.0 + i, i / 100) for i in range(1, 30))])
    assert [step.number for step in series.steps] == list(range(1, 30))
    assert series.counted
    assert not series.mixed
    assert state_words(series).startswith("line 29:")


def verl(step: int, mean: float) -> str:
    return f"step:{step} - response_length/mean:{mean} - timing_s/step:10.0"


def test_a_restart_repeats_steps_and_the_later_ones_count() -> None:
    series = read([*(verl(i, 100.0) for i in range(1, 61)), *(verl(i, 200.0) for i in range(41, 81))])
    assert [step.number for step in series.steps] == list(range(1, 81))
    assert [step.mean for step in series.steps][38:42] == [100.0, 100.0, 200.0, 200.0]
    assert series.restarts == [(60, 41)]
    assert not series.mixed


def test_two_runs_in_one_log_are_told_apart_from_a_restart() -> None:
    in_turns = [line for i in range(1, 30) for line in (verl(i, 100.0), verl(i, 200.0))]
    apart = [line for i in range(1, 30) for line in (verl(i + 100, 100.0), verl(i, 200.0))]
    assert read(in_turns).mixed
    assert read(apart).mixed
    assert not read([line for line in in_turns[::2] for _ in range(2)]).mixed, "each line twice"


def test_a_line_that_is_cut_off_gives_what_it_has() -> None:
    whole = verl(3, 120.5)
    for end in range(len(whole)):
        for step in read([whole[:end]]).steps:
            assert step.number == 3


def test_the_gpu_s_memory_is_read_where_a_log_names_it() -> None:
    error = "torch.OutOfMemoryError: CUDA out of memory. GPU 0 has a total capacity of 79.25 GiB of which 2 MiB is free"
    assert read([verl(1, 9.0), error]).capacity == 79.25 * GIB
    assert read(["can use total_gpu_memory (79.25GiB) x gpu_memory_utilization"]).capacity == 79.25 * GIB


def test_megabytes_of_other_text_are_no_steps() -> None:
    noise = [
        "step 3 of the proof: let {'a': 1}",
        "step: 4",
        "{'loss': nan}",
        "mean_length",
        "100%|##| 2/2 [00:00<00:00]",
    ]
    assert read(noise).steps == ()
