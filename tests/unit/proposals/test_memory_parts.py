"""What the formulas of the memory model say of known machines, and how the parts add up."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from autotune.domain import Configuration, Pool, Resources
from autotune.proposals.forecasts import Task
from autotune.proposals.memory import PARTS, PLACE, WHEN, MemoryModel, Moment, Part, features
from autotune.proposals.memory.model import SCALES
from autotune.proposals.memory.settings import dimensions
from search_spaces.configuration import KnobValue, ModelFacts
from tests.support import factories

GIB = factories.GIB
N = 7_615_616_512
LARGE = ModelFacts(N, 28, 3584, 28, 4, 152_064, 32_768)
ONE = Task(Resources(gpus=1, device="cuda", device_memory=80 * GIB, host_memory=512 * GIB, model=LARGE), 64, 512, 1024)
EIGHT = replace(ONE, resources=replace(ONE.resources, gpus=8))
PLAIN: dict[str, KnobValue] = {"micro_batch_size": 4, "gradient_accumulation_steps": 4, "master_weights": "bf16"}


def part(task: Task, which: Part, moment: Moment = Moment.UPDATE, pool: int = 0, **knobs: KnobValue) -> float:
    found = features(task, [Configuration({**PLAIN, **knobs})])
    return float(found[pool, 0, WHEN[moment], PLACE[which]])


def test_every_part_has_one_scale() -> None:
    assert sorted(p for members in SCALES for p in members) == sorted(PARTS)


def test_states_of_a_model_trained_whole() -> None:
    assert part(ONE, Part.WEIGHTS) == 2 * N
    assert part(ONE, Part.WEIGHTS, master_weights="fp32", precision="fp32") == 4 * N
    assert part(ONE, Part.WEIGHTS, master_weights="fp32") == 6 * N, "a copy in bf16 beside"
    assert part(ONE, Part.GRADIENTS) == 2 * N
    assert part(ONE, Part.OPTIMIZER) == 4 * N
    assert part(ONE, Part.OPTIMIZER, master_weights="fp32") == 8 * N
    assert part(ONE, Part.OPTIMIZER, optimizer="sgd") == 0
    # ZeRO: 16 bytes a parameter, of which stage 3 leaves an eighth on each of eight; 2 of them are gradients.
    assert sum(part(EIGHT, p, zero_stage=3) for p in (Part.WEIGHTS, Part.OPTIMIZER)) == pytest.approx(14 * N / 8)
    assert part(EIGHT, Part.GRADIENTS, zero_stage=3) > 2 * N / 8


def test_deepspeed_holds_the_weights_in_what_it_computes_in_and_fp32_ones_beside() -> None:
    """Whatever they are loaded in; torch keeps what it is given, and casts at each use."""
    for stage, shared in ((1, 1), (2, 1), (3, 8)):
        loaded: dict[str, Any] = {"zero_stage": stage, "master_weights": "fp32", "precision": "bf16"}
        assert part(EIGHT, Part.WEIGHTS, **loaded) == 2 * N / shared
        assert part(EIGHT, Part.OPTIMIZER, **loaded) == pytest.approx(12 * N / 8)
    # Stages 1 and 2 copy fp32 weights too, 3 does not.
    for stage, each in ((1, 12), (2, 12), (3, 8)):
        loaded = {"zero_stage": stage, "master_weights": "fp32", "precision": "fp32"}
        assert part(EIGHT, Part.OPTIMIZER, **loaded) == pytest.approx(each * N / 8)


def test_fsdp_holds_neither_gradients_nor_whole_layers_between_updates() -> None:
    """verl ends its training mode without gradients, and FSDP shares each layer out again after its pass."""
    verl = replace(EIGHT, resources=replace(EIGHT.resources, framework="verl"))
    loaded: dict[str, Any] = {"fsdp": "fsdp1", "master_weights": "fp32", "precision": "bf16"}
    for moment in Moment:
        least = 4 * N / 8 if moment in (Moment.UPDATE, Moment.STEP) else 0
        passes = moment in (Moment.UPDATE, Moment.LOGPROB)
        assert (part(verl, Part.GRADIENTS, moment, **loaded) > least) == passes, moment
        assert part(verl, Part.GRADIENTS, moment, **loaded) >= least, moment
        assert part(verl, Part.WEIGHTS, moment, **loaded) == 4 * N / 8, moment
    # A generation in the midst of an update finds those of the micro-batches before.
    assert part(EIGHT, Part.GRADIENTS, Moment.GENERATE, fsdp="fsdp2", steps_per_generation=1) > 0


def test_zero_3_keeps_whole_what_the_backward_pass_needs_again_soon() -> None:
    small = ModelFacts(134_515_008, 30, 576, 9, 3, 49_152, 8192)
    here = replace(EIGHT, resources=replace(EIGHT.resources, model=small))
    quiet, busy = (part(here, Part.GRADIENTS, moment, zero_stage=3) for moment in (Moment.GENERATE, Moment.UPDATE))
    assert busy - quiet > 0.8 * 2 * 134_515_008
    most = part(EIGHT, Part.GRADIENTS, zero_stage=3) - part(EIGHT, Part.GRADIENTS, zero_stage=2)
    assert most < 3 * 1e9, "of a large model only the last layers"


def test_adapters_have_little_state() -> None:
    lora = replace(ONE, passthrough={"use_peft": True, "lora_r": 16})
    assert part(lora, Part.WEIGHTS) == 2 * N
    assert 0 < part(lora, Part.GRADIENTS) < 0.01 * N
    wider = replace(ONE, passthrough={"use_peft": True, "lora_r": 64, "lora_target_modules": "all-linear"})
    assert part(wider, Part.OPTIMIZER) > 10 * part(lora, Part.OPTIMIZER)
    assert part(replace(lora, passthrough={"use_peft": True, "load_in_4bit": True}), Part.WEIGHTS) < 0.6 * N


def test_each_frameworks_keys_say_that_adapters_are_trained() -> None:
    def of(framework: str, **passthrough: Any) -> float:
        resources = replace(ONE.resources, framework=framework)
        return part(replace(ONE, resources=resources, passthrough=passthrough), Part.GRADIENTS)

    two, all_linear = (2 * 2.0 * 32 * 3584 * 28 * count for count in (2, 7))
    whole = of("verl")
    model = "actor_rollout_ref.model."
    assert of("verl", **{model + "lora_rank": 0}) == whole
    assert of("verl", **{model + "lora_rank": 32}) == all_linear * whole / (2 * N), "verl adapts all linear layers"
    assert of("verl", **{model + "lora_rank": 32, model + "target_modules": ["q_proj", "v_proj"]}) < 0.3 * of(
        "verl", **{model + "lora_rank": 32}
    )
    assert of("verl", **{model + "lora_adapter_path": "./adapter"}) < 0.01 * whole
    assert of("ms_swift", tuner_type="lora", lora_rank=32) == all_linear, "ms-swift too"
    assert of("trl", use_peft=True, lora_r=32) == of("open_r1", use_peft=True, lora_r=32) == two, "PEFT query and value"


def test_a_reference_model_is_shared_out_as_the_trained_one_is() -> None:
    for framework in ("trl", "open_r1", "ms_swift"):
        resources = replace(EIGHT.resources, framework=framework)
        task = replace(EIGHT, resources=resources, passthrough={"beta": 0.04, "tuner_type": "full"})
        for stage, shared in ((0, 1), (1, 1), (2, 1), (3, 8)):
            assert part(task, Part.WEIGHTS, zero_stage=stage) == pytest.approx(4 * N / shared), (framework, stage)
        assert part(task, Part.WEIGHTS, fsdp="fsdp2") == pytest.approx(4 * N / 8)
        there = part(task, Part.WEIGHTS, zero_stage=3, offload_parameters="cpu")
        assert there == 0, "and waits on the host where that one does"


def test_an_engine_takes_its_share_and_sleeps() -> None:
    vllm: dict[str, Any] = {"rollout_engine": "vllm", "gpu_memory_utilization": 0.5}
    assert part(ONE, Part.ROLLOUT, **vllm, enforce_eager=True) == pytest.approx(40 * GIB)
    assert 0 < part(ONE, Part.ROLLOUT, **vllm, sleep_level=2) < 2 * GIB
    assert part(ONE, Part.ROLLOUT, Moment.GENERATE, **vllm, sleep_level=2) > 39 * GIB
    assert part(ONE, Part.OFFLOADED, pool=1, **vllm, sleep_level=1) == 2 * N
    assert part(EIGHT, Part.ROLLOUT, **vllm, rollout_mode="server", rollout_gpus=2) == 0
    low, high = (
        MemoryModel.before(ONE).forecast([Configuration({**PLAIN, **vllm, "gpu_memory_utilization": u})]).peak[0]
        for u in (0.3, 0.6)
    )
    assert high > low + 20 * GIB


def test_offloads_move_state_to_the_host() -> None:
    there: dict[str, Any] = {"zero_stage": 3, "offload_optimizer": "cpu", "offload_parameters": "cpu"}
    assert part(EIGHT, Part.OPTIMIZER, zero_stage=3) > 0
    assert part(EIGHT, Part.OPTIMIZER, **there) == part(EIGHT, Part.WEIGHTS, **there) == 0
    assert part(EIGHT, Part.OFFLOADED, pool=1, **there) == pytest.approx(16 * N)


def test_tiles_bound_the_logits() -> None:
    whole = part(ONE, Part.LOGITS, logprob_token_chunk=65_536, logprob_vocab_chunk=1 << 20)
    assert part(ONE, Part.LOGITS, logprob_token_chunk=256) < 0.7 * whole
    assert part(ONE, Part.LOGITS, logprob_vocab_chunk=8192) < 0.7 * whole
    without = replace(ONE, resources=replace(ONE.resources, framework="open_r1"))
    assert part(without, Part.LOGITS) > 4 * 1024 * 152_064 * 8


def test_a_tile_on_a_cpu_is_what_its_torch_operations_hold_at_once() -> None:
    """By hand from TRL's source: 4 rows of 128 tokens, of which all are projected, by 32,768 words of 49,152."""
    small = ModelFacts(134_515_008, 30, 576, 9, 3, 49_152, 8192)
    cpu = Task(Resources(host_memory=16 * GIB, model=small), 16, 96, 32)
    tile, head, fixed = 4 * 128 * 32_768, 32_768 * 576, 4 * 128 * 576 * 6 + 49_152 * 576 * 4
    bf16: dict[str, Any] = {"precision": "bf16", "master_weights": "fp32"}
    fp32: dict[str, Any] = {"precision": "fp32", "master_weights": "fp32"}
    assert part(cpu, Part.LOGITS, **fp32) == 33 * tile + fixed
    assert part(cpu, Part.LOGITS, **bf16) == 31 * tile + 2 * head + fixed
    # A few tokens: what is largest then is the LM head in fp32, for the product of its gradient.
    few = 16 * 32_768
    assert part(cpu, Part.LOGITS, **bf16, logprob_token_chunk=16) == 6 * few + 6 * head + fixed
    assert part(cpu, Part.LOGITS, **fp32, logprob_token_chunk=16) == 33 * few + fixed
    forward = part(cpu, Part.LOGITS, Moment.LOGPROB, **bf16)
    assert forward == 18 * tile + 2 * head


