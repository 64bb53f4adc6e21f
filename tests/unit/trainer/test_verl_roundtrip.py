"""What is exported for verl reads back as what was meant: if one of these fails, a user trains with something else."""

from __future__ import annotations

import ast
import contextlib
import re
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from search_spaces.batch import batch_of
from search_spaces.configuration import Configuration
from search_spaces.knobs import KNOBS, defaults
from search_spaces.legality import is_legal
from tests.support.imports import of
from tests.support.properties import examples
from tests.support.verl_cases import COMPLETION, PROMPT, VALUES, Combination, legal, machine
from trainer.child.contract import Protocol, RewardSpec
from trainer.frameworks.common.exported import RUN
from trainer.frameworks.verl import SUPPORTED, export, render, unsupported
from trainer.frameworks.verl.hydra import HydraError, as_hydra, parsed, split
from trainer.frameworks.verl.import_config import import_config
from trainer.frameworks.verl.key_tables import UNTRIED
from trainer.frameworks.verl.reading import read_given as read
from trainer.frameworks.verl.render import OBJECTIVE

COMBINATIONS = st.integers(0, 10**9).map(lambda seed: legal(Random(seed)))
IN_ANY_MODE = st.integers(0, 10**9).map(lambda seed: legal(Random(seed), modes=True))
PLAIN = Combination(
    Configuration({"micro_batch_size": 4, "gradient_accumulation_steps": 2, "num_generations": 8}), machine(2)
)


@examples(40, 100)
@given(combination=COMBINATIONS | IN_ANY_MODE)
def test_import_of_an_export_is_the_configuration(combination: Combination) -> None:
    configuration = combination.explicit()
    made = export(combination.wanted(configuration=configuration))
    found = import_config(made.files[RUN], RUN)
    expected = dict(configuration)
    expected.setdefault("max_model_len", PROMPT + COMPLETION)  # an engine prepares for what there is
    assert Configuration(found.knobs) == Configuration(expected)
    assert (found.processes, found.model) == (combination.training, "/models/small")
    assert (found.max_prompt_length, found.max_completion_length) == (PROMPT, COMPLETION)


@settings(max_examples=30, deadline=None)
@given(combination=COMBINATIONS)
def test_what_is_left_out_is_exported_as_verls_own(combination: Combination) -> None:
    whole = export(combination.wanted(configuration=combination.explicit()))
    assert export(combination.wanted()).command.argv == whole.command.argv
    assert (
        Configuration(combination.explicit()) == Combination(combination.explicit(), combination.resources).explicit()
    )


@settings(max_examples=30, deadline=None)
@given(combination=COMBINATIONS)
def test_a_batch_is_told_in_prompts(combination: Combination) -> None:
    """verl's own arithmetic of its words gives the rows we mean (``trainer_base.py``, ``engine_workers.py``)."""
    keys = overrides(export(combination.wanted()).files[RUN])
    batch = batch_of(combination.explicit(), combination.resources)
    group = keys["actor_rollout_ref.rollout.n"]
    assert group == batch.group
    assert keys["actor_rollout_ref.actor.ppo_mini_batch_size"] * group == batch.rows
    assert keys["data.train_batch_size"] * group == batch.rollout_rows
    assert batch.rows % (batch.ranks * keys["actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu"]) == 0


@settings(max_examples=30, deadline=None)
@given(combination=COMBINATIONS)
def test_what_is_legal_is_supported_and_every_knob_is_told(combination: Combination) -> None:
    assert unsupported(combination.configuration) == []
    assert is_legal(combination.explicit(), combination.resources, combination.explicit())
    spec = render(
        trial="s/1", configuration=combination.configuration, model="/m", prompts="p.jsonl", rewards=(),
        rows_per_update=combination.rows, max_prompt_length=PROMPT, max_completion_length=COMPLETION,
        protocol=Protocol(), passthrough={"algorithm.gamma": 1.0, "trainer.save_freq": 5}, device="cuda",
        world_size=combination.resources.gpus,
    )  # fmt: skip
    exported = overrides(export(combination.wanted()).files[RUN])
    same = {k: v for k, v in spec.settings.items() if not k.startswith(("ray_kwargs", "actor_rollout_ref.model.path"))}
    assert {key: exported[key] for key in same} == same
    assert spec.passthrough == {**OBJECTIVE, "algorithm.gamma": 1.0}
    assert {key: exported[key] for key in OBJECTIVE} == OBJECTIVE


