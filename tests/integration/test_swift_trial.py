"""Real ms-swift trials on a CPU, in an environment of its own."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.not_none import not_none
from tests.support.swift_fields import RECORDED
from tests.support.swift_trials import build_tiny, run_trial, swift_python, swift_spec
from tests.support.trl_trials import LENGTHS, PLAIN, QUIET, START, reward_file
from trainer.child.contract import (
    CycleKind,
    FailureReason,
    Phase,
    Pool,
    Protocol,
    Result,
    RunPaths,
    read_result,
    write_atomic,
)

pytestmark = [pytest.mark.full, pytest.mark.frameworks, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny(tmp_path_factory.mktemp("tiny"))


def test_a_trial_is_measured_cycle_by_cycle(tiny: Path, tmp_path: Path) -> None:
    ran = run_trial(tmp_path / "trial", swift_spec(tiny, reward_file(tmp_path, PLAIN)))
    assert ran.result.ok, (ran.result.message, ran.paths.log.read_text()[-3000:])
    kinds = [cycle.cycle_kind for cycle in ran.cycles]
    assert kinds == [CycleKind.WARMUP, CycleKind.RECORDED, CycleKind.RECORDED, CycleKind.MAXIMUM]
    for cycle in ran.cycles:
        assert (cycle.rows, cycle.updates, cycle.groups) == (16, 1, 4)
        assert sum(cycle.phases.values()) == pytest.approx(cycle.seconds, rel=0.01)
        for phase in (Phase.GENERATE, Phase.REWARD, Phase.LOGPROB, Phase.UPDATE):
            assert cycle.phases[phase.value] > 0, (phase, cycle.phases)
        assert cycle.completion_tokens == sum(cycle.lengths)
        assert 0 < cycle.prompt_tokens < cycle.computed_tokens
        assert cycle.loss is not None
        assert cycle.reward_mean is not None
    for cycle in ran.of(CycleKind.RECORDED):
        assert sorted(cycle.lengths) == sorted(LENGTHS)
    assert set(ran.of(CycleKind.MAXIMUM)[0].lengths) == {16}
    worst = not_none(ran.worst_case)
    assert (worst.rows, worst.prompt_tokens, worst.completion_tokens) == (4, 48, 16)
    assert ran.result.data["versions"]["ms-swift"].startswith("4.6.")


def test_two_processes_share_a_trial(tiny: Path, tmp_path: Path) -> None:
    knobs = {"micro_batch_size": 2, "gradient_accumulation_steps": 4}
    spec = replace(swift_spec(tiny, reward_file(tmp_path, PLAIN), knobs=knobs), world_size=2)
    ran = run_trial(tmp_path / "trial", spec)
    assert ran.result.ok, (ran.result.message, ran.paths.log.read_text()[-3000:])
    for rank in (0, 1):
        cycles = [cycle for cycle in ran.cycles if cycle.rank == rank]
        assert [cycle.index for cycle in cycles] == [0, 1, 2, 3]
        assert all((cycle.rows, cycle.updates) == (16, 1) for cycle in cycles)
        assert all(cycle.phases[Phase.WAIT.value] > 0 for cycle in cycles)
    assert sorted(next(c for c in ran.cycles if c.index == 1).lengths) == sorted(LENGTHS)


def test_the_same_tokens_are_trained_on_as_in_trl(tiny: Path, tmp_path: Path) -> None:
    """Plain prompts go to the model as they are: byte by byte, so their length is the prompt's own."""
    prompts = [json.loads(line)["prompt"] for line in (tiny / "prompts.jsonl").read_text().splitlines()]
    ran = run_trial(tmp_path / "trial", swift_spec(tiny, reward_file(tmp_path, PLAIN), replace(QUIET, natural=1)))
    assert ran.result.ok, ran.result.message
    shortest, longest = (16 * f(len(p) for p in prompts) for f in (min, max))
    for cycle in ran.cycles[1:]:
        assert shortest <= cycle.prompt_tokens <= longest


def test_smaller_log_prob_passes_change_nothing_but_memory(tiny: Path, tmp_path: Path) -> None:
    reward = reward_file(tmp_path, PLAIN)
    whole = run_trial(tmp_path / "whole", swift_spec(tiny, reward))
    parts = run_trial(tmp_path / "parts", swift_spec(tiny, reward, knobs={"logprob_rows": 1}))
    assert parts.result.ok, parts.result.message
    for one, other in zip(whole.cycles, parts.cycles, strict=True):
        assert one.lengths == other.lengths
        assert one.loss == pytest.approx(other.loss, abs=1e-4)


def test_what_ms_swift_refuses_is_told_as_illegal(tiny: Path, tmp_path: Path) -> None:
    spec = swift_spec(tiny, reward_file(tmp_path, PLAIN))
    ran = run_trial(tmp_path / "trial", replace(spec, settings={**spec.settings, "num_generations": 5}))
    assert not ran.result.ok
    assert ran.result.reason is FailureReason.ILLEGAL
    assert "must be evenly divisible by num_generations" in ran.result.message


def test_settings_that_make_other_rows_than_the_trial_is_of_are_refused(tiny: Path, tmp_path: Path) -> None:
    """Else its figures would stand beside those of another batch."""
    spec = swift_spec(tiny, reward_file(tmp_path, PLAIN))
    ran = run_trial(tmp_path / "trial", replace(spec, settings={**spec.settings, "gradient_accumulation_steps": 2}))
    assert (ran.result.reason, ran.result.message) == (
        FailureReason.ILLEGAL,
        "these settings make 8 rows per update, the trial is of 16",
    )
    assert not ran.cycles