def test_activations_are_what_a_layer_saves() -> None:
    """Qwen2.5-0.5B's MLP is 4,864 wide; 3,072 more tokens took 4.5 to 5.1 GiB more of an H100."""
    half = ModelFacts(494_032_768, 24, 896, 14, 2, 151_936, 32_768)
    gpu = replace(ONE, resources=replace(ONE.resources, model=half), max_prompt_length=128, max_completion_length=256)
    assert dimensions(half).inner == pytest.approx(4864, rel=0.01)
    found: dict[str, Any] = {"micro_batch_size": 8, "gradient_checkpointing": False}
    fp32 = {"master_weights": "fp32", "precision": "bf16"}
    assert 4.2 * GIB < part(gpu, Part.ACTIVATIONS, **found, **fp32) < 5.3 * GIB
    assert part(gpu, Part.ACTIVATIONS, **found, master_weights="bf16") < part(gpu, Part.ACTIVATIONS, **found, **fp32)
    kept = part(gpu, Part.ACTIVATIONS, micro_batch_size=8, gradient_checkpointing=True, **fp32)
    assert kept < 0.15 * part(gpu, Part.ACTIVATIONS, **found, **fp32)
    assert part(gpu, Part.ACTIVATIONS, **found, **fp32, hub_kernels=True) < 0.9 * part(
        gpu, Part.ACTIVATIONS, **found, **fp32
    )
    experts = replace(half, parameters=30 * half.parameters)
    assert dimensions(experts).inner == 8 * 896, "of whose experts a token meets few"


