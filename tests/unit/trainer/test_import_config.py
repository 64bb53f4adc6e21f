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
from tests.support.properties import examples
from tests.support.trl_fields import FIELDS
from tests.support.trl_keys import handling_of
from trainer.frameworks.common.config_entries import ConfigError
from trainer.frameworks.common.fields import Field
from trainer.frameworks.common.imported import Imported, located
from trainer.frameworks.common.key_handling import KeyHandling
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


def test_each_key_goes_where_it_belongs() -> None:
    found = imported(OWN)
    assert found.knobs == {
        "micro_batch_size": 4,
        "gradient_accumulation_steps": 4,
        "steps_per_generation": 2,
        "num_generations": 4,
        "master_weights": "bf16",
    }
    assert found.passthrough == {
        "reward_weights": [1.0, 0.5],
        "learning_rate": 1e-5,
        "beta": 0.04,
        "use_peft": True,
        "lora_target_modules": "all-linear",
        "scale_rewards": False,
        "save_strategy": "no",
        "chat_template_kwargs": {"enable_thinking": False, "budget": 64},
        "model_init_kwargs": {"revision": "1e3"},
        "env": {"OMP_NUM_THREADS": "2", "MY_SWITCH": "True", "RATE": "1e-3"},
        "output_dir": "out",
    }
    assert (found.model, found.rewards) == ("./model", ("rewards.good", "accuracy_reward"))
    assert found.dataset == {"dataset_name": "./prompts", "dataset_train_split": "train"}
    assert found.max_completion_length == 64
    assert (found.lines["beta"], found.lines["env.RATE"], found.text) == (12, 20, OWN)


def test_no_key_is_lost_or_counted_twice() -> None:
    found = imported(OWN)
    given_ = set(read_keys(OWN, "grpo.yaml"))
    inputs = {key for key in given_ if handling_of(key) is KeyHandling.INPUT}
    knobs = {key for key in given_ if handling_of(key) is KeyHandling.KNOB}
    assert set(found.passthrough) == given_ - inputs - knobs
    assert {"model_name_or_path", "reward_funcs", "max_completion_length", *found.dataset} == inputs


def test_a_mixture_is_a_dataset() -> None:
    found = imported("datasets:\n  - path: a\n    fraction: 0.5\n  - path: b\nstreaming: false\n")
    assert found.dataset == {"datasets": [{"path": "a", "fraction": 0.5}, {"path": "b"}], "streaming": False}
    assert found.passthrough == {}


@pytest.mark.parametrize(
    ("text", "knobs"),
    [
        ("beta: 0", {}),
        ("bf16: true", {"precision": "bf16"}),
        ("fp16: false", {"precision": "bf16"}),
        ("bf16: null\nfp16: true", {"precision": "fp16"}),
        ("bf16: 'no'", {"precision": "fp32"}),
        ("bf16: false\nfp16: true", {"precision": "fp16"}),
        ("use_vllm: false", {"rollout_engine": "transformers"}),
        ("use_vllm: true", {"rollout_engine": "vllm"}),
        ("vllm_max_model_length: null", {}),
        ("vllm_enable_sleep_mode: true", {"sleep_level": 2}),
        ("vllm_mode: server", {"rollout_mode": "server"}),
        ("use_transformers_continuous_batching: true", {"continuous_batching": True}),
        (
            "transformers_continuous_batching_config: {max_memory_percent: 0.4, scheduler: fifo}",
            {"continuous_batching_memory": 0.4},
        ),
        ("optim: adamw_bnb_8bit", {"optimizer": "adamw_bnb_8bit"}),
        ("deepspeed: null", {"zero_stage": 0}),
        ("deepspeed: {zero_optimization: {stage: 3, overlap_comm: auto}}", {"zero_stage": 3}),
        ("fsdp: ''", {"fsdp": "none"}),
        ("fsdp: true", {"fsdp": "fsdp2"}),
        ("fsdp: full_shard auto_wrap", {"fsdp": "fsdp2", "fsdp_reshard_after_forward": True}),
        (
            "fsdp: true\nfsdp_config: {fsdp_version: 2, fsdp_cpu_offload: true, fsdp_reshard_after_forward: 'false'}",
            {"fsdp": "fsdp2", "fsdp_offload": True, "fsdp_reshard_after_forward": False},
        ),
        ("gradient_checkpointing_kwargs: {use_reentrant: true}", {"checkpointing_reentrant": True}),
        ("model_init_kwargs: {use_kernels: true}", {"hub_kernels": True}),
        ("steps_per_generation: null", {}),
        ("steps_per_generation: none_", None),
        ("tf32: 'null'", None),
        ("pad_to_multiple_of: auto", {}),
        ("pad_to_multiple_of: '64'", {"pad_to_multiple": 64}),
        ("torch_empty_cache_steps: none", {"empty_cache_steps": 0}),
        (
            "torch_compile: false\ntorch_compile_mode: default",
            {"torch_compile": True, "torch_compile_mode": "default"},
        ),
        ("attn_implementation: kernels-community/flash-attn", {"attn_implementation": "kernels-community/flash-attn"}),
        ("generation_batch_size: 24", {"steps_per_generation": 3}),
    ],
)
def test_knobs_are_what_trl_would_make_of_the_keys(text: str, knobs: dict[str, Any] | None) -> None:
    if knobs is None:
        refusal(text)
    else:
        assert imported(text).knobs == knobs


