"""Makes a model with random weights and a tokenizer: run by the training interpreter.

``PYTHON benchmarks/gpu/random_model.py RECIPE FOLDER``: RECIPE is the JSON of ``Architecture.recipe``. The
folder appears whole or not at all. Prints the parameters, and how likely the end of sequence is.
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

PAD, EOS = 0, 1
SPECIAL = ["<pad>", "<eos>", "<unk>"]
LETTERS = "abcdefghijklmnopqrstuvwxyz"
SAMPLE = (8, 96)
"""Rows and tokens the likelihood of the end is measured over."""
CHAT = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
"""verl puts every prompt into the tokenizer's chat template, and fails without one."""


def words() -> Iterator[str]:
    """Endless, each once: what fills the vocabulary beyond the bytes. They decode to text."""
    number = 0
    while True:
        rest, word = number, ""
        while rest or len(word) < 2:
            rest, letter = divmod(rest, len(LETTERS))
            word += LETTERS[letter]
        yield "\u0120" + word  # a leading space, in the alphabet of bytes
        number += 1


def tokenizer(size: int) -> Any:
    """Of exactly ``size`` entries; without merges, so that it is the same under whatever class loads it."""
    entries = [*SPECIAL, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    for word in words():
        if len(entries) >= size:
            break
        entries.append(word)
    core = Tokenizer(models.BPE({token: number for number, token in enumerate(entries[:size])}, []))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    names = {"pad_token": "<pad>", "eos_token": "<eos>", "unk_token": "<unk>"}
    return PreTrainedTokenizerFast(tokenizer_object=core, chat_template=CHAT, **names)


@torch.no_grad()
def make_model(recipe: dict[str, Any], device: str) -> tuple[Any, float]:
    """(The model in bfloat16, likelihood of the end of sequence at a random place)."""
    torch.manual_seed(recipe["seed"])
    config = Qwen2Config(**recipe["config"], pad_token_id=PAD, eos_token_id=EOS, bos_token_id=None)
    with torch.device(device):
        model = Qwen2ForCausalLM(config).to(torch.bfloat16).eval()
    weights = model.get_input_embeddings().weight
    # What all tokens have in common: along it the hidden states agree, so that one row of the head can be seen by all.
    weights += torch.randn(weights.shape[1], device=device).to(weights.dtype) * config.initializer_range * 2
    chance = end_after(model, float(recipe["mean_completion"]))
    model.generation_config.eos_token_id, model.generation_config.pad_token_id = EOS, PAD
    return model, chance


@torch.no_grad()
def end_after(model: Any, tokens: float) -> float:
    """Turn the head's row of the end towards what hidden states have in common, until it comes once in ``tokens``."""
    head = model.get_output_embeddings().weight
    ids = torch.randint(len(SPECIAL), head.shape[0], SAMPLE, device=head.device)
    hidden = model.model(ids).last_hidden_state[:, 1:].reshape(-1, head.shape[1]).float()
    common = hidden.mean(0)
    common /= common.norm()
    along = hidden @ common
    logits = hidden @ head.float().T
    own = logits[:, EOS].clone()
    logits[:, EOS] = -math.inf
    others = logits.logsumexp(1)
    low, high = 0.0, 1.0
    while chance_of(own, along, others, high) < 1 / tokens and high < 1e4:
        high *= 2
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if chance_of(own, along, others, middle) < 1 / tokens else (low, middle)
    head[EOS] += (high * common).to(head.dtype)
    return chance_of(own, along, others, high)


def chance_of(own: Any, along: Any, others: Any, much: float) -> float:
    """Mean likelihood of the end with its row turned by ``much``."""
    return float(torch.sigmoid(own + much * along - others).mean())


def build(recipe: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Model and tokenizer in ``folder``."""
    model, chance = make_model(recipe, "cuda" if torch.cuda.is_available() else "cpu")
    unfinished = folder.with_name(folder.name + ".unfinished")
    model.cpu().save_pretrained(unfinished)
    tokenizer(recipe["config"]["vocab_size"]).save_pretrained(unfinished)
    os.replace(unfinished, folder)
    return {"parameters": sum(p.numel() for p in model.parameters()), "end_of_sequence": chance}


if __name__ == "__main__":
    print(json.dumps(build(json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2]))))