def test_memory_that_a_cpus_allocator_keeps_is_there_beside_the_peak() -> None:
    cpu = Task(Resources(host_memory=16 * GIB, model=LARGE), 16, 96, 32)
    kept = [part(cpu, Part.ALLOCATOR, host_allocator=how) for how in ("default", "keep", "keep_huge_pages")]
    assert kept[0] < kept[1] < kept[2]


def test_code_compiled_for_an_engine_on_a_cpu_is_held_beside_it() -> None:
    cpu = Task(Resources(host_memory=16 * GIB, model=LARGE), 16, 96, 32)
    eager, compiled = (
        part(cpu, Part.ROLLOUT, rollout_engine="vllm", max_num_seqs=8, enforce_eager=e) for e in (True, False)
    )
    assert 10e6 < compiled - eager < 200e6


def test_the_parts_add_up_to_the_peak() -> None:
    configuration = Configuration({**PLAIN, "rollout_engine": "vllm", "zero_stage": 2})
    model = MemoryModel.before(EIGHT)
    device, host = model.breakdown(configuration)
    assert (device.pool, host.pool) == (Pool.DEVICE, Pool.HOST)
    for one in (device, host):
        assert sum(one.at_peak.values()) == pytest.approx(one.peak)
    assert device.peak == pytest.approx(model.forecast([configuration]).peak[0])
    assert device.moment is max(Moment, key=lambda moment: features(EIGHT, [configuration])[0, 0, WHEN[moment]].sum())
    cpu = Task(Resources(host_memory=16 * GIB, model=LARGE), 8, 64, 64)
    (only,) = MemoryModel.before(cpu).breakdown(configuration)
    assert only.pool is Pool.HOST


