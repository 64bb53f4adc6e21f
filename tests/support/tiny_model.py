"""Builds a tiny random model, its tokenizer and prompts: run by the training interpreter.

``python tests/support/tiny_model.py FOLDER [HIDDEN LAYERS]`` leaves ``FOLDER/model`` and ``FOLDER/prompts.jsonl``.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

SPECIAL = ["<pad>", "<eos>", "<unk>"]


def build(folder: Path, hidden: int = 256, layers: int = 2) -> None:
    import torch  # noqa: PLC0415
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers  # noqa: PLC0415
    from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM  # noqa: PLC0415

    # Bytes only, no merges: it survives being loaded as whatever tokenizer class the model type implies.
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: number for number, token in enumerate(SPECIAL + letters)}
    core = Tokenizer(models.BPE(vocabulary, []))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>")
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=len(vocabulary),
        hidden_size=hidden,
        intermediate_size=3 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=4096,
        pad_token_id=0,
        eos_token_id=1,
        bos_token_id=None,
        tie_word_embeddings=True,
    )
    model = Qwen2ForCausalLM(config)
    model.generation_config.eos_token_id = 1
    model.generation_config.pad_token_id = 0
    model.save_pretrained(folder / "model")
    tokenizer.save_pretrained(folder / "model")
    with (folder / "prompts.jsonl").open("w") as stream:
        for number in range(32):
            prompt = "add " + " ".join(str(number * i % 17) for i in range(1, 3 + number % 4))
            stream.write(json.dumps({"prompt": prompt, "answer": str(number)}) + "\n")


if __name__ == "__main__":
    build(Path(sys.argv[1]), *map(int, sys.argv[2:]))
