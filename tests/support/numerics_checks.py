"""Looks at FP8, the gradient comparison and the quality guard on a tiny model: run by the training interpreter.

``python tests/support/numerics_checks.py FILE`` writes what it found as JSON;
``tests/integration/test_numerics.py`` judges it.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import math
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

EMULATED = {"precision": "fp8", "fp8_emulate": True}


def package() -> str:
    """The child's package, loaded as ``start.py`` does."""
    path = Path(__file__).resolve().parents[2] / "trainer" / "child" / "start.py"
    spec = importlib.util.spec_from_file_location("start_of_child", path)
    start = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(start)
    start.load_package()
    return str(start.PACKAGE)


def model(intermediate: int = 96, dtype: Any = torch.float32) -> Any:
    from transformers import Qwen2Config, Qwen2ForCausalLM  # noqa: PLC0415

    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=64,
        hidden_size=64,
        intermediate_size=intermediate,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        pad_token_id=0,
        eos_token_id=1,
        tie_word_embeddings=True,
    )
    return Qwen2ForCausalLM(config).to(dtype)


def inputs(rows: int = 4, prompt: int = 8, completion: int = 12) -> dict[str, Any]:
    torch.manual_seed(1)
    return {
        "prompt_ids": torch.randint(2, 64, (rows, prompt)),
        "prompt_mask": torch.ones(rows, prompt, dtype=torch.long),
        "completion_ids": torch.randint(2, 64, (rows, completion)),
        "completion_mask": torch.ones(rows, completion, dtype=torch.long),
    }


def trainer(policy: Any, **args: Any) -> Any:
    """As much of a trainer as the guard looks at."""
    given = {"fp16": False, "bf16": True, "per_device_train_batch_size": 2, "generation_kwargs": None, **args}
    return SimpleNamespace(
        model=policy,
        args=SimpleNamespace(**given),
        is_fsdp_enabled=False,
        accelerator=SimpleNamespace(num_processes=1),
        top_p=1.0,
        top_k=0,
        min_p=None,
        repetition_penalty=1.0,
    )


def refusals(float8: Any) -> dict[str, str]:
    """What each thing that cannot be is answered with."""
    quantised = model()
    quantised.is_quantized = True
    cases = {
        "no_hardware": (model(), {"precision": "fp8"}, "cpu"),
        "quantised": (quantised, EMULATED, "cpu"),
        "no_layer": (torch.nn.Sequential(torch.nn.Linear(8, 8)), EMULATED, "cpu"),
        "value": (model(), {"precision": "fp4"}, "cpu"),
    }
    said = {}
    for name, case in cases.items():
        try:
            float8.convert(*case)
        except float8.Float8Error as error:
            said[name] = str(error)
    kept = sys.modules.get("torchao.float8")
    sys.modules["torchao.float8"] = None  # type: ignore[assignment]
    try:
        float8.convert(model(), EMULATED, "cpu")
    except float8.Float8Error as error:
        said["no_torchao"] = str(error)
    finally:
        sys.modules.pop("torchao.float8")
        sys.modules.update({"torchao.float8": kept} if kept is not None else {})
    return said


def conversion(float8: Any) -> dict[str, Any]:
    plain, other = model(), model()
    places = [p.data_ptr() for p in other.parameters()]
    converted = float8.convert(other, {**EMULATED, "logprob_rows": 4}, "cpu")
    ids = inputs()["prompt_ids"]
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        expected, got = plain(input_ids=ids).logits, other(input_ids=ids).logits
        inside = {}
        layer = other.model.layers[0].mlp.up_proj
        layer.register_forward_hook(lambda _, args, output: inside.update(dtype=str(output.dtype)))
        other(input_ids=ids)
        with float8.without_float8(other):
            same = bool((other(input_ids=ids).logits == expected).all())
        again = bool((other(input_ids=ids).logits == got).all())
    return {
        "told": converted,
        "weights_kept": places == [p.data_ptr() for p in other.parameters()],
        "head": type(other.lm_head).__name__,
        "differs": not bool((got == expected).all()),
        "error": float((got - expected).abs().max() / expected.abs().max()),
        "output": inside["dtype"],
        "without": same,
        "with_again": again,
        "odd_sizes": float8.convert(model(intermediate=100), EMULATED, "cpu"),
        "nothing": float8.convert(model(), {"logprob_rows": 4}, "cpu"),
    }


