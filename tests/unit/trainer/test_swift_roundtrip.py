"""A configuration exported for ms-swift is the same configuration when it is imported again."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given
from hypothesis import strategies as st

from search_spaces.baseline import complete
from search_spaces.configuration import Configuration, KnobValue, Resources
from search_spaces.knobs import KNOBS, Kind, defaults
from search_spaces.legality import check, is_legal
from tests.support.exports import export_request
from tests.support.imports import text_of
from tests.support.properties import examples
from tests.support.swift_fields import FIELDS
from trainer.child.contract import RewardSpec
from trainer.frameworks import ms_swift
from trainer.frameworks.common.exported import SERVER, Export, ExportRequest
from trainer.frameworks.ms_swift.import_config import import_config
from trainer.frameworks.ms_swift.keys import ENGINE, FSDP, SEAMS, SUPPORTED, ZERO, acting

ROWS, LONGEST = 192, 96
MODES: list[dict[str, KnobValue]] = [
    {"rollout_engine": "transformers"},
    {"rollout_engine": "vllm", "rollout_mode": "colocate"},
    {"rollout_engine": "vllm", "rollout_mode": "server", "rollout_gpus": 2, "rollout_data_parallel_size": 2},
]
SHARDS: list[dict[str, KnobValue]] = [
    {"zero_stage": 0},
    *({"zero_stage": stage} for stage in (1, 2, 3)),
    {"fsdp": "fsdp2"},
]
FIXED = frozenset({"gradient_accumulation_steps", "num_generations", "host_allocator", "rollout_gpus", "training_gpus"})
SWITCHES = frozenset({"rollout_engine", "rollout_mode", "rollout_data_parallel_size", "zero_stage", "fsdp"})
FREE = sorted(SUPPORTED - FIXED - SWITCHES - SEAMS - {"sequence_parallel_size"})


def values_of(name: str) -> st.SearchStrategy[KnobValue]:
    knob = KNOBS[name]
    if name in ("max_model_len", "max_num_batched_tokens"):
        return st.integers(8192, 16384)
    if name == "tensor_parallel_size":
        return st.sampled_from([1, 2])
    if knob.kind is Kind.BOOL:
        return st.booleans()
    if knob.kind is Kind.CHOICE:
        return st.sampled_from(knob.choices)
    if knob.kind is Kind.FLOAT:
        return st.floats(0.1, 0.9)
    low = int(knob.bounds[0] or 0)
    return st.integers(low, max(low, 64))


@st.composite
def legal(draw: st.DrawFn) -> tuple[Configuration, Resources]:
    """Any combination that legality lets through, every knob that acts and has a default being set."""
    gpus = draw(st.sampled_from([4, 6]))
    machine = Resources(
        gpus=gpus,
        device="cuda",
        compute_capability=(9, 0),
        framework="ms_swift",
        rows_per_update=ROWS,
        num_generations=4,
    )
    chosen = draw(st.lists(st.sampled_from(FREE), max_size=10, unique=True))
    values: dict[str, KnobValue] = {
        **draw(st.sampled_from(MODES)),
        **draw(st.sampled_from(SHARDS)),
        "micro_batch_size": draw(st.sampled_from([1, 2, 4])),
        "sequence_parallel_size": draw(st.sampled_from([1, 1, 1, 2])),
        **{name: draw(values_of(name)) for name in chosen if name not in ("micro_batch_size", "steps_per_generation")},
    }
    ranks = (gpus - int(values.get("rollout_gpus", 0))) // int(values["sequence_parallel_size"])
    accumulation = ROWS // (ranks * int(values["micro_batch_size"]))
    values.update(gradient_accumulation_steps=accumulation, num_generations=4)
    values["steps_per_generation"] = accumulation
    values = {name: value for name, value in values.items() if name in acting(values)}
    whole = complete(values, machine, sorted(SUPPORTED - SEAMS - {"rollout_gpus", "training_gpus"}))
    found = Configuration({name: value for name, value in whole.items() if name in acting(whole)})
    assume(is_legal(found, machine))
    return found, machine


def wanted(configuration: Configuration, machine: Resources, **changes: Any) -> ExportRequest:
    rewards, training = (RewardSpec("ms_swift", "accuracy"),), machine.gpus - int(configuration.get("rollout_gpus", 0))
    given_ = {"model": "/models/one", "rewards": rewards, "rows_per_update": ROWS, "world_size": training, **changes}
    return export_request(configuration=configuration, **given_)


def read_back(export: Export, processes: int) -> Configuration:
    """What the exported files say, less the engine's length, which is said though nobody set it."""
    name = "grpo.yaml" if "grpo.yaml" in export.files else "run.sh"
    served = {"server": export.files.get(SERVER, ""), "server_name": SERVER}
    return Configuration(import_config(export.files[name], name, FIELDS, processes, **served).knobs)


