"""Rules of precision, optimizer and kernels."""

from __future__ import annotations

from search_spaces.legality.case import Case, forbid, rule

_BITSANDBYTES = frozenset(
    {
        *("adamw_8bit", "adamw_bnb_8bit", "paged_adamw_32bit", "paged_adamw_8bit"),
        *("lion_8bit", "paged_lion_32bit", "paged_lion_8bit", "lion_32bit"),
    }
)
_TORCHAO = frozenset({"adamw_torch_8bit", "adamw_torch_4bit"})
_PACKAGES = {
    **dict.fromkeys(_BITSANDBYTES, "bitsandbytes"),
    **dict.fromkeys(_TORCHAO, "torchao"),
    "galore_adamw": "galore_torch",
    "apollo_adamw": "apollo_torch",
    "schedule_free_adamw": "schedulefree",
}
"""Optimizer -> package of its kernels; a package that the probe does not report is not checked."""
_GPU_OPTIMIZERS = _BITSANDBYTES | _TORCHAO


@rule(("precision", "fp8_emulate"))
def precision_hardware(case: Case) -> str | None:
    """Requires hardware and packages that compute in this precision."""
    precision = case.get("precision")
    if precision == "fp16" and not case.on_gpu:
        return "precision fp16 needs a GPU for its loss scaling"
    if precision == "bf16" and case.older_than(8):
        return f"precision bf16 needs compute capability 8.0 or later, and this GPU has {case.capability}"
    if precision != "fp8":
        return None
    if not case.facts.trains_in_fp8:
        return f"{case.framework} does not train in FP8 on this path"
    if case.lacks("torchao"):
        return "precision fp8 needs the package torchao in the training environment"
    if case.get("fp8_emulate") is True or (case.on_gpu and not case.older_than(8, 9)):
        return None
    return f"precision fp8 needs compute capability 8.9 or later, or fp8_emulate, and {case.device_words}"


@rule(("precision", "zero_stage", "fsdp"))
def whole_fp8_weights(case: Case) -> str | None:
    """Refuses FP8 with sharded weights: FP8 layers hold whole weights until the backward pass."""
    if case.get("precision") != "fp8":
        return None
    sharded = "zero_stage 3" if case.number("zero_stage") == 3 else "fsdp fsdp2" if case.get("fsdp") == "fsdp2" else ""
    if not sharded:
        return None
    return f"precision fp8 keeps each weight whole until its backward pass, which {sharded} shares out over ranks"


@rule(("precision", "master_weights", "training_engine"), ("precision", "master_weights"))
def master_weights(case: Case) -> str | None:
    """Requires master weights that the precision can compute with."""
    if case.get("master_weights") != "bf16" or case.megatron:
        return None
    precision = case.get("precision")
    if precision == "fp32":
        return "precision fp32 with master_weights bf16 would compute in bf16"
    if precision == "fp16":
        return "precision fp16 scales its loss and needs master_weights fp32"
    if case.older_than(8):
        return f"master_weights bf16 needs compute capability 8.0 or later, and this GPU has {case.capability}"
    return None


@rule(("attn_implementation", "precision", "master_weights"), ("attn_implementation", "precision"))
def attention_kernel(case: Case) -> str | None:
    """Requires hardware, precision and packages for the attention kernel."""
    name = str(case.get("attn_implementation") or "")
    if name in ("", "sdpa", "eager"):
        return None
    if not case.on_gpu:
        return f"attn_implementation {name} needs a GPU, and this is a CPU run"
    if name.startswith("flash_attention") and case.get("precision") == "fp32" and case.get("master_weights") != "bf16":
        return f"attn_implementation {name} computes in bf16 or fp16 only, not precision fp32"
    if name == "flash_attention_3":
        if case.older_than(9) or (case.resources.compute_capability or (9, 0))[0] > 9:
            return f"attn_implementation {name} needs compute capability 9.0, and this GPU has {case.capability}"
        packages: tuple[str, ...] = ("flash_attn_3", "flash_attn_interface", "kernels")
    elif name == "flash_attention_2":
        if case.older_than(8):
            have = case.capability
            return f"attn_implementation {name} needs compute capability 8.0 or later, and this GPU has {have}"
        packages = ("flash_attn", "kernels")
    else:
        packages = ("kernels", "flash_attn", "flash_attn_3")
    if case.lacks(*packages):
        return f"attn_implementation {name} needs the package {packages[0]} in the training environment"
    return None


@rule(("optimizer",))
def optimizer_kernel(case: Case) -> str | None:
    """Requires hardware and packages for the optimizer."""
    name = str(case.get("optimizer") or "")
    if name == "muon" and not case.facts.has_muon:
        return f"optimizer {name} is none that {case.framework} has"
    if name in _GPU_OPTIMIZERS and not case.on_gpu:
        return f"optimizer {name} needs a GPU, and this is a CPU run"
    package = _PACKAGES.get(name, "")
    if package and case.lacks(package):
        return f"optimizer {name} needs the package {package} in the training environment"
    return None


@rule(("hub_kernels", "fused_loss", "activation_offload"))
def gpu_kernels(case: Case) -> str | None:
    """Requires a GPU for Liger and hub kernels, for the fused loss, and for activation offloading."""
    wanted = [n for n in ("hub_kernels", "fused_loss", "activation_offload") if case.get(n) is True]
    if wanted and not case.on_gpu:
        why = ", where activations are in host memory already" if wanted[0] == "activation_offload" else ""
        return f"{wanted[0]} needs a GPU, and this is a CPU run{why}"
    package = case.facts.hub_kernels_package
    if "hub_kernels" in wanted and package and case.lacks(package):
        return f"hub_kernels needs the package {package} in the training environment"
    return None


@rule(
    ("remove_padding", "hub_kernels", "attn_implementation", "training_engine"),
    ("remove_padding", "attn_implementation"),
)
def packed_rows(case: Case) -> str | None:
    """Requires flash attention for packed rows in frameworks that pack with flash attention only."""
    if case.get("remove_padding") is not True or not case.facts.packs_with_flash_attention_only or case.megatron:
        return None
    if not str(case.get("attn_implementation") or "").startswith("flash_attention"):
        return f"remove_padding needs flash attention in {case.framework}, not {case.get('attn_implementation')}"
    if case.get("hub_kernels") is True:
        return f"remove_padding and hub_kernels exclude each other in {case.framework}"
    return None


RULES = (
    precision_hardware,
    whole_fp8_weights,
    master_weights,
    attention_kernel,
    optimizer_kernel,
    forbid(
        "tf32_hardware: tf32",
        lambda c: c["tf32"] is True and (not c.on_gpu or c.older_than(8)),
        "tf32 needs compute capability 8.0 or later, and {c.device_words}",
    ),
    gpu_kernels,
    packed_rows,
)
