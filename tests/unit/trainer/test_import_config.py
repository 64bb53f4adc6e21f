"""A user's TRL config: what becomes of each key, and one sentence for each thing that cannot be."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from search_spaces.configuration import Resources
from search_spaces.legality.passthrough import check_passthrough
from search_spaces.yaml_text import MAX_BYTES, read
from tests.support.imports import of
from tests.support.properties import examples
from tests.support.trl_fields import FIELDS
from tests.support.trl_keys import handling_of
from trainer.frameworks.common.config_entries import ConfigError, Imported, located
from trainer.frameworks.common.exported import ExportRequest
from trainer.frameworks.common.fields import Field
from trainer.frameworks.common.trainer_keys import KeyHandling
from trainer.frameworks.trl.export import export
from trainer.frameworks.trl.import_config import import_config, named_files, read_keys
from trainer.frameworks.trl.key_handling import for_trial

OWN = """\
# what I train with
model_name_or_path: ./model
dataset_name: ./prompts
dataset_train_split: train
reward_funcs: [rewards.good, accuracy_reward]
reward_weights: [1.0, 0.5]
per_device_train_batch_size: 4
gradient_accumulation_steps: "4"
generation_batch_size: 8
num_generations: 4
learning_rate: 1e-5
beta: 0.04
use_peft: true
lora_target_modules: all-linear
dtype: bfloat16
scale_rewards: false
save_strategy: "no"
chat_template_kwargs: '{"enable_thinking": "false", "budget": "64"}'
model_init_kwargs: {revision: 1e3}
env: {OMP_NUM_THREADS: 2, MY_SWITCH: true, RATE: 1e-3}
output_dir: out
max_completion_length: 64
"""


def imported(text: str, processes: int = 1) -> Imported:
    return import_config(text, "grpo.yaml", FIELDS, processes)


def refusal(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        imported(text)
    message = str(caught.value)
    assert message.startswith("grpo.yaml")
    assert message.endswith(".")
    assert "\n" not in message
    return message


def test_no_key_is_lost_or_counted_twice() -> None:
    found = imported(OWN)
    given_ = set(read_keys(OWN, "grpo.yaml"))
    inputs = {key for key in given_ if handling_of(key) is KeyHandling.INPUT}
    knobs = {key for key in given_ if handling_of(key) is KeyHandling.KNOB}
    assert set(found.passthrough) == given_ - inputs - knobs
    assert {"model_name_or_path", "reward_funcs", "max_completion_length", *found.dataset} == inputs


@pytest.mark.parametrize(("text", "knobs"), of("knobs_are_what_trl_would_make_of_the_keys"))
def test_knobs_are_what_trl_would_make_of_the_keys(text: str, knobs: dict[str, Any] | None) -> None:
    if knobs is None:
        refusal(text)
    else:
        assert imported(text).knobs == knobs


def test_what_is_refused_by_name_is_not_asked_of_trl() -> None:
    """It is told by ``import_config``, together with all that needs TRL's types to be found."""
    assert read_keys("auto_find_batch_size: true\nbeta: 1", "grpo.yaml") == {"beta": 1}
    assert "GRPO refuses it" in refusal("auto_find_batch_size: true")
    assert read_keys("beta: 1e-2\nnot_known: [1, {a: true}]", "g") == {"beta": "1e-2", "not_known": [1, {"a": True}]}


BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "\n".join(
    f"{chr(98 + i)}: &{chr(98 + i)} [{', '.join(['*' + chr(97 + i)] * 9)}]" for i in range(20)
)


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    ("text", "part"),
    [
        (BOMB, ", line 2: aliases (*a) are not allowed"),
        ("beta: &a\n  <<: *a", "aliases"),
        ("datasets: " + "[" * 30_000, "nested more than"),
        ("reward_weights: [" + "1," * 15_000 + "]", "more than 10000 values"),
        ("\n".join(f"k{i}: 1" for i in range(4900)), "no key k0"),
        ("model_init_kwargs: '" + '{"a":' * 9000 + "'", "expected a mapping"),
        ("model_init_kwargs: '" + '{"a":' * 900 + "1" + "}" * 900 + "'", "model_init_kwargs: "),
        ("model_init_kwargs: '" + '{"a":' * 90 + "1" + "}" * 90 + "'", "model_init_kwargs: it is nested too deep"),
        ("model_init_kwargs: '" + '{"a": "\\ud800"}' + "'", "a surrogate or NUL"),
        ("model_init_kwargs: '" + '{"a": 1e999}' + "'", "expected a finite number"),
        ("seed: " + "9" * 5000, "is not a number that can be read"),
        ("beta: 0\nrun_name: a\udcff", ", line 2: this is not UTF-8 text."),
        ("x: " + "y" * MAX_BYTES, "bytes are more than a config may have"),
    ],
    ids=lambda value: value[:20].encode("ascii", "replace").decode(),
)
def test_a_hostile_file_is_refused_before_it_costs_anything(text: str, part: str) -> None:
    with pytest.raises(ConfigError) as caught:
        imported(text)
    assert part in str(caught.value)


LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
NESTED = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=8), inner, max_size=2),
    max_leaves=4,
)
TEXTS = (
    st.text(max_size=120)
    | st.tuples(st.sampled_from(sorted(FIELDS)), st.text(max_size=30)).map(": ".join)
    | st.dictionaries(st.sampled_from([*FIELDS, "env"]), NESTED, max_size=4).map(yaml.safe_dump)
)


@examples(100, 300)
@given(TEXTS)
def test_any_text_is_a_config_or_a_sentence(text: str) -> None:
    try:
        found = imported(text)
    except ConfigError as error:
        sentence = str(error)
    else:
        json.dumps([found.knobs, found.passthrough, found.dataset], allow_nan=False).encode()
        return
    assert all(line.startswith("grpo.yaml") for line in sentence.splitlines())


def test_all_mistakes_of_a_file_are_told_at_once_and_a_flood_is_cut() -> None:
    text = "model_name_or_path: [1]\nnum_generations: many\nper_device_train_batch_size: 0\nwarmup_ratio: 0.1\n"
    with pytest.raises(ConfigError) as caught:
        imported(text)
    lines = str(caught.value).splitlines()
    assert [line.partition(":")[0] for line in lines] == [f"grpo.yaml, line {number}" for number in (4, 1, 2, 3)]
    with pytest.raises(ConfigError) as caught:
        imported("".join(f"no_such_{number}: 1\n" for number in range(500)))
    assert len(str(caught.value).splitlines()) == 20


PLAIN = {
    "bool": st.booleans(),
    "int": st.integers(-(2**62), 2**62),
    "float": st.floats(-1e6, 1e6),
    "str": st.text(st.characters(codec="ascii", exclude_categories=("C",)), max_size=12),
    "list[str]": st.lists(st.text(st.characters(codec="ascii", exclude_categories=("C",)), max_size=6), max_size=3),
    "list[float]": st.lists(st.floats(0, 9), max_size=3),
    "dict": st.dictionaries(st.sampled_from(["a", "b"]), st.integers(0, 9) | st.booleans(), max_size=2),
    "none": st.none(),
}


@st.composite
def workloads(draw: st.DrawFn) -> dict[str, Any]:
    names = sorted(name for name in FIELDS if handling_of(name) in (KeyHandling.WORKLOAD, KeyHandling.MEASURING))
    chosen = draw(st.lists(st.sampled_from(names), unique=True, max_size=8))
    return {name: draw(_value_of(FIELDS[name])) for name in chosen if name != "lr_scheduler_type"}


def _value_of(field: Field) -> st.SearchStrategy[Any]:
    if field.choices:
        return st.sampled_from(field.choices)
    return st.one_of(*(PLAIN[kind] for kind in sorted(field.kinds) if kind in PLAIN))


def test_a_server_of_the_users_is_not_given_to_a_trial() -> None:
    """Its trials would talk to a server that serves another run."""
    own = {"vllm_server_base_url": "http://a", "vllm_server_host": "a", "vllm_server_port": 9, "vllm_group_port": 7}
    assert for_trial({**own, "vllm_server_timeout": 5}) == {"vllm_server_timeout": 5}


