"""What is exported against verl 0.9.1 itself: its own Hydra configuration, its own checks, its own file logger.

``AUTOTUNE_VERL_PYTHON`` names an interpreter that has verl; ``make env-verl`` makes one.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml

from tests.support.verl_cases import Combination, anything, legal
from trainer.child.contract import CycleKind, Protocol, RewardSpec, parse_record
from trainer.child.contract.codec import dumps
from trainer.child.frameworks.verl import StepLayout, cycle_of
from trainer.child.frameworks.verl.course import data_of
from trainer.frameworks.common.config_entries import ConfigError
from trainer.frameworks.common.exported import HERE, RUN
from trainer.frameworks.common.fields import fields_of
from trainer.frameworks.verl import export
from trainer.frameworks.verl.hydra import parsed, split
from trainer.frameworks.verl.import_config import import_config
from trainer.frameworks.verl.unknown_keys import KEYS

ROOT = Path(__file__).resolve().parents[2]
CHECKS = ROOT / "tests" / "support" / "verl_checks.py"
PYTHON = os.environ.get("AUTOTUNE_VERL_PYTHON", "")

pytestmark = [
    pytest.mark.full,
    pytest.mark.frameworks,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(not PYTHON, reason="AUTOTUNE_VERL_PYTHON names no interpreter (make env-verl)"),
]

LEGAL = 220
WILD = 200
REASONS = {
    "must be divisible by minimal possible batch size": "verl_rollout_rows",
    "must be >= actor.ppo_mini_batch_size": "verl_rollout_covers_update",
    "you must enable `use_remove_padding`": "sequence_parallel",
}
"""What verl says -> the rule that has to have said it before."""
STRINGS = ("a b", "it's", 'say "x"', "a,b", "[x]", "{y}", "a=b", "x\\", "\\'", "1", "1e3", "true", "null", "", "ü 漢")


class Verl:
    """One process of verl's interpreter, asked line by line: it takes long to import."""

    def __init__(self, said: Path) -> None:
        environment = {**os.environ, "HYDRA_FULL_ERROR": "1", "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(ROOT)}
        self._said = said
        with said.open("w") as errors:
            self._process = subprocess.Popen(
                [PYTHON, str(CHECKS)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True,
                env=environment,
            )  # fmt: skip

    def ask(self, question: dict[str, Any]) -> Any:
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, self._said.read_text()[-4000:]
        return json.loads(answer)

    def compose(self, overrides: list[str]) -> dict[str, Any]:
        found = self.ask({"compose": overrides})
        assert isinstance(found, dict)
        return found

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


@pytest.fixture(scope="module")
def verl(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Verl]:
    process = Verl(tmp_path_factory.mktemp("verl") / "stderr.txt")
    yield process
    process.end()


def overrides(combination: Combination, here: str = "/exported", **changes: Any) -> list[str]:
    argv = export(combination.wanted(**changes)).command.argv
    return [word.replace(HERE, here) for word in argv[argv.index("verl.trainer.main_ppo") + 1 :]]


def test_verl_composes_and_accepts_every_legal_combination(verl: Verl) -> None:
    random = Random(8)
    combinations = [legal(random, modes=True) for _ in range(LEGAL)]
    assert len({combination.configuration.key for combination in combinations}) == LEGAL
    for combination in combinations:
        given = overrides(combination)
        answer = verl.compose(given)
        assert answer["error"] == "", combination.configuration
        meant = dict(split(word) for word in given)
        same = {key: answer["values"][key] for key in meant if not key.startswith("hydra.")}
        assert same == {key: value for key, value in meant.items() if key in same}
        kinds = {key: type(value) for key, value in same.items()}
        assert kinds == {key: type(meant[key]) for key in same}


def test_what_verl_refuses_the_rules_have_refused_for_the_same_reason(verl: Verl) -> None:
    random = Random(9)
    met = dict.fromkeys(REASONS, 0)
    for combination in (anything(random) for _ in range(WILD)):
        answer = verl.compose(overrides(combination))
        reason = next((text for text in REASONS if text in answer["error"]), "")
        assert answer["error"] == "" or reason, answer["error"]
        if reason:
            met[reason] += 1
            assert REASONS[reason] in combination.rules, (answer["error"], combination.configuration)
    assert min(met.values()) >= 5, met


def test_what_a_user_can_get_wrong_in_words_is_refused_by_verl_too(verl: Verl) -> None:
    """The rest of what verl refuses: what an import refuses by name, so that a trial never says it."""
    base = overrides(legal(Random(1)))
    wrong = {
        "actor_rollout_ref.rollout.mode=sync": "Rollout mode 'sync' has been removed",
        "actor_rollout_ref.rollout.pipeline_model_parallel_size=2": "not implemented pipeline_model_parallel_size > 1",
        "actor_rollout_ref.actor.no_such_key=1": "Could not override 'actor_rollout_ref.actor.no_such_key'",
    }
    for word, text in wrong.items():
        assert text in verl.compose([*base, word])["error"]
        if "no_such_key" not in word:
            with pytest.raises(ConfigError):
                import_config("\n".join([*base, word]), "x")


def test_verls_own_keys_are_known_and_no_others(verl: Verl) -> None:
    fields = fields_of(verl.ask({"describe": 1}))
    assert set(fields) <= KEYS, sorted(set(fields) - KEYS)
    of_megatron = re.compile(r"megatron|\.optim\.|\.mbridge_config$|\.nccl_timeout$")
    assert [key for key in KEYS.difference(fields) if not of_megatron.search(key)] == []
    given = overrides(legal(Random(7)))
    found = import_config("\n".join(given), "x")
    assert found.knobs
    keys = [word.partition("=")[0] for word in given]
    ours = [key for key in keys if key in fields]
    added = [key for key in keys if key.startswith(("++", "hydra."))]
    assert len(ours) + len(added) == len(keys), sorted(set(keys) - {*ours, *added})
    assert len(ours) > 60
    with pytest.raises(ConfigError, match=r"no key data\.train_batchsize; did you mean data\.train_batch_size"):
        import_config("\n".join([*given, "data.train_batchsize=3"]), "x")


def test_hydra_reads_our_words_as_we_wrote_them(verl: Verl) -> None:
    values = [*STRINGS, [*STRINGS[:4], 1, 0.5, None, True], {"a": "b c", "d": [1, "e,f"]}, 1e-6, -3, 10**12]
    combination = legal(Random(2))
    passthrough = {f"data.mine_{number}": value for number, value in enumerate(values)}
    given = overrides(combination, passthrough=passthrough)
    answer = verl.compose(given)
    assert answer["error"] == ""
    assert {key: answer["values"][key] for key in passthrough} == passthrough


def test_hydra_reads_other_peoples_words_as_we_do(verl: Verl) -> None:
    texts = [
        *("1", "1e-6", "1.", ".5", "1_000", "True", "NULL", "a/b", "'1'", '"a b"', "[a, 1,[x]]", "{a:1, b:{c: x}}"),
        *(r"a\,b", r"'it\'s'", "[]", "{}", "a b", "01", "1.5b", r"'c:\\x'", '"x\\\\"', "-1", "+2", "a-b_c", "s3://b/c"),
    ]
    base = overrides(legal(Random(3)))
    found = verl.compose([*base, *(f"++data.mine_{number}={text}" for number, text in enumerate(texts))])
    assert found["error"] == ""
    assert [found["values"][f"data.mine_{number}"] for number in range(len(texts))] == [parsed(t) for t in texts]


def test_verl_reads_the_exported_prompts_and_scores_by_the_exported_reward(verl: Verl, tmp_path: Path) -> None:
    own = "def score(completions, answer, **more):\n    return [float(c == a) for c, a in zip(completions, answer)]\n"
    (tmp_path / "own.py").write_text(own)
    rewards = (RewardSpec("file", "score", path=str(tmp_path / "own.py")),)
    for name, text in export(legal(Random(6)).wanted(rewards=rewards)).files.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "prompts").mkdir()
    rows = [{"prompt": "1+1", "answer": "2"}, {"prompt": "1+2", "answer": "3"}]
    (tmp_path / "prompts" / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    given = overrides(legal(Random(6)), rewards=rewards, here=str(tmp_path))
    answers = verl.ask({"train": given, "solutions": ["2", "2"]})
    assert [answer["score"] for answer in answers] == [1.0, 0.0]
    assert answers[0]["prompt"] == [{"role": "user", "content": "1+1"}]


def test_figures_of_verls_own_file_logger(verl: Verl, tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    truth = verl.ask({"log": str(path)})
    plan = StepLayout(rows=16, updates=2, epochs=1, packed=True, warmup=1)
    steps = [data_of(line, number) for number, line in enumerate(path.read_text().splitlines(), 1)]
    cycles = [cycle_of(data, at, plan) for at, data in enumerate(d for d in steps if "timing_s/step" in d)]
    assert [cycle.cycle_kind for cycle in cycles] == [CycleKind.WARMUP, CycleKind.NATURAL, CycleKind.NATURAL]
    for cycle, (prompt, completion, score) in zip(cycles, truth, strict=True):
        assert (cycle.prompt_tokens, cycle.completion_tokens) == (prompt, completion)
        assert cycle.computed_tokens == prompt + completion
        assert cycle.useful_share == 1
        assert cycle.reward_mean == pytest.approx(score)
        assert cycle.phases == {"generate": 4.0, "logprob": 1.5, "update": 3.0, "sync": 0.75, "idle": 0.75}
        assert (cycle.rows, cycle.updates, cycle.seconds) == (16, 2, 10.0)
        assert cycle.peaks["cycle"].device_allocated == 3 << 29
        assert parse_record(dumps(cycle)) == cycle


def test_the_plan_of_a_step_comes_from_what_verl_was_told() -> None:
    combination = legal(Random(5))
    keys = dict(split(word) for word in overrides(combination))
    plan = StepLayout.of(keys, Protocol(warmup=2))
    values = combination.configuration
    assert plan.rows == combination.ranks * values["micro_batch_size"] * values["steps_per_generation"]
    assert plan.updates == values["steps_per_generation"] // values["gradient_accumulation_steps"]
    assert plan.warmup == 2


def test_the_script_is_verls_own_command(tmp_path: Path) -> None:
    """Hydra's ``--cfg job`` prints what verl would train with, and trains nothing."""
    combination = legal(Random(4))
    folder = tmp_path / "a folder, with = signs"
    folder.mkdir()
    for name, text in export(combination.wanted(python=PYTHON)).files.items():
        (folder / name).write_text(text)
    done = subprocess.run(
        ["sh", str(folder / RUN), "--cfg", "job"], capture_output=True, text=True, check=False, cwd="/",
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    printed = yaml.safe_load(done.stdout)  # a long path with spaces is folded over lines
    assert printed["data"]["train_files"] == f"{folder}/prompts/train.jsonl"
    assert printed["reward"]["custom_reward_function"]["path"] == f"{folder}/autotune_verl_reward.py"