def written_out(configuration: Configuration) -> Configuration:
    """What a file can say: all that acts, but seams."""
    values = {name: value for name, value in acting(configuration).items() if name not in SEAMS}
    if not values.get("zero_stage"):
        values.pop("reduce_precision", None)
    return Configuration(values)


def same(found: Configuration, expected: Configuration) -> None:
    """Equal, but for knobs at ms-swift's own value, which a file need not or must say."""
    unset = defaults("ms_swift")
    for name in {*found, *expected}:
        here, there = (side.get(name, unset.get(name)) for side in (found, expected))
        free = name == "max_model_len" and there is None and here == LONGEST
        assert here == there or free, (name, here, there)


@examples(80, 250, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
@given(case=legal())
def test_a_legal_configuration_can_be_read_back(case: tuple[Configuration, Resources]) -> None:
    configuration, machine = case
    assert ms_swift.unsupported(configuration) == [], check(configuration, machine)
    export = ms_swift.export(wanted(configuration, machine))
    same(read_back(export, wanted(configuration, machine).world_size), written_out(configuration))


SCRIPT = text_of("swift_run.sh")


@examples(40, 100, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
@given(case=legal(), own_data=st.booleans())
def test_so_can_a_script_that_was_edited(case: tuple[Configuration, Resources], own_data: bool) -> None:
    configuration, machine = case
    before = import_config(SCRIPT, "run.sh", FIELDS)
    asked = wanted(
        configuration, machine, user_config=SCRIPT, own_data=own_data, passthrough=before.passthrough, folder="/home/me"
    )
    export = ms_swift.export(asked)
    same(read_back(export, asked.world_size), written_out(configuration))
    text = export.files["run.sh"]
    assert "# my run" in text
    assert "> log.txt 2>&1" in text
    assert ("AI-MO/NuminaMath-TIR" in text) is own_data
    assert subprocess.run(["sh", "-n"], input=text, text=True, capture_output=True, check=False).stderr == ""


@examples(40, 100, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
@given(case=legal())
def test_so_can_a_file_that_was_edited(case: tuple[Configuration, Resources]) -> None:
    configuration, machine = case
    own = (
        "# mine\nrlhf_type: grpo\nmodel: one  # the small one\ntuner_type: full\nloss_type: grpo\nfsdp: fsdp2\n"
        "reward_funcs: [accuracy]\ndataset: data.jsonl\nmax_completion_length: 64\ngeneration_batch_size: 32\n"
        "ENV:\n  MY_VARIABLE: 1\n"
    )
    before = import_config(own, "mine.yaml", FIELDS, 4)
    asked = wanted(configuration, machine, user_config=own, own_data=True, passthrough=before.passthrough)
    export = ms_swift.export(asked)
    same(read_back(export, asked.world_size), written_out(configuration))
    text = export.files["grpo.yaml"]
    assert "# mine" in text
    assert "model: one  # the small one" in text
    assert import_config(text, "grpo.yaml", FIELDS, 4).passthrough["env"]["MY_VARIABLE"] == "1"


def test_every_supported_knob_is_among_those_tried() -> None:
    """A knob the strategy never sets would be read back without ever being written."""
    assert {*FREE, *FIXED, *SWITCHES, *SEAMS, "sequence_parallel_size"} == SUPPORTED
    assert {*ENGINE, *ZERO, *FSDP} <= SUPPORTED


@pytest.mark.parametrize("words", ["keep", "keep_huge_pages"])
def test_the_hosts_allocator_is_read_back(words: str) -> None:
    machine = Resources(framework="ms_swift")
    configuration = Configuration({"host_allocator": words, "precision": "fp32", "master_weights": "fp32"})
    export = ms_swift.export(wanted(configuration, machine, device="cpu", world_size=1))
    assert read_back(export, 1)["host_allocator"] == words
