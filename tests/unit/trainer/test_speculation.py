"""Guessing tokens ahead: said to each framework in its own words, read back, and never beside what excludes it."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest

from search_spaces.configuration import Configuration, KnobValue, Resources
from search_spaces.legality import check
from search_spaces.own_keys import not_guessed
from tests.support.imports import of
from tests.support.swift_fields import FIELDS
from tests.support.verl_cases import legal
from trainer.frameworks.common.config_entries import ConfigError
from trainer.frameworks.common.exported import RUN
from trainer.frameworks.common.values import SPECULATIVE as KNOBS
from trainer.frameworks.common.values import KnobKeyError, speculative_config, speculative_knobs
from trainer.frameworks.ms_swift.import_config import import_config
from trainer.frameworks.ms_swift.keys import rest
from trainer.frameworks.ms_swift.render import to_keys
from trainer.frameworks.trl.keys import seams
from trainer.frameworks.trl.server import server_command
from trainer.frameworks.verl import export
from trainer.frameworks.verl.import_config import import_config as verl_config

GUESSES: dict[str, KnobValue] = {"speculative_decoding": "ngram", "speculative_tokens": 4, "speculative_lookup": 2}
SPECULATION = {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 2}
EAGLE = {"method": "eagle", "model": "draft", "num_speculative_tokens": 2}
VLLM: dict[str, KnobValue] = {"rollout_engine": "vllm"}
SWIFT = "swift rlhf --rlhf_type grpo --model m --dataset d --use_vllm true --vllm_mode {mode} {more}"
VERL = "python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo {more} "
VERL += "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=1"
KEY = "actor_rollout_ref.rollout.engine_kwargs.vllm.speculative_config"


@pytest.mark.parametrize(("value", "knobs"), of("only_guesses_from_the_sequence_itself_are_knobs"))
def test_only_guesses_from_the_sequence_itself_are_knobs(value: Any, knobs: dict[str, KnobValue]) -> None:
    """What a knob cannot say whole, stays whole with the user."""
    assert speculative_knobs(value, "k") == knobs


def test_a_number_no_knob_has_is_named() -> None:
    with pytest.raises(KnobKeyError, match="num_speculative_tokens: expected a whole number from 1 to 64, got 0"):
        speculative_knobs({"method": "ngram", "num_speculative_tokens": 0}, "k")


def test_what_does_not_act_is_not_said() -> None:
    assert speculative_config({}) == speculative_config({**GUESSES, "speculative_decoding": "none"}) == {}
    assert speculative_config(GUESSES) == SPECULATION
    transformers = Configuration({**GUESSES, "rollout_engine": "transformers"})
    assert seams(transformers) == {}
    assert "vllm_engine_kwargs" not in to_keys(transformers)


def test_trls_server_is_told_on_its_command_line() -> None:
    served = Configuration({**VLLM, **GUESSES, "rollout_mode": "server", "rollout_gpus": 1})
    argv = server_command(served, "m", "python", 1, longest=8)
    assert json.loads(argv[argv.index("--speculative-config") + 1]) == SPECULATION
    plain = server_command(Configuration({**served, "speculative_decoding": "none"}), "m", "python", 1, longest=8)
    assert "--speculative-config" not in plain


def test_ms_swift_reads_what_it_was_given_in_both_modes() -> None:
    for mode in ("colocate", "server"):
        arguments = to_keys(Configuration({**VLLM, **GUESSES, "rollout_mode": mode}))
        assert arguments["vllm_engine_kwargs"] == {"speculative_config": SPECULATION}
        text = SWIFT.format(mode=mode, more=f"--vllm_engine_kwargs '{json.dumps(arguments['vllm_engine_kwargs'])}'")
        found = import_config(text, "run.sh", FIELDS)
        assert {name: found.knobs[name] for name in GUESSES} == GUESSES
        assert "vllm_engine_kwargs" not in found.passthrough


def test_ms_swifts_own_argument_is_its_servers() -> None:
    """A colocated engine is not given it, so it has to be said that it does nothing."""
    more = f"--vllm_speculative_config '{json.dumps(SPECULATION)}'"
    served = import_config(SWIFT.format(mode="server", more=more), "run.sh", FIELDS)
    assert {name: served.knobs[name] for name in GUESSES} == GUESSES
    assert "vllm_speculative_config" not in served.passthrough
    colocated = import_config(SWIFT.format(mode="colocate", more=more), "run.sh", FIELDS)
    assert not set(KNOBS) & set(colocated.knobs)
    assert any("it does nothing beside a colocated engine" in note for note in colocated.notes)
    own = f"--vllm_speculative_config '{json.dumps(EAGLE)}'"
    with pytest.raises(ConfigError, match="line 1: vllm_speculative_config: a trial's rollout server guesses"):
        import_config(SWIFT.format(mode="server", more=own), "run.sh", FIELDS)


def test_another_way_of_guessing_stays_the_users_own() -> None:
    assert rest({"vllm_engine_kwargs": {"speculative_config": EAGLE}}) == {
        "vllm_engine_kwargs": {"speculative_config": EAGLE}
    }
    found = verl_config(VERL.format(more=f"'+{KEY}={{method:eagle,model:draft,num_speculative_tokens:2}}'"), "x.sh")
    assert found.passthrough[KEY] == EAGLE
    assert not set(KNOBS) & set(found.knobs)


@pytest.mark.parametrize(
    "more",
    [
        f"'+{KEY}={{method:ngram,num_speculative_tokens:4,prompt_lookup_max:2}}'",
        f"+{KEY}.method=ngram +{KEY}.num_speculative_tokens=4 +{KEY}.prompt_lookup_max=2",
    ],
)
def test_verl_reads_the_mapping_and_its_parts(more: str) -> None:
    found = verl_config(VERL.format(more=more), "x.sh")
    assert {name: found.knobs[name] for name in GUESSES} == GUESSES
    assert not any(key.startswith(KEY) for key in found.passthrough)


def test_an_export_for_verl_reads_back() -> None:
    combination = legal(Random(1))
    guessing = Configuration({**combination.configuration, **GUESSES})
    script = export(combination.wanted(configuration=guessing)).files[RUN]
    assert f"++{KEY}={{method:ngram,num_speculative_tokens:4,prompt_lookup_max:2}}" in script
    assert {name: verl_config(script, RUN).knobs[name] for name in GUESSES} == GUESSES


@pytest.mark.parametrize(
    ("framework", "settings", "said"), of("what_of_the_users_own_excludes_guesses_is_never_proposed")
)
def test_what_of_the_users_own_excludes_guesses_is_never_proposed(
    framework: str, settings: dict[str, Any], said: str
) -> None:
    assert not_guessed(framework, settings) == said
    resources = Resources(gpus=1, device="cuda", framework=framework, not_guessed=said)
    broken = check({"micro_batch_size": 1, "num_generations": 2, **VLLM, **GUESSES}, resources)
    sentences = [violation.sentence for violation in broken if violation.rule == "guessed_tokens"]
    assert bool(sentences) is bool(said)
    assert all(f"speculative_decoding cannot be used with {said}" in sentence for sentence in sentences)