def overrides(script: str) -> dict[str, Any]:
    return read(script, RUN).values


def test_every_knob_verl_has_a_setting_for_is_tried() -> None:
    tried = {*VALUES, *(n for n in SUPPORTED if KNOBS[n].kind.value == "bool"), *PLAIN.explicit()}
    assert tried >= SUPPORTED
    assert {"verl" in KNOBS[name].frameworks for name in SUPPORTED} == {True}
    assert {name for name, knob in KNOBS.items() if "verl" in knob.frameworks} - SUPPORTED == UNTRIED
    drawn = [legal(Random(seed), modes=True).configuration for seed in range(80)]
    assert {name for each in drawn for name in each} >= UNTRIED
    assert {each.get("rollout_engine", "vllm") for each in drawn} == {"vllm", "sglang"}


@examples(25, 60)
@given(combination=IN_ANY_MODE)
def test_what_no_trial_runs_with_is_told_by_verls_name(combination: Combination) -> None:
    said, values = unsupported(combination.configuration), combination.configuration
    asynchronous, engine = values.get("async_generation") is True, values.get("rollout_engine", "vllm")
    mode = "separate_async" if values.get("rollout_mode") == "server" else "colocate_async"
    named = [f"trainer.v1.trainer_mode {mode}: "] if asynchronous else []
    named = ["actor_rollout_ref.rollout.name sglang: "] if engine == "sglang" else named
    named = ["model_engine megatron: trials of the"] if values.get("training_engine") == "megatron" else named
    assert [sentence[: len(name)] for sentence, name in zip(said, named, strict=True)] == named
    keys = overrides(export(combination.wanted()).files[RUN])
    mode = mode if asynchronous else "sync"
    assert (keys["trainer.v1.trainer_mode"], keys["actor_rollout_ref.rollout.name"]) == (mode, engine)
    if mode == "separate_async":
        every = keys["trainer.v1.separate_async.parameter_sync_step"]
        assert keys["data.train_batch_size"] == every * keys["actor_rollout_ref.actor.ppo_mini_batch_size"]
        assert keys["actor_rollout_ref.rollout.checkpoint_engine.backend"] != "naive"
        assert keys["actor_rollout_ref.rollout.nnodes"] * keys["actor_rollout_ref.rollout.n_gpus_per_node"] > 0


@pytest.mark.parametrize(("values", "sentence"), of("what_verl_cannot_be_told_is_refused_by_name"))
def test_what_verl_cannot_be_told_is_refused_by_name(values: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match="^" + re.escape(sentence)):
        export(PLAIN.wanted(configuration={**PLAIN.configuration, **values}))


def test_a_cpu_and_a_missing_micro_batch_are_refused() -> None:
    with pytest.raises(ValueError, match="verl trains on GPUs only"):
        export(PLAIN.wanted(device="cpu"))
    with pytest.raises(ValueError, match="needs a micro_batch_size"):
        export(PLAIN.wanted(configuration={"num_generations": 2}))


def test_the_files_of_an_export_are_python_and_name_the_prompts() -> None:
    made = export(PLAIN.wanted())
    for name, text in made.files.items():
        if name.endswith(".py"):
            ast.parse(text)
    keys = overrides(made.files[RUN])
    assert keys["data.train_files"] == keys["data.val_files"] == "./prompts/train.jsonl"
    assert (keys["data.custom_cls.path"], keys["data.prompt_key"]) == ("./autotune_verl_data.py", "prompt")
    assert keys["reward.custom_reward_function.path"] == "./autotune_verl_reward.py"
    assert made.prompts
    assert made.command.folder == "{here}"
    assert made.command.argv[1:3] == ("-m", "verl.trainer.main_ppo")