def test_a_reward_that_raises_is_told_as_one(tiny: Path, tmp_path: Path) -> None:
    ran = run_trial(tmp_path / "trial", swift_spec(tiny, reward_file(tmp_path, "raise KeyError('solution')")))
    assert ran.result.reason is FailureReason.REWARD_ERROR
    assert ran.result.phase is Phase.REWARD


def test_memory_beyond_the_backstop_is_an_oom_of_the_host(tiny: Path, tmp_path: Path) -> None:
    """Three eighths of a gigabyte: enough to load, and the worst case asks for more at one go."""
    spec = swift_spec(
        tiny,
        reward_file(tmp_path, PLAIN),
        Protocol(warmup=1, recorded=1, lengths=(64,)),
        max_completion_length=512,
        memory_limit=384 << 20,
        knobs={"micro_batch_size": 16, "attn_implementation": "eager"},
    )
    ran = run_trial(tmp_path / "trial", spec)
    assert (ran.result.reason, ran.result.pool) == (FailureReason.OOM, Pool.HOST), ran.result.detail
    assert ran.result.phase in (Phase.GENERATE, Phase.LOGPROB, Phase.UPDATE)
    assert not ran.cycles


def test_the_arguments_are_those_the_installed_ms_swift_has(tmp_path: Path) -> None:
    found = described(tmp_path, {})
    assert found.ok
    assert found.data["ms_swift"].startswith("4.6.")
    assert found.data["fields"] == RECORDED["fields"]


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"num_generations": ["4"], "rlhf_type": ["grpo"]}, ""),
        ({"num_infer_workers": ["2"]}, "ms-swift does not know --num_infer_workers 2"),
        ({"num_generations": ["many"]}, "invalid int value"),
        ({"vllm_mode": ["both"]}, "invalid choice"),
        ({"megatron.rlhf_type": ["grpo"], "megatron.tensor_model_parallel_size": ["2"]}, ""),
        ({"megatron.per_device_train_batch_size": ["2"]}, "ms-swift does not know --per_device_train_batch_size 2"),
        ({"megatron.recompute_granularity": ["some"]}, "invalid choice"),
    ],
)
def test_what_its_parser_refuses_is_told(tmp_path: Path, keys: dict[str, list[str]], said: str) -> None:
    found = described(tmp_path, {"config": keys})
    assert found.ok is (said == "")
    assert said in found.message


def described(folder: Path, wanted: dict[str, object]) -> Result:
    paths = RunPaths(folder)
    write_atomic(paths.config, json.dumps({"framework": "ms_swift", **wanted}))
    subprocess.run([swift_python(), str(START), "describe", "--directory", str(folder)], check=False, cwd=folder)
    return read_result(paths.result)


CHATML = (
    "{% if messages[0]['role'] != 'system' %}<|im_start|>system\nBe short.<|im_end|>\n{% endif %}"
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
AROUND = "<|im_start|>system\nBe short.<|im_end|>\n<|im_start|>user\n<|im_end|>\n<|im_start|>assistant\n"
"""What it puts around a question."""


def talking(tiny: Path, folder: Path, template: str) -> Path:
    """The tiny model with a chat template, and its prompts as messages."""
    shutil.copytree(tiny, folder)
    (folder / "model" / "chat_template.jinja").write_text(template)
    prompts = [json.loads(line) for line in (folder / "prompts.jsonl").read_text().splitlines()]
    rows = [{**row, "prompt": [{"role": "user", "content": row["prompt"]}]} for row in prompts]
    (folder / "prompts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def test_conversations_are_trained_on_with_the_tokenizers_own_words_where_ms_swift_has_them(
    tiny: Path, tmp_path: Path
) -> None:
    """``template_backend jinja`` would fail where a completion's tokens are put into a message."""
    made = talking(tiny, tmp_path / "chatml", CHATML)
    spec = swift_spec(made, reward_file(tmp_path, PLAIN), replace(QUIET, natural=1), max_prompt_length=240)
    ran = run_trial(tmp_path / "trial", spec)
    assert ran.result.ok, (ran.result.message, ran.paths.log.read_text()[-3000:])
    added = ran.result.data["arguments"]
    assert (added["template"], added["system"]) == ("chatml", "Be short.")
    contents = [json.loads(line)["prompt"][0]["content"] for line in (made / "prompts.jsonl").read_text().splitlines()]
    shortest, longest = (16 * (len(AROUND) + pick(len(text) for text in contents)) for pick in (min, max))
    for cycle in ran.of(CycleKind.RECORDED):
        assert shortest <= cycle.prompt_tokens <= longest, "each byte of the template is a token of this model"


def test_a_chat_template_that_ms_swift_has_not_is_the_users_to_name(tiny: Path, tmp_path: Path) -> None:
    made = talking(tiny, tmp_path / "other", "{% for message in messages %}[{{ message['content'] }}]{% endfor %}")
    ran = run_trial(tmp_path / "trial", swift_spec(made, reward_file(tmp_path, PLAIN)))
    assert (ran.result.ok, ran.result.reason) == (False, FailureReason.ILLEGAL)
    assert ran.result.message.endswith("say which of ms-swift's templates it is, by `template`")