def test_generation_batch_is_shared_by_the_processes() -> None:
    text = "per_device_train_batch_size: 2\ngeneration_batch_size: 16\n"
    assert imported(text, processes=4).knobs["steps_per_generation"] == 2
    with pytest.raises(ConfigError, match="expected a multiple of 6"):
        imported(text, processes=3)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("beta: 0\nnum_generation: 4", ", line 2: TRL's GRPO script has no key num_generation; did you mean num_gener"),
        ("zzz: 4", ", line 1: TRL's GRPO script has no key zzz; remove it."),
        ("max_prompt_length: 5", ", line 1: max_prompt_length: TRL has no such key; filter the prompts by length"),
        ("torch_dtype: float32", "use dtype"),
        ("num_machines: 2", "belongs to accelerate's launch"),
        ("per_device_train_batch_size: 8.0", "per_device_train_batch_size: expected a whole number, got 8.0."),
        ("per_device_train_batch_size: 0", "expected a whole number from 1 to 65536, got 0."),
        ("per_device_train_batch_size:", "expected a whole number, got nothing."),
        ("num_generations: null", "num_generations: expected a whole number from 1 to 4096, got nothing."),
        ("gradient_checkpointing: 1", "gradient_checkpointing: expected true or false, got 1."),
        ("beta: lots", "beta: expected a number, got lots."),
        ("beta: [0.1]", "beta: expected a number, got a list with 0.1."),
        ("learning_rate: .nan", "expected a finite number"),
        ("learning_rate: '1e999'", "expected a number, got 1e999."),
        ("seed: 99999999999999999999", "at most 63 bits"),
        ("seed: " + "9" * 5000, "is not a number that can be read"),
        ("run_name: 5", "run_name: expected text, got 5; write it in quotes."),
        ("save_strategy: no", 'YAML takes that word for false, so write it in quotes ("no").'),
        ("lr_scheduler_type: cosin", "got cosin; did you mean cosine."),
        ("lr_scheduler_type: greedy", "greedy needs evaluation, which a trial leaves out"),
        ("optim: lomo", "optim: expected one of adamw_torch_fused"),
        ("dtype: auto", "dtype: a trial holds weights in float32 or bfloat16, got auto."),
        ("reward_funcs: accuracy_reward", "expected a list of names, got accuracy_reward; write [accuracy_reward]."),
        ("reward_weights: [1e-1]", "reward_weights: expected a list of numbers, got a list with 1e-1."),
        ("reward_funcs: [a.b, c.d]\nreward_weights: [1.0]", ", line 2: reward_weights: expected one for each of the 2"),
        ("bf16: true\nfp16: true", ", line 2: fp16: bf16 and fp16 cannot both be true"),
        ("steps_per_generation: 1\ngeneration_batch_size: 8", "cannot be set beside steps_per_generation"),
        ("generation_batch_size: 12", "expected a multiple of 8 (per_device_train_batch_size 8), got 12."),
        ("torch_empty_cache_steps: 0", "expected a whole number of at least 1, or null, got 0."),
        ("max_completion_length: null", "expected a whole number of at least 1, got nothing."),
        ("max_completion_length: 0", "expected a whole number of at least 1, got 0."),
        ("vllm_mode: beside", "vllm_mode: expected one of colocate, server, got beside."),
        ("vllm_gpu_memory_utilization: 1.5", "expected a number from 0.01 to 0.98, got 1.5."),
        ("deepspeed: ds.json", "deepspeed: expected a mapping, got ds.json."),
        (
            "\ndeepspeed:\n  optimizer: {type: Adam}",
            ", line 3: deepspeed.optimizer: DeepSpeed's optimizer would go befo",
        ),
        (
            "deepspeed: {zero_optimization: {stage: 4}}",
            ", line 1: deepspeed.zero_optimization.stage: expected a whole",
        ),
        ("deepspeed: {zero_optimization: [1]}", "deepspeed.zero_optimization: expected a mapping, got"),
        ("fsdp: hybrid_shard", "fsdp: expected true or the words full_shard"),
        ("fsdp: true\nfsdp_config: {version: 1}", "fsdp_config.version: a trial shards with FSDP2, got 1."),
        ("torch_compile_mode: faster", "torch_compile_mode: expected one of default"),
        ("reward_model_name_or_path: org/rm", "use reward_funcs."),
        ("auto_find_batch_size: true", "GRPO refuses it"),
        ("use_transformers_paged: true", "write use_transformers_continuous_batching."),
        ("hub_token: hf_sentinel", "hub_token: a secret would be stored"),
        ("accelerator_config: a.json", "accelerator_config: expected a mapping, got a.json."),
        ("\nmodel_init_kwargs:\n  dtype: bfloat16", ", line 3: model_init_kwargs.dtype: write it as a key of its own"),
        ("model_init_kwargs: '{\"dtype\": 1}'", ", line 1: model_init_kwargs.dtype: write it as a key of its own"),
        ("generation_kwargs: {max_new_tokens: 4}", "use max_completion_length."),
        ("generation_kwargs: {temperature: 0.7}", "write it as a key of its own, where it can be tuned."),
        ("temperature: 0.0", ", line 1: temperature: expected a number from 0.01 to 5, got 0.0."),
        ("chat_template_kwargs: {chat_template: x}", "into the model folder as chat_template.jinja."),
        ("env: [A=1]", "env: expected a mapping of names to values, got a list."),
        ("env: {A-B: 1}", "env: A-B is not a name"),
        ("env: {A: [1]}", "env.A: expected text or a number, got a list."),
        ("env: {CUDA_VISIBLE_DEVICES: 1}", "env.CUDA_VISIBLE_DEVICES: the tuner sets it"),
        ("env: {WANDB_API_KEY: sentinel}", "env.WANDB_API_KEY: a secret would be stored"),
        ("beta: 1\nbeta: 2", ", line 2: beta is given twice, first in line 1."),
        ("beta: 0\n---\nbeta: 1", ", line 2: a config holds one document."),
        ("- beta", ", line 1: expected a mapping of TRL's keys, got a list."),
        ("", ": expected a mapping of TRL's keys, got nothing."),
        ("beta: {", "this is not YAML"),
        ("beta: !!python/object/apply:os.system [ls]", "tags ("),
        ("beta: 0\nrun_name: a\udcff", ", line 2: this is not UTF-8 text."),
        ('run_name: "a\\0b"', "a surrogate or NUL"),
        ("x: " + "y" * MAX_BYTES, "bytes are more than a config may have"),
    ],
)
def test_what_cannot_be_taken_is_one_sentence_with_its_line(text: str, sentence: str) -> None:
    message = refusal(text)
    assert sentence in message
    assert "sentinel" not in message


