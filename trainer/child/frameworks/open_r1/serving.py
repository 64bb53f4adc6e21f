"""The rollout server of TRL 0.18, ``trl vllm-serve``, that gives each row of a request a length of its own.

Its requests have one limit for all rows, and it answers one request after the other (``vllm_serve.py:432-505`` of 0.18:
``generate`` waits for its workers), so a request for each length would be another load. A row's length therefore stands
before its prompt.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any, Optional, Sequence, Tuple

from ..hf_trainer.sampling import exactly
from ..hf_trainer.weight_group import meet_at_home

MARK = "\0"
"""Stands around a length; no prompt begins with it."""


def mark(prompt: str, length: int) -> str:
    """``prompt`` as a request that wants ``length`` tokens."""
    return "%s%d%s%s" % (MARK, length, MARK, prompt)


def unmark(prompt: Any) -> Tuple[Any, Optional[int]]:
    """(The prompt, the tokens wanted); ``None`` lets the model stop where it wants."""
    if not isinstance(prompt, str) or not prompt.startswith(MARK):
        return prompt, None
    _, length, own = prompt.split(MARK, 2)
    return own, int(length)


def with_lengths(generate: Any) -> Any:
    """``LLM.generate`` that reads marked prompts. No row has an end of sequence: TRL masks what stands behind one."""

    @functools.wraps(generate)
    def generate_with_lengths(self: Any, prompts: Any, sampling_params: Any, *args: Any, **kwargs: Any) -> Any:
        rows = [unmark(prompt) for prompt in prompts]
        params: Any = sampling_params
        if any(length is not None for _, length in rows):
            own = sampling_params
            params = [own if length is None else exactly(own, length, unended=True) for _, length in rows]
        return generate(self, [prompt for prompt, _ in rows], params, *args, **kwargs)

    return generate_with_lengths


def install() -> None:
    """Replace what is replaced, in this process."""
    from trl.scripts import vllm_serve

    vllm_serve.LLM.generate = with_lengths(vllm_serve.LLM.generate)
    meet_at_home(vllm_serve.WeightSyncWorkerExtension)


def main(directory: Path, words: Sequence[str]) -> None:
    """Serves until the process is ended."""
    from trl.scripts import vllm_serve

    del directory  # its options say everything
    (arguments,) = vllm_serve.make_parser().parse_args_and_config(list(words))
    vllm_serve.main(arguments)
