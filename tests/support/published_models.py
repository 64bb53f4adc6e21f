"""What ``config.json`` says of published models, as far as their parameters follow from it; and how many those are."""

from __future__ import annotations

from typing import Any

LLAMA: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256, "tie_word_embeddings": False,
}  # fmt: skip


def family(name: str, sizes: tuple[int, ...], **more: Any) -> dict[str, Any]:
    keys = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
            "vocab_size")  # fmt: skip
    return {"model_type": name, **dict(zip(keys, sizes, strict=True)), **more}


PUBLISHED = {
    "Qwen2.5-0.5B": (family("qwen2", (896, 4864, 24, 14, 2, 151936), tie_word_embeddings=True), 494_032_768),
    "Qwen2.5-1.5B": (family("qwen2", (1536, 8960, 28, 12, 2, 151936), tie_word_embeddings=True), 1_543_714_304),
    "Qwen2.5-7B": (family("qwen2", (3584, 18944, 28, 28, 4, 152064), tie_word_embeddings=False), 7_615_616_512),
    "Qwen2.5-32B": (family("qwen2", (5120, 27648, 64, 40, 8, 152064), tie_word_embeddings=False), 32_763_876_352),
    "Llama-3.1-8B": (LLAMA, 8_030_261_248),
    "Qwen3-8B": (
        family("qwen3", (4096, 12288, 36, 32, 8, 151936), head_dim=128, tie_word_embeddings=False),
        8_190_735_360,
    ),
    "Mistral-7B-v0.1": (family("mistral", (4096, 14336, 32, 32, 8, 32000)), 7_241_732_096),
    "gemma-2b": (family("gemma", (2048, 16384, 18, 8, 1, 256000), head_dim=256), 2_506_172_416),
    "gemma-2-2b": (family("gemma2", (2304, 9216, 26, 8, 4, 256000), head_dim=256), 2_614_341_888),
    "SmolLM2-135M": (family("llama", (576, 1536, 30, 9, 3, 49152), tie_word_embeddings=True), 134_515_008),
}
MIXTRAL = family("mixtral", (4096, 14336, 32, 32, 8, 32000), num_local_experts=8, num_experts_per_tok=2)
QWEN3_30B_A3B = family(
    "qwen3_moe", (2048, 6144, 48, 32, 4, 151936), head_dim=128, tie_word_embeddings=False, num_experts=128,
    num_experts_per_tok=8, moe_intermediate_size=768, decoder_sparse_step=1, mlp_only_layers=[],
)  # fmt: skip

QWEN3_VL_8B: dict[str, Any] = {
    "model_type": "qwen3_vl",
    "text_config": {**PUBLISHED["Qwen3-8B"][0], "model_type": "qwen3_vl_text"},
    "vision_config": {"depth": 27, "hidden_size": 1152},
}
"""A vision model whose text part is Qwen3-8B's."""