@pytest.mark.parametrize("text", ["auto_find_batch_size: false", "hub_token: null"])
def test_a_refused_key_that_does_nothing_is_let_through(text: str) -> None:
    (key,) = imported(text).passthrough
    assert text.startswith(key)


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
    ],
    ids=["aliases", "merge", "nested", "many", "keys", "json", "deep", "deeper", "surrogate", "infinity"],
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


ZERO_3 = {
    "bf16": {"enabled": "auto"},
    "fp16": {"enabled": "auto", "loss_scale": 0, "initial_scale_power": 16},
    "zero_optimization": {
        "stage": 3,
        "offload_optimizer": {"device": "cpu", "pin_memory": True},
        "offload_param": {"device": "none"},
        "overlap_comm": True,
        "contiguous_gradients": True,
        "sub_group_size": 1e9,
        "reduce_bucket_size": "auto",
        "stage3_prefetch_bucket_size": 5e7,
        "stage3_gather_16bit_weights_on_model_save": True,
    },
    "gradient_accumulation_steps": "auto",
    "gradient_clipping": "auto",
    "steps_per_print": 2000,
    "train_batch_size": 16,
    "train_micro_batch_size_per_gpu": "auto",
    "wall_clock_breakdown": False,
}
"""What the documentation of transformers shows, as most people have it."""


