"""Runs the rollout server of TRL 0.18, ``trl vllm-serve``, with a separate length for each row of a request.

A request has one limit for all rows, and the server handles one request after the other (``vllm_serve.py:432-505`` of
0.18: ``generate`` waits for its workers), so one request for each length would change the load. Each prompt is
therefore preceded by its row's length.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Optional, Sequence, Tuple

from ..hf_trainer.around import replace
from ..hf_trainer.sampling import exactly
from ..hf_trainer.weight_group import meet_at_home

MARK = "\0"
"""Delimits a length; no prompt begins with it."""


def mark(prompt: str, length: int) -> str:
    """Returns ``prompt`` marked with a completion length of ``length`` tokens."""
    return "%s%d%s%s" % (MARK, length, MARK, prompt)


def unmark(prompt: Any) -> Tuple[Any, Optional[int]]:
    """Returns (the prompt, its marked length in tokens); ``None`` leaves the length to the model."""
    if not isinstance(prompt, str) or not prompt.startswith(MARK):
        return prompt, None
    _, length, own = prompt.split(MARK, 2)
    return own, int(length)


def with_lengths(generate: Any, self: Any, prompts: Any, sampling_params: Any, *args: Any, **kwargs: Any) -> Any:
    """Wraps ``LLM.generate``: reads marked lengths; suppresses the end of sequence, after which TRL masks."""
    rows = [unmark(prompt) for prompt in prompts]
    params: Any = sampling_params
    if any(length is not None for _, length in rows):
        own = sampling_params
        params = [own if length is None else exactly(own, length, unended=True) for _, length in rows]
    return generate(self, [prompt for prompt, _ in rows], params, *args, **kwargs)


def install() -> None:
    """Installs the patches in this process."""
    from trl.scripts import vllm_serve

    replace(vllm_serve.LLM, "generate", with_lengths)
    meet_at_home(vllm_serve.WeightSyncWorkerExtension)


def main(directory: Path, words: Sequence[str]) -> None:
    """Serves with the command line ``words``, until the process is ended."""
    from trl.scripts import vllm_serve

    del directory  # its options say everything
    (arguments,) = vllm_serve.make_parser().parse_args_and_config(list(words))
    vllm_serve.main(arguments)