def test_sizes_are_guessed_from_what_is_known() -> None:
    whole = dimensions(LARGE)
    assert whole.doubt == 0
    for name in ("parameters", "layers", "hidden_size", "vocabulary"):
        guess = dimensions(replace(LARGE, **{name: None}))
        assert guess.doubt > 0
        for field in ("parameters", "layers", "width"):
            assert 0.4 < getattr(guess, field) / getattr(whole, field) < 2.5, (name, field)
    nothing = dimensions(ModelFacts())
    assert nothing.doubt > 1
    assert np.isfinite(nothing.kv_values)


VLLM: dict[str, Any] = {"rollout_engine": "vllm", "gpu_memory_utilization": 0.4}
EMBEDDING = 152_064 * 3584


def sync(framework: str, passthrough: dict[str, Any] | None = None, **knobs: KnobValue) -> float:
    """Bytes the weight sync has on one of eight GPUs, with weights in bf16."""
    here = replace(EIGHT, resources=replace(EIGHT.resources, framework=framework), passthrough=passthrough or {})
    return part(here, Part.SYNC, Moment.SYNC, **VLLM, **knobs)


def test_weights_are_whole_at_the_sync_as_each_framework_gathers_them() -> None:
    lora, full = {"use_peft": True, "lora_r": 16}, {"tuner_type": "full"}
    for framework in ("trl", "open_r1"):
        assert sync(framework, zero_stage=3) == 2 * EMBEDDING, "one by one"
        assert sync(framework, lora, zero_stage=3) == 2 * N, "whole, to merge the adapter"
        assert sync(framework, lora, zero_stage=2) == sync(framework, zero_stage=0) == 0, "nothing is gathered"
        server: dict[str, Any] = {"rollout_mode": "server", "rollout_gpus": 1}
        assert sync(framework, lora, zero_stage=3, **server) == 2 * N, "for a server as well"
    assert sync("trl", lora, fsdp="fsdp2") == sync("trl", fsdp="fsdp2") == 2 * EMBEDDING
    for passthrough in (lora, full):
        assert sync("ms_swift", passthrough, zero_stage=3) == 2 * N
        assert sync("ms_swift", passthrough, zero_stage=3, weight_sync_batches=16) < 0.2 * 2 * N
    assert sync("ms_swift", full, fsdp="fsdp2") == 2 * N
    assert sync("ms_swift", lora, fsdp="fsdp2") == 4 * N, "and merged into a copy"
    bucket = 512 << 20
    verl: dict[str, Any] = {"fsdp": "fsdp1", "weight_sync_bucket_mib": 512}
    assert sync("verl", **verl) == 2 * EMBEDDING + bucket
    assert sync("verl", lora, **verl) == 2 * N + bucket, "summoned whole"
    assert sync("verl", lora, **verl, weight_sync_layered=True) < 2 * EMBEDDING + bucket
    assert sync("verl", **verl, weight_sync_layered=True) == sync("verl", **verl), "of adapters only"
    assert sync("verl", lora, **{**verl, "fsdp": "fsdp2"}) == 2 * EMBEDDING + bucket
    assert part(EIGHT, Part.SYNC, Moment.SYNC, zero_stage=3) == 0, "transformers generates with the weights trained"


