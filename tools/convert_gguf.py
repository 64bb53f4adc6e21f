"""Converts one GGUF file to a plain model folder, in the training interpreter: torch and transformers.

Usage: convert_gguf.py GGUF_FILE OUTPUT_FOLDER

transformers 4.52 and 5 can read the folder. A model loaded from GGUF refuses ``save_pretrained``, so its weights are
copied into a fresh model of the same configuration.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from pathlib import Path
from typing import Any

QUESTION = "What is 3 + 4? Answer with the number only."
ANSWER = "7"
END = "<|im_end|>"
"""End-of-sequence token; without one in its files, the model would run every completion to the limit."""
MODEL_INPUTS = ["input_ids", "attention_mask"]
"""Written explicitly: transformers 4.52's plain tokenizer class adds ``token_type_ids``, which the model refuses."""
TRACES_OF_LOADING = ("backend", "is_local", "local_files_only", "model_type", "legacy")


def main(gguf_file: Path, output: Path) -> int:
    """Converts the file, makes the folder readable by transformers 4.52 and 5, and asks the model a question."""
    started = time.monotonic()

    def say(text: str) -> None:
        sys.stderr.write(f"  [{time.monotonic() - started:5.1f} s] {text}\n")
        sys.stderr.flush()

    say("loading torch and transformers")
    for name in ("torchao", "torch.utils._pytree"):  # as ``report.QUIETLY``, which this file cannot import
        logging.getLogger(name).setLevel(logging.ERROR)
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    say(f"reading {gguf_file.name}")
    source = transformers.AutoModelForCausalLM.from_pretrained(
        str(gguf_file.parent), gguf_file=gguf_file.name, **dtype_argument(transformers.__version__, torch.bfloat16)
    )
    tokenizer = transformers.AutoTokenizer.from_pretrained(str(gguf_file.parent), gguf_file=gguf_file.name)
    say("copying the weights")
    save_plain(source, tokenizer, output, transformers, torch)
    make_readable_by_both(output)
    say("asking it 3 + 4")
    answer = ask(output, transformers)
    if ANSWER not in answer or not answer.endswith(END):
        say(f"the converted model answered {answer!r}: expected {ANSWER} in it and {END} at its end")
        return 1
    say(f"it answered {answer!r}")
    return 0


def dtype_argument(version: str, dtype: Any) -> dict[str, Any]:
    """Returns the loading argument for the weights' type, which transformers renamed in 4.56."""
    major, minor = (int(part) for part in version.split(".")[:2])
    return {"dtype" if (major, minor) >= (4, 56) else "torch_dtype": dtype}


def save_plain(source: Any, tokenizer: Any, output: Path, transformers: Any, torch: Any) -> None:
    """Writes ``source`` as an ordinary bfloat16 model folder."""
    values = source.config.to_dict()
    values.pop("quantization_config", None)
    config = type(source.config).from_dict(values)
    plain = transformers.AutoModelForCausalLM.from_config(config).to(torch.bfloat16)
    plain.load_state_dict(source.state_dict())
    plain.tie_weights()
    plain.generation_config = source.generation_config
    plain.save_pretrained(str(output))
    for role in ("bos", "eos", "pad", "unk"):  # the tokenizer's own reading of the GGUF takes <|im_start|> for the end
        token_id = values.get(f"{role}_token_id")
        if token_id is not None:
            setattr(tokenizer, f"{role}_token", tokenizer.convert_ids_to_tokens(token_id))
    tokenizer.clean_up_tokenization_spaces = False
    tokenizer.save_pretrained(str(output))
    (output / "model.safetensors").chmod(0o644)


def make_readable_by_both(output: Path) -> None:
    """Writes older key names beside the newer ones, for transformers 4.52."""
    config_file = output / "config.json"
    config = json.loads(config_file.read_text(encoding="utf-8"))
    config.pop("_model_name_or_path", None)
    rope = config.get("rope_parameters") or {}
    if "rope_theta" in rope:
        config.setdefault("rope_theta", rope["rope_theta"])
    for new, old in (("dtype", "torch_dtype"), ("torch_dtype", "dtype")):
        if config.get(new) is not None:
            config.setdefault(old, config[new])
    write_json(config_file, config)
    tokenizer_file = output / "tokenizer_config.json"
    tokenizer = json.loads(tokenizer_file.read_text(encoding="utf-8"))
    kept = {key: value for key, value in tokenizer.items() if key not in TRACES_OF_LOADING}
    tokenizer = {**kept, "tokenizer_class": "PreTrainedTokenizerFast", "model_input_names": MODEL_INPUTS}
    template = output / "chat_template.jinja"
    if template.exists():
        tokenizer["chat_template"] = template.read_text(encoding="utf-8")
    write_json(tokenizer_file, tokenizer)


def write_json(path: Path, value: Any) -> None:
    """Writes indented JSON with a newline at the end."""
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def ask(folder: Path, transformers: Any) -> str:
    """Returns the model's answer to ``QUESTION``, decoded greedily."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(str(folder))
    model = transformers.AutoModelForCausalLM.from_pretrained(str(folder)).eval()
    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": QUESTION}], tokenize=False, add_generation_prompt=True
    )
    inputs = tokenizer(text, return_tensors="pt", add_special_tokens=False)
    settings = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    tokens = model.generate(**inputs, max_new_tokens=24, do_sample=False, **settings)
    return str(tokenizer.decode(tokens[0][inputs["input_ids"].shape[1] :])).strip()


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