@examples(50, 150)
@given(workloads())
def test_the_workload_passes_through_unchanged(values: dict[str, Any]) -> None:
    found = imported(yaml.safe_dump(values, sort_keys=False) if values else "beta: 0.5").passthrough
    assert repr(found) == repr(values or {"beta": 0.5})


@examples(often=150, full=500)
@given(st.text("0123456789eE+-._:xobn ynofTrueals~'\"", max_size=10))
def test_scalars_are_what_trls_yaml_reader_makes_of_them(text: str) -> None:
    """Otherwise a file would mean one thing here and another in the user's own run."""
    document = f"k: {text}\n"
    try:
        theirs = yaml.safe_load(document)["k"]
    except (yaml.YAMLError, ValueError, OverflowError, KeyError, TypeError):
        return
    if isinstance(theirs, bool | int | float | str | None):
        assert repr(read(document.encode(), "f", exact=True).plain) == repr({"k": theirs})


def test_sentences_about_the_keys_get_their_line() -> None:
    found = imported("use_peft: true\nlora_target_modules: [lm_head]\nsync_ref_model: true\nbeta: 0.1\n")
    violations = check_passthrough(found.passthrough, found.knobs, Resources())
    sentences = [located(violation.sentence, "grpo.yaml", found.lines) for violation in violations]
    assert [sentence.partition(": ")[0] for sentence in sentences] == ["grpo.yaml, line 3", "grpo.yaml, line 2"]
    assert all(sentence.endswith(".") and not sentence.endswith("..") for sentence in sentences)
    assert located("Something else.", "grpo.yaml", found.lines) == "grpo.yaml: Something else."


@pytest.mark.parametrize("name", ["grpo.yaml", "run.sh"])
def test_what_trl_hands_on_to_the_launch_is_read_from_the_same_place(name: str) -> None:
    """``trl grpo`` gives ``accelerate launch`` what its own parser does not know (trl/cli/commands/training.py)."""
    given = {"num_processes": "3", "accelerate_config": "zero3", "num_generations": "4"}
    script = "trl grpo " + " ".join(f"--{key} {value}" for key, value in given.items())
    text = script if name == "run.sh" else "".join(f"{key}: {value}\n" for key, value in given.items())
    found = import_config(text, name, FIELDS)
    assert (found.processes, found.knobs["zero_stage"], found.knobs["num_generations"]) == (3, 3, 4)
    assert not {"num_processes", "accelerate_config"} & {*found.passthrough, *read_keys(text, name)}
    with pytest.raises(ConfigError, match="zero33 is no file, and TRL has zero1, zero2"):
        import_config(text.replace("zero3", "zero33"), name, FIELDS)
    own = text.replace("zero3", "my/file.yaml")
    assert named_files(own, name)["accelerate_config"][0] == "my/file.yaml"
    launch = {"accelerate_config": "distributed_type: MULTI_GPU\nnum_processes: 5\n"}
    assert import_config(own, name, FIELDS, files=launch).processes == 3, "a number of its own goes before the file's"
    without = own.replace("num_processes: 3\n", "").replace("--num_processes 3 ", "")
    assert import_config(without, name, FIELDS, files=launch).processes == 5


LAUNCH = """accelerate launch --num_processes 2 grpo.py --model_name_or_path org/model --dataset_name org/prompts \\
  --reward_funcs think_format_reward --per_device_train_batch_size 4 --use_peft --lora_target_modules q_proj v_proj
"""


def test_an_export_beside_a_script_is_a_whole_file() -> None:
    found = import_config(LAUNCH, "run.sh", FIELDS)
    wanted = ExportRequest(
        title="t", configuration=found.knobs, python="python", model="org/model", rewards=(), rows_per_update=8,
        max_completion_length=64, passthrough=found.passthrough, user_config=LAUNCH, own_data=True,
    )  # fmt: skip
    made = export(wanted)
    assert "lora_target_modules" in made.files["grpo.yaml"]
    assert made.prompts, "it cannot name the script's own prompts"
