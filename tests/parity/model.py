"""A small random model whose attention, norms and head all matter: run by the training interpreter.

``python model.py FOLDER`` leaves ``FOLDER/model``, ``FOLDER/prompts.jsonl`` and ``FOLDER/long.jsonl``: four prompts,
each longer than a block of the rollout engine's cache, so that every update asks for the same prefixes again.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path


def build(folder: Path) -> None:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
    import tiny_model  # noqa: PLC0415
    import torch  # noqa: PLC0415
    from transformers import Qwen2Config, Qwen2ForCausalLM  # noqa: PLC0415

    tiny_model.build(folder)
    config = Qwen2Config.from_pretrained(folder / "model")
    config.hidden_size, config.intermediate_size = 128, 192
    config.num_attention_heads, config.num_key_value_heads = 2, 1
    config.initializer_range = 0.15  # as it is by default, every token would be nearly as likely as every other
    torch.manual_seed(0)
    model = Qwen2ForCausalLM(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith(("norm.weight", ".bias")):
                parameter.add_(torch.randn_like(parameter) * 0.2)
    model.generation_config.eos_token_id = 1
    model.generation_config.pad_token_id = 0
    model.save_pretrained(folder / "model")
    with (folder / "long.jsonl").open("w") as stream:
        for number in range(4):
            prompt = "add " + " ".join(str(number * i % 89 + 10) for i in range(46))
            stream.write(json.dumps({"prompt": prompt, "answer": str(number)}) + "\n")


if __name__ == "__main__":
    build(Path(sys.argv[1]))