def adapters(float8: Any, gradient: Any) -> dict[str, Any]:
    """LoRA on converted layers: the adapters learn, the layers they stand on keep their FP8 products."""
    from peft import LoraConfig, get_peft_model  # noqa: PLC0415

    policy = model()
    float8.convert(policy, EMULATED, "cpu")
    wrapped = get_peft_model(policy, LoraConfig(r=4, target_modules=["q_proj", "up_proj"], lora_alpha=8))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        wrapped(input_ids=inputs()["prompt_ids"]).logits.float().logsumexp(-1).mean().backward()
    grads = [p.grad for n, p in wrapped.named_parameters() if "lora_B" in n]
    taken = gradient.sample(wrapped)
    return {
        "sampled": [n for n, p in wrapped.named_parameters() if any(p is each for each in taken)],
        "compared": vars(gradient.compare(trainer(wrapped), inputs())),
        "layers": len(float8.float8_layers(wrapped)),
        "gradients": len(grads),
        "finite": all(g is not None and bool(torch.isfinite(g).all()) and bool(g.any()) for g in grads),
        "base": [n for n, p in wrapped.named_parameters() if "lora" not in n and p.grad is not None],
    }


def broken(factor: float, role: str, *, saturate: bool) -> Any:
    """torchao's scaling with one scale off by ``factor``: forgotten on the way back, or cutting the largest values."""
    linear = importlib.import_module("torchao.float8.float8_linear")
    inner = linear.hp_tensor_to_float8_dynamic

    def scaled(tensor: Any, *args: Any, **kwargs: Any) -> Any:
        made = inner(tensor, *args, **kwargs)
        if kwargs["gemm_input_role"].name == role:
            if saturate:
                top = torch.finfo(made._data.dtype).max
                made._data = (made._data.float() * factor).clamp(-top, top).to(made._data.dtype)
            made._scale = made._scale * factor
        return made

    return inner, scaled


def gradients(float8: Any, gradient: Any, limits: Any) -> dict[str, Any]:
    policy = model()
    float8.convert(policy, EMULATED, "cpu")
    policy.train()
    healthy = gradient.compare(trainer(policy), inputs())
    found: dict[str, Any] = {
        "fp8": vars(healthy),
        "left": [policy.training, any(p.grad is not None for p in policy.parameters())],
        "forward_back": "forward" not in vars(policy.model.layers[0].mlp.up_proj),
        "none": gradient.compare(trainer(model()), inputs()),
        "broken": {},
    }
    linear = importlib.import_module("torchao.float8.float8_linear")
    for role in ("INPUT", "WEIGHT", "GRAD_OUTPUT"):
        inner, linear.hp_tensor_to_float8_dynamic = broken(4.0, role, saturate=False)
        figures = gradient.compare(trainer(policy), inputs())
        linear.hp_tensor_to_float8_dynamic = inner
        found["broken"][role] = limits.gradient_problem(figures.cosine, figures.ratio)
    half = model(dtype=torch.bfloat16)
    found["bf16_weights"] = vars(gradient.compare(trainer(half), inputs()))
    found["dtypes_back"] = sorted({str(p.dtype) for p in half.parameters()})
    found["fp16"] = vars(gradient.compare(trainer(model(), fp16=True, bf16=False), inputs()))
    sharded = model(dtype=torch.bfloat16)
    next(iter(sharded.parameters())).ds_id = 0
    try:
        gradient.compare(trainer(sharded), inputs())
    except gradient.NotComparableError as error:
        found["sharded"] = str(error)
    return found


class Notes:
    """A journal that keeps what it is given."""

    def __init__(self) -> None:
        self.kept: list[Any] = []

    def write(self, record: Any) -> None:
        self.kept.append(record)


def guard(
    child: str, *, apart: float, at: float = -1.0, correction: bool = True, kind: str = "recorded", **sampling: Any
) -> Any:
    """One cycle of a trainer whose log-probs are ``at``, and a rollout's ``apart`` from them."""
    quality = importlib.import_module(f"{child}.frameworks.hf_trainer.quality")
    kinds = importlib.import_module(f"{child}.contract").CycleKind
    given = inputs()
    own = torch.full(given["completion_ids"].shape, at)
    given["completion_mask"][:, 6:] = 0
    given["sampling_per_token_logps"] = torch.full(own.shape, -1.0 - apart)
    given["sampling_per_token_logps"][:, 6:] = -40.0  # padding: nothing may be read from it
    given["sampling_per_token_logps"][0, 0] = math.nan  # what vLLM has no number for
    if correction:
        given["old_per_token_logps"] = own
    passes: list[int] = []

    def logps(_: Any, ids: Any, __: Any, keep: int, **___: Any) -> Any:
        passes.append(int(ids.shape[0]))
        return own[: ids.shape[0], :keep], None, None

    fake = trainer(model())
    vars(fake).update(sampling)
    fake._get_per_token_logps_and_entropies = logps
    fake._generate_and_score_completions = lambda _: given
    watch = quality.Quality(fake, Notes())
    watch.install()
    watch.begin(kinds(kind))
    handed_on = fake._generate_and_score_completions(None) is given
    mismatch = watch.mismatch()
    try:
        watch.check()
    except Exception as error:
        return {"mismatch": mismatch, "raised": type(error).__name__, "said": str(error), "passes": passes}
    return {"mismatch": mismatch, "raised": "", "said": "", "passes": passes, "handed_on": handed_on}


