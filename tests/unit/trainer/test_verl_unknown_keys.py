"""A misspelt key of verl's is found, and no key that some verl has is called one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.imports import of
from tests.support.properties import examples
from trainer.frameworks.common.config_entries import ConfigError, Imported
from trainer.frameworks.common.trainer_keys import KeyHandling
from trainer.frameworks.verl.import_config import import_config
from trainer.frameworks.verl.key_handling import DATASET, INPUTS, MEASURING, REFUSED, handling_of
from trainer.frameworks.verl.key_tables import FIXED, NATIVE, NOT_IN_VERLS_FILES
from trainer.frameworks.verl.key_tables import KEYS as KNOB_KEYS
from trainer.frameworks.verl.unknown_keys import EARLIER, KEYS, is_known

FIXTURES = Path(__file__).parents[2] / "fixtures"
RUN = (
    "python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo trainer.n_gpus_per_node=2 data.train_batch_size=16 "
    "actor_rollout_ref.actor.ppo_mini_batch_size=8 actor_rollout_ref.rollout.n=4 "
    "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=2 \\\n"
)
ROLLOUT = "actor_rollout_ref.rollout."
SHARE = f"{ROLLOUT}gpu_memory_utilization"


def read(*more: str) -> Imported:
    return import_config(RUN + " ".join(more), "run.sh")


def notes(*more: str) -> list[str]:
    return [note for note in read(*more).notes if "verl 0.9.1" in note]


def problems(text: str, name: str) -> list[str]:
    """What is said of a file, be it read or refused."""
    try:
        return [note for note in import_config(text, name).notes if "no key" in note or "no longer" in note]
    except ConfigError as error:
        return str(error).splitlines()


@pytest.mark.parametrize(("written", "meant"), of("a_misspelt_key_is_refused_by_its_line_with_the_one_that_is_meant"))
def test_a_misspelt_key_is_refused_by_its_line_with_the_one_that_is_meant(written: str, meant: str) -> None:
    with pytest.raises(ConfigError) as error:
        read(f"{written}=1")
    assert str(error.value).startswith(f"run.sh, line 2: verl has no key {written}; did you mean {meant}")
    assert f"(write ++{written} if yours has it)" in str(error.value)
    with pytest.raises(ConfigError, match="did you mean"):
        import_config(f"algorithm.adv_estimator: grpo\n{written}: 1\n", "own.yaml")
    for added in ("+", "++"):
        (note,) = notes(f"{added}{written}=1")
        assert f"line 2: verl 0.9.1 has no key {written}; did you mean {meant}" in note


def test_the_table_has_what_other_tables_name() -> None:
    for key in (*NATIVE.values(), *FIXED, *(REFUSED.keys() - EARLIER), *(INPUTS - DATASET), *MEASURING):
        assert is_known(key), key
    fields = json.loads((FIXTURES / "verl_fields.json").read_text())["fields"]
    megatron = json.loads((FIXTURES / "verl_megatron_fields.json").read_text())["keys"]
    assert {key for key in (*fields, *megatron) if not is_known(key) and key not in EARLIER} == set()
    assert NOT_IN_VERLS_FILES.isdisjoint(KEYS)
    assert KEYS.isdisjoint(EARLIER)
    assert (len(KEYS), len(EARLIER)) == (1090, 194)


@examples(60, 400)
@given(st.sampled_from(sorted(key for key in KEYS if is_known(key))), st.data())
def test_a_letter_less_is_never_taken_in_silence(key: str, data: st.DataObject) -> None:
    """It is refused or told of, unless it is a key of its own or stands where any may be added."""
    place, _, name = key.rpartition(".")
    at = data.draw(st.integers(0, len(name) - 1))
    short = ".".join(part for part in (place, name[:at] + name[at + 1 :]) if part)
    if len(name) < 4 or is_known(short) or short in EARLIER:
        return
    assert problems(RUN + f"{short}=1", "run.sh")


@examples(100, 600)
@given(st.text(st.characters(codec="utf-8", exclude_characters="\n\r\0"), max_size=60))
def test_any_text_is_an_answer(text: str) -> None:
    for written in (f"{text}=1", f"+{text}=1", f"actor_rollout_ref.{text}=1"):
        assert all(
            line.startswith("own.txt") for line in problems(f"algorithm.adv_estimator=grpo\n{written}", "own.txt")
        )


def test_every_key_has_one_fate() -> None:
    assert all(handling_of(key) is KeyHandling.KNOB for key in KNOB_KEYS)
    assert not KNOB_KEYS & set(FIXED)
    assert len(set(NATIVE.values())) == len(NATIVE)


@examples(100, 300)
@given(text=st.text(max_size=60) | st.text(alphabet="abc.=+-{}[]:, \n'\"#$", max_size=60))
def test_any_file_is_refused_in_one_sentence_unless_it_says_grpo(text: str) -> None:
    with pytest.raises(ConfigError) as refused:
        import_config(text, "mine")
    assert str(refused.value).startswith("mine")
    assert "\n" not in str(refused.value)
