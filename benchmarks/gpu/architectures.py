"""Models as plain numbers, and what a random one of each is made from. Pure.

Speed and memory depend on the shapes of a model, not on what it has learned, so random weights measure as
well as trained ones, and need no download.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

_QWEN = "Qwen2.5 technical report (arXiv:2412.15115), table 1, and the model's published config.json"


@dataclass(frozen=True)
class Architecture:
    """A decoder with grouped attention, gated MLP and biased q, k and v, as Qwen2 has them."""

    name: str
    layers: int
    hidden_size: int
    intermediate_size: int
    heads: int
    kv_heads: int
    vocabulary: int
    positions: int
    rope_theta: float
    source: str
    mean_completion: int
    """Tokens; the end of sequence is made as likely as that, because random weights never end by themselves."""

    @property
    def head_size(self) -> int:
        return self.hidden_size // self.heads

    @property
    def parameters(self) -> int:
        """Each once, the embedding being the LM head too."""
        width, inner, kv = self.hidden_size, self.intermediate_size, self.kv_heads * self.head_size
        attention = 2 * width * width + width + 2 * (width * kv + kv)
        return self.vocabulary * width + self.layers * (attention + 3 * width * inner + 2 * width) + width

    def recipe(self, seed: int = 0) -> dict[str, Any]:
        """What ``random_model.py`` reads: ``Qwen2Config`` arguments, and how to fill and end."""
        return {
            "config": {
                "vocab_size": self.vocabulary,
                "hidden_size": self.hidden_size,
                "intermediate_size": self.intermediate_size,
                "num_hidden_layers": self.layers,
                "num_attention_heads": self.heads,
                "num_key_value_heads": self.kv_heads,
                "max_position_embeddings": self.positions,
                "rope_parameters": {"rope_type": "default", "rope_theta": self.rope_theta},
                "rms_norm_eps": 1e-6,
                "tie_word_embeddings": True,
            },
            "mean_completion": self.mean_completion,
            "seed": seed,
        }


ARCHITECTURES = {
    found.name: found
    for found in (
        Architecture("qwen2.5-0.5b", 24, 896, 4864, 14, 2, 151_936, 32_768, 1e6, _QWEN, 160),
        Architecture("qwen2.5-1.5b", 28, 1536, 8960, 12, 2, 151_936, 32_768, 1e6, _QWEN, 160),
        Architecture("qwen2.5-3b", 36, 2048, 11_008, 16, 2, 151_936, 32_768, 1e6, _QWEN, 160),
        Architecture("tiny", 2, 256, 768, 4, 2, 1024, 4096, 1e4, "made up, to try the command without a GPU", 12),
    )
}
TINY = "tiny"
"""For trying the command; nothing measured on it says anything."""