def broken_gradient(child: str, float8: Any) -> dict[str, Any]:
    """The guard in the warm-up of a trainer whose FP8 has a scale off by 4."""
    quality = importlib.import_module(f"{child}.frameworks.hf_trainer.quality")
    kinds = importlib.import_module(f"{child}.contract").CycleKind
    policy, journal = model(), Notes()
    float8.convert(policy, EMULATED, "cpu")
    fake = trainer(policy)
    fake._get_per_token_logps_and_entropies = None
    fake._generate_and_score_completions = lambda _: inputs()
    watch = quality.Quality(fake, journal)
    watch.install()
    linear = importlib.import_module("torchao.float8.float8_linear")
    inner, linear.hp_tensor_to_float8_dynamic = broken(4.0, "WEIGHT", saturate=True)
    raised = {}
    for kind in (kinds.RECORDED, kinds.WARMUP):
        watch.begin(kind)
        try:
            fake._generate_and_score_completions(None)
        except Exception as error:
            raised[kind.value] = [type(error).__name__, str(error)]
    linear.hp_tensor_to_float8_dynamic = inner
    return {"raised": raised, "notes": [note.name for note in journal.kept]}


def attention(child: str) -> dict[str, str]:
    """What is said where a model was given (one attention) in place of (another)."""
    build = importlib.import_module(f"{child}.frameworks.trl.build")
    said = {}
    for wanted, found in (
        ("eager", "eager"),
        ("eager", "sdpa"),
        ("sdpa", "eager"),
        ("flash_attention_2", "kernels-community/flash-attn2"),
        ("flash_attention_3", "sdpa"),
        ("kernels-community/mine", "eager"),
    ):
        try:
            build.check_attention(SimpleNamespace(config=SimpleNamespace(_attn_implementation=found)), wanted)
            said[f"{wanted} {found}"] = ""
        except ValueError as error:
            said[f"{wanted} {found}"] = str(error)
    return said


def offloading(child: str) -> dict[str, Any]:
    """The seam with TRL's own hooks, which here have no other memory to copy to, no streams and no pinned memory."""
    seams = importlib.import_module(f"{child}.frameworks.trl.seams")
    models = importlib.import_module("trl.models")
    wanted, ids = {"activation_offload": True}, inputs()["prompt_ids"]
    moved: list[bool] = []

    def training(device: str) -> Any:
        policy = model()

        def step() -> None:
            policy(input_ids=ids).logits.float().logsumexp(-1).mean().backward()

        return SimpleNamespace(
            model=policy, training_step=step, accelerator=SimpleNamespace(device=torch.device(device))
        )

    def watched(**given: Any) -> Any:
        made = manager(**given, use_pin_memory=False, use_streams=False)
        pack = made.pack_hook

        def counted(tensor: Any) -> int:
            number = int(pack(tensor))
            moved.append(bool(made.tracker[number][1]))
            return number

        made.pack_hook = counted
        return made

    plain, offloaded, said = training("cpu"), training("cuda"), ""
    try:
        seams.apply_seams(wanted, training("cpu"))
    except seams.SeamError as error:
        said = str(error)
    manager, device = models.get_act_offloading_ctx_manager, torch.accelerator.current_accelerator
    models.get_act_offloading_ctx_manager = watched
    torch.accelerator.current_accelerator = lambda *_, **__: torch.device("cpu")
    try:
        seams.apply_seams(wanted, offloaded)
        for _ in range(2):
            plain.training_step()
            offloaded.training_step()
    finally:
        models.get_act_offloading_ctx_manager, torch.accelerator.current_accelerator = manager, device
    pairs = zip(plain.model.parameters(), offloaded.model.parameters(), strict=True)
    same = all(bool((one.grad == other.grad).all()) for one, other in pairs)
    return {"refused": said, "moved": sum(moved), "kept": moved.count(False), "same": same}


def main(path: str) -> None:
    child = package()
    float8 = importlib.import_module(f"{child}.frameworks.hf_trainer.float8")
    gradient = importlib.import_module(f"{child}.frameworks.hf_trainer.quality")
    limits = importlib.import_module(f"{child}.contract.limits")
    found = {
        "refusals": refusals(float8),
        "conversion": conversion(float8),
        "adapters": adapters(float8, gradient),
        "gradients": gradients(float8, gradient, limits),
        "broken_gradient": broken_gradient(child, float8),
        "attention": attention(child),
        "offloading": offloading(child),
        "guards": {
            "agrees": guard(child, apart=0.0),
            "near": guard(child, apart=0.05),
            "stale": guard(child, apart=0.4),
            "warmup": guard(child, apart=0.4, correction=False, kind="warmup"),
            "timed": guard(child, apart=0.4, correction=False),
            "cut": guard(child, apart=0.4, top_p=0.9),
            "rollout_nan": guard(child, apart=math.nan),
            "trainer_nan": guard(child, apart=0.0, at=math.nan),
            "huge": guard(child, apart=1000.0),
        },
    }
    Path(path).write_text(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