@pytest.mark.parametrize("form", ["file", "mapping", "json"])
def test_zero_is_understood_however_it_is_written(form: str) -> None:
    """The knobs move; what is no knob is kept, and what the batch and precision knobs say is not said twice."""
    text = json.dumps(ZERO_3)
    written = {"file": "ds/zero3.json", "mapping": text, "json": json.dumps(text)}[form]
    config, files = f"bf16: true\ndeepspeed: {written}\n", {"deepspeed": text} if form == "file" else {}
    found = import_config(config, "grpo.yaml", FIELDS, 2, files)
    assert found.knobs == {
        "precision": "bf16",
        "zero_stage": 3,
        "offload_optimizer": "cpu",
        "offload_parameters": "none",
        "zero_overlap": True,
        "zero_contiguous_gradients": True,
        "zero_prefetch_bucket": 50_000_000,
    }
    assert found.passthrough == {
        "deepspeed": {
            "fp16": {"loss_scale": 0, "initial_scale_power": 16},
            "zero_optimization": {
                "offload_optimizer": {"pin_memory": True},
                "sub_group_size": 1e9,
                "reduce_bucket_size": "auto",
                "stage3_gather_16bit_weights_on_model_save": True,
            },
            "gradient_clipping": "auto",
            "steps_per_print": 2000,
            "wall_clock_breakdown": False,
        }
    }
    value = read_keys(config, "grpo.yaml", files)["deepspeed"]
    assert (json.loads(value) if form == "json" else value) == ZERO_3


@pytest.mark.parametrize(
    ("text", "notes"),
    [
        ("use_vllm: true\nvllm_server_host: a", ["2: vllm_server_host: it does nothing without use_vllm true and"]),
        ("vllm_mode: server\nvllm_server_timeout: 5", ["2: vllm_server_timeout: it does nothing without"]),
        (
            "use_vllm: true\nvllm_mode: server\nvllm_server_port: 9\nvllm_server_timeout: 5",
            ["3: vllm_server_port: a tr"],
        ),
        ("deepspeed: {zero_optimization: {stage: 0}}", ["1: deepspeed: at stage 0 a trial trains without DeepSpeed"]),
        ("deepspeed: {zero_optimization: {stage: 2}}\nuse_vllm: true", []),
    ],
)
def test_what_may_not_be_expected_is_told(text: str, notes: list[str]) -> None:
    found = imported(text).notes
    assert len(found) == len(notes)
    for said, part in zip(found, notes, strict=True):
        assert said.startswith(f"grpo.yaml, line {part}")


def test_a_server_of_the_users_is_not_given_to_a_trial() -> None:
    """Its trials would talk to a server that serves another run."""
    own = {"vllm_server_base_url": "http://a", "vllm_server_host": "a", "vllm_server_port": 9, "vllm_group_port": 7}
    assert for_trial({**own, "vllm_server_timeout": 5}) == {"vllm_server_timeout": 5}


def test_files_a_config_names_are_told_and_read_with_their_line() -> None:
    config = "beta: 0\ndeepspeed: ds.json\nfsdp_config: '{\"version\": 2}'\n"
    assert named_files(config, "grpo.yaml") == {"deepspeed": ("ds.json", 2)}
    for text, part in [
        ("{", "is not JSON"),
        ("[1]", "holds no JSON object"),
        ('{"a": NaN}', "finite"),
        ("", "not JSON"),
    ]:
        with pytest.raises(ConfigError, match=part) as caught:
            import_config(config, "grpo.yaml", FIELDS, files={"deepspeed": text})
        assert str(caught.value).startswith("grpo.yaml, line 2: deepspeed")


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
