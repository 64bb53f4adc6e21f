"""A user's own configuration becomes what ``tests/fixtures/readers*.yaml`` say, or is refused in one sentence."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from autotune.errors import UsageError
from autotune.frameworks import Source, framework_named
from tests.support import swift_fields, trl_fields
from tests.support.imports import of
from trainer.frameworks.common.config_entries import Imported
from trainer.frameworks.open_r1.keys import FIELDS

FIXTURES = Path(__file__).parents[2] / "fixtures"
FIELDS_OF: Mapping[str, Mapping[str, Any]] = {
    "trl": trl_fields.FIELDS,
    "open_r1": FIELDS,
    "ms_swift": swift_fields.FIELDS,
    "verl": {},
}
NAMES = {"trl": "grpo.yaml", "open_r1": "recipe.yaml", "ms_swift": "run.sh", "verl": "mine.txt"}
BESIDE = ("accelerate.yaml", "serve.sh")
PROCESSES = {"trl": 1, "open_r1": 0, "ms_swift": 1, "verl": 0}
VERL = """\
algorithm.adv_estimator=grpo
trainer.n_gpus_per_node=2
data.train_batch_size=16
actor_rollout_ref.actor.ppo_mini_batch_size=8
actor_rollout_ref.rollout.n=4
actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=2
"""
NOT_READ = [
    *(("trl", "", *row) for row in of("what_cannot_be_taken_is_one_sentence_with_its_line")),
    *(("ms_swift", "", *row) for row in of("what_is_wrong_is_told_in_one_sentence")),
    *(("ms_swift", "", *row) for row in of("what_cannot_be_read_is_refused_by_its_line")),
    *(("verl", VERL, *row) for row in of("what_a_trial_cannot_honour_is_refused_by_its_line")),
]


def cases() -> Iterator[Mapping[str, Any]]:
    """Yields each case with its bases put before its texts."""
    for path in sorted(FIXTURES.glob("readers*.yaml")):
        found = yaml.safe_load(path.read_text("utf-8"))
        for case in found["cases"]:
            text = found["bases"].get(case.get("base"), "") + case["text"]
            server = found["bases"].get(case.get("server base"), "") + case.get("server", "")
            yield {**case, "text": text, "server": server}


def read(framework: str, text: str, name: str = "", **given: Any) -> Imported:
    source = Source(text, name or NAMES[framework], given.get("accelerate", ""), BESIDE[0], given["server"], BESIDE[1])
    processes, files = given.get("processes", PROCESSES[framework]), given.get("files", {})
    return framework_named(framework).import_config(source, FIELDS_OF[framework], processes, files)


def plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list | tuple) else value


def refusal(framework: str, text: str, name: str = "", *, sentences: int = 1, **given: Any) -> str:
    with pytest.raises(UsageError) as caught:
        read(framework, text, name, **{"server": "", **given})
    message = str(caught.value)
    assert message.startswith((name or NAMES[framework], *BESIDE))
    assert message.endswith(".")
    assert len(message.splitlines()) == sentences
    assert "sentinel" not in message, "a secret"
    return message


@pytest.mark.parametrize("case", list(cases()), ids=lambda case: f"{case['of']}: {case['what']}")
def test_a_configuration_becomes_what_its_framework_makes_of_it(case: Mapping[str, Any]) -> None:
    own = ("what", "of", "base", "server base", "text", "right", "refused")
    given = {key: value for key, value in case.items() if key not in own}
    if "refused" in case:
        message = refusal(case["of"], case["text"], **given)
        assert [words for words in case["refused"] if words not in message] == []
        return
    found = read(case["of"], case["text"], **given)
    for key, right in case["right"].items():
        name, _, part = key.partition(" ")
        value = plain(getattr(found, name))
        if name == "notes":
            said = [words for words in right if any(words in note for note in value)]
            assert said == ([] if part == "without" else right), value
            assert part or len(value) == len(right), value
        elif part == "without":
            assert not set(right) & set(value)
        else:
            assert ({entry: value.get(entry) for entry in right} if part else value) == right


@pytest.mark.parametrize(("framework", "base", "text", "sentence"), NOT_READ)
def test_what_cannot_be_read_is_one_sentence(framework: str, base: str, text: str, sentence: str) -> None:
    assert sentence in refusal(framework, base + text)


@pytest.mark.parametrize(("text", "says"), of("a_mistake_is_one_sentence_with_its_line"))
def test_a_mistake_in_a_recipe_is_one_sentence_with_its_line(text: str, says: str) -> None:
    assert re.search(says, refusal("open_r1", text, processes=8))


@pytest.mark.parametrize(("text", "says"), of("what_cannot_be_read_says_what_to_do"))
def test_a_script_of_trls_that_cannot_be_read_says_what_to_do(text: str, says: str) -> None:
    assert re.search(says, refusal("trl", text, "run.sh"))


@pytest.mark.parametrize(("launcher", "processes"), of("the_launchers_processes_are_counted"))
def test_the_launchers_processes_are_counted(launcher: str, processes: int) -> None:
    found = read("ms_swift", f"{launcher} --rlhf_type grpo --model m", server="")
    assert (found.processes, found.notes) == (processes, ())


@pytest.mark.parametrize(
    ("framework", "text", "accelerate", "named"),
    [
        ("ms_swift", "swift rlhf --rlhf_type grpo \\\n --deepspeed ds.json", "", {"deepspeed": ("ds.json", 2)}),
        ("trl", "beta: 0\ndeepspeed: ds.json\nfsdp_config: '{\"version\": 2}'\n", "", {"deepspeed": ("ds.json", 2)}),
        ("trl", "trl grpo --deepspeed ds/zero2.json", "", {"deepspeed": ("ds/zero2.json", 1)}),
        (
            "trl",
            "beta: 0\n",
            "distributed_type: DEEPSPEED\ndeepspeed_config: {deepspeed_config_file: z.json}\n",
            {"deepspeed_config_file": ("z.json", 2)},
        ),
    ],
)
def test_files_that_a_configuration_names_are_told_with_their_line(
    framework: str, text: str, accelerate: str, named: Mapping[str, tuple[str, int]]
) -> None:
    name = "grpo.yaml" if text.startswith("beta") else "run.sh"
    assert framework_named(framework).named_files(Source(text, name, accelerate, "a.yaml")) == named