def test_the_users_own_keys_data_and_reward_stay() -> None:
    own = (
        "python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo data.train_files=[a.parquet,/b.parquet] "
        "data.val_files=v.parquet data.prompt_key=question reward.custom_reward_function.path=rew.py "
        "'+data.mine.too=\"a, b\"' trainer.logger=wandb "
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=1 actor_rollout_ref.actor.use_kl_loss=True"
    )
    passthrough = import_config(own, "train.sh", folder="/home/me").passthrough
    made = export(PLAIN.wanted(user_config=own, own_data=True, folder="/home/me", rewards=(), passthrough=passthrough))
    keys = overrides(made.files[RUN])
    assert keys["data.train_files"] == ["/home/me/a.parquet", "/b.parquet"]
    assert keys["data.val_files"] == "/home/me/v.parquet"
    assert keys["reward.custom_reward_function.path"] == "/home/me/rew.py"
    assert keys["data.mine.too"] == "a, b"
    assert keys["data.prompt_key"] == "question"
    assert (keys["trainer.logger"], keys["actor_rollout_ref.actor.use_kl_loss"]) == ("wandb", True)
    assert "data.custom_cls.path" not in keys
    assert not made.prompts
    assert made.command.folder == "/home/me"
    assert "+  actor_rollout_ref.actor.use_dynamic_bsz=false \\" in made.diff.splitlines()


def test_a_commit_verl_cannot_take_is_told() -> None:
    text = export(PLAIN.wanted(model="org/name", revision="abc123")).files[RUN]
    assert "# org/name was at commit abc123; verl takes no commit, only what the name stands for." in text
    assert "commit" not in export(PLAIN.wanted()).files[RUN]


def test_a_reward_of_trls_own_cannot_go_to_verl() -> None:
    with pytest.raises(ValueError, match="think_format_reward is a reward of TRL's own"):
        export(PLAIN.wanted(rewards=(RewardSpec("trl", "think_format_reward"),)))


def test_expandable_segments_are_told_by_the_variable() -> None:
    for value in (False, True):
        made = export(
            PLAIN.wanted(configuration={**PLAIN.configuration, "expandable_segments": value, "sleep_level": 0})
        )
        assert made.command.environment["PYTORCH_CUDA_ALLOC_CONF"] == f"expandable_segments:{value}"
        assert import_config(made.files[RUN], RUN).knobs["expandable_segments"] is value


NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True).filter(
    lambda name: name.lower() not in ("true", "false", "null")
)
TEXT = st.text(alphabet=st.characters(codec="utf-8", exclude_characters="\0", exclude_categories=("Cs",)), max_size=20)
NUMBERS = st.booleans() | st.integers(-(2**62), 2**62) | st.floats(allow_nan=False, allow_infinity=False)
LEAVES = st.none() | NUMBERS | TEXT
VALUE = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=4))


@examples(often=100, full=400)
@given(value=VALUE)
def test_a_value_reads_back_as_it_was_written(value: Any) -> None:
    found = parsed(as_hydra(value))
    assert found == value
    assert repr(found) == repr(value)


@examples(often=100, full=300)
@given(text=st.text(alphabet="ab01.,=[]{}()'\"\\$: +-eE\t", max_size=15))
def test_any_text_is_a_value_or_refused(text: str) -> None:
    with contextlib.suppress(HydraError):
        key, value = split(f"a.b={text}")
        assert key == "a.b"
        assert value is None or isinstance(value, bool | int | float | str | list | dict)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1), ("-1", -1), ("1e-6", 1e-6), ("0.5", 0.5), ("True", True), ("null", None), ("a/b.c", "a/b.c"),
        ("'1'", "1"), ('"a b"', "a b"), ("[a,1,[x]]", ["a", 1, ["x"]]), ("{a:1,b:{c:x}}", {"a": 1, "b": {"c": "x"}}),
        ("${trainer.name}", "${trainer.name}"), (r"a\,b", "a,b"), (r"'it\'s'", "it's"), ("[]", []), ("", ""),
        ("1_000", 1000), ("1.5b", "1.5b"), ("01", "01"),
    ],
)  # fmt: skip
def test_values_as_hydra_has_them(text: str, value: Any) -> None:
    assert split(f"+k={text}") == ("k", value)


@pytest.mark.parametrize("text", ["1,2", "choice(a,b)", "[1,2", "{a:1", "'x", "[a b,c]]"])
def test_sweeps_functions_and_torn_values_are_refused(text: str) -> None:
    with pytest.raises(HydraError):
        parsed(text)


def test_defaults_of_verl_are_complete() -> None:
    """Each knob has a value when nobody sets it, or follows another, or is left to vLLM."""
    unset = SUPPORTED - set(PLAIN.explicit())
    speculative = {"speculative_decoding", "speculative_tokens", "speculative_lookup"}
    assert unset == {"max_model_len", "kv_cache_memory_bytes", "cuda_graph_max_batch", *speculative}
    assert defaults("verl")["fsdp"] == "fsdp1"