def test_a_sleeping_engine_has_its_weights_and_not_its_cache_at_the_sync() -> None:
    awake, asleep = ({**VLLM, "sleep_level": level} for level in (0, 2))
    assert part(ONE, Part.ROLLOUT, Moment.SYNC, **awake) == part(ONE, Part.ROLLOUT, Moment.GENERATE, **awake) > 0
    rests = part(ONE, Part.ROLLOUT, Moment.UPDATE, **asleep)
    assert part(ONE, Part.ROLLOUT, Moment.SYNC, **asleep) == 2 * N + rests
    never = replace(ONE, resources=replace(ONE.resources, framework="open_r1"))
    assert part(never, Part.ROLLOUT, Moment.UPDATE, **asleep, rollout_mode="colocate") > rests, (
        "trl 0.18 never puts its engine to sleep"
    )


def test_what_waits_on_the_host_while_generating_is_back_for_the_sync_except_in_verl() -> None:
    waits: dict[str, Any] = {**VLLM, "rollout_offload_model": True, "rollout_offload_optimizer": True}
    for framework, sharding, weights, states in (
        ("ms_swift", {"zero_stage": 2}, True, True), ("verl", {"fsdp": "fsdp1"}, True, False),
        ("verl", {"fsdp": "fsdp2"}, False, False),
    ):  # fmt: skip
        here = replace(
            EIGHT, resources=replace(EIGHT.resources, framework=framework), passthrough={"tuner_type": "full"}
        )
        for which, there in ((Part.WEIGHTS, weights), (Part.OPTIMIZER, states)):
            assert part(here, which, Moment.GENERATE, **waits, **sharding) == 0
            assert (part(here, which, Moment.SYNC, **waits, **sharding) > 0) is there, (framework, sharding, which)


def test_a_budget_of_tokens_is_of_one_gpu_and_packed_rows_project_prompts_too() -> None:
    verl = replace(EIGHT, resources=replace(EIGHT.resources, framework="verl"))
    dynamic: dict[str, Any] = {"dynamic_batching": True, "update_tokens": 8192, "remove_padding": True}
    one, two = (part(verl, Part.LOGITS, **dynamic, sequence_parallel_size=ranks) for ranks in (1, 2))
    assert one == two > 8192 * 152_064 * 6
    assert part(verl, Part.LOGITS, remove_padding=True) > 1.25 * part(verl, Part.LOGITS, remove_padding=False)


def test_logits_are_fp32_where_accelerate_wraps_the_model() -> None:
    here = replace(EIGHT, resources=replace(EIGHT.resources, framework="open_r1"))
    bf16: dict[str, Any] = {"precision": "bf16"}
    assert part(here, Part.LOGITS, zero_stage=0, **bf16) > 1.5 * part(here, Part.LOGITS, zero_stage=2, **bf16)


def test_a_length_that_is_padded_costs_as_much_as_it_has() -> None:
    padded = part(ONE, Part.ACTIVATIONS, pad_to_multiple=1000)
    assert padded == pytest.approx(part(ONE, Part.ACTIVATIONS) * 2000 / 1536)


def test_continuous_batching_takes_its_share_of_the_machine() -> None:
    """On a CPU too, where transformers asks for the machine's memory, whatever limit a trial has."""
    small = ModelFacts(16_000_000, 10, 256, 8, 4, 32_768, 256)
    machine = Resources(cpu_cores=2, host_memory=25_276_510_208, framework="trl", model=small)
    task = Task(machine, 8, 16, 32, memory_limit=2 * GIB)
    page, token = 2 * 10 * 4 * 32 * 4, 4 * 256 + 4 * 32_768

    def held(share: float) -> float:
        batching: dict[str, Any] = {"continuous_batching": True, "continuous_batching_memory": share}
        knobs: dict[str, Any] = {"rollout_engine": "transformers", "precision": "fp32", "master_weights": "fp32"}
        return part(task, Part.GENERATION, Moment.GENERATE, **knobs, **batching)

    # A tenth as many tokens in a batch as there are pages: 1,078 and 10,779, 3,234 and 32,338.
    assert held(0.03) - held(0.01) == pytest.approx((32_338 - 10_779) * page, rel=1e-3)
    # 8,192 tokens at most; reading all pages takes those of one layer once more.
    pages = min((0.5 * 25_276_510_208 - 8192 * token) / page, 0.5 * 25_276_510_208 / (1.1 * page))
    assert held(0.5) - held(0.03) == pytest.approx((pages - 32_338) * page, rel=1e-3)
    more = [part(ONE, Part.GENERATION, Moment.GENERATE, continuous_batching=True, continuous_batching_memory=m,
                 rollout_engine="transformers") for m in (0.05, 0.2, 0.5, 0.9)]  # fmt: skip
    assert more == sorted(more)
    assert 0.4 * 80 * GIB < more[2] < 0.5 * 80 * GIB
