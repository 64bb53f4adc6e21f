"""Sets exact completion lengths in a rollout server, and reads its engine's counters.

TRL's client requests all rows of a generation at once, with one limit for all. A row can only have its own length in
its own request, so one request is sent for each distinct length, all at once; the engine schedules the same sequences
either way, and shares a group's prompt by its prefix cache.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple, Union

from ...failures import MeterError
from ..hf_trainer.around import replace
from .engine import EngineWatch

PREEMPTIONS = "vllm:num_preemptions_total"
"""Counter in the server's ``/metrics``; each replica has its own."""
PER_ROW = ("completion_ids", "logprobs", "logprob_token_ids")


def install_lengths(client: Any, lengths_of: Callable[[], Optional[Sequence[int]]]) -> None:
    """Patches ``generate`` of TRL's ``VLLMClient`` to set completion lengths.

    Args:
        lengths_of: returns the tokens of every row of the next generation, over all ranks in order; ``None`` leaves
            the lengths to the model.
    """

    def with_lengths(generate: Any, prompts: Any, features: Any = None, n: int = 1, **sampling: Any) -> Any:
        lengths = lengths_of()
        if lengths is None:
            return generate(prompts=prompts, features=features, n=n, **sampling)
        if len(lengths) != len(prompts) * n:
            raise MeterError("a generation of %d rows, but lengths for %d" % (len(prompts) * n, len(lengths)))
        return by_length(generate, prompts, features, n, lengths, sampling)

    replace(client, "generate", with_lengths)


def by_length(
    generate: Any, prompts: Sequence[Any], features: Any, n: int, lengths: Sequence[int], sampling: Mapping[str, Any]
) -> Dict[str, Any]:
    """Returns the response of ``generate`` for ``n`` rows of each prompt, in order; row i has ``lengths[i]`` tokens."""
    rows_of: Dict[int, List[int]] = {}
    for row, length in enumerate(lengths):
        rows_of.setdefault(length, []).append(row)

    def ask(length: int) -> Tuple[List[int], Dict[str, Any]]:
        rows = rows_of[length]
        answer = generate(
            prompts=[prompts[row // n] for row in rows],
            features=None if features is None else [features[row // n] for row in rows],
            n=1,
            **exactly(sampling, length),
        )
        return rows, answer

    whole: Dict[str, Any] = {name: [None] * len(lengths) for name in PER_ROW}
    prompt_ids: List[Any] = [None] * len(lengths)
    with ThreadPoolExecutor(max_workers=len(rows_of)) as executor:
        for rows, answer in executor.map(ask, rows_of):
            for name in PER_ROW:
                if answer.get(name) is None:
                    whole[name] = None
            for at, row in enumerate(rows):
                prompt_ids[row] = answer["prompt_ids"][at]
                for name in PER_ROW:
                    if whole[name] is not None:
                        whole[name][row] = answer[name][at]
    return {**whole, "prompt_ids": prompt_ids[::n]}


def exactly(sampling: Mapping[str, Any], length: int) -> Dict[str, Any]:
    """Returns the request's parameters for completions of ``length`` tokens, like ``sampling.exactly``."""
    own = {**(sampling.get("generation_kwargs") or {}), "max_tokens": length, "ignore_eos": True}
    own = {name: value for name, value in own.items() if name not in ("stop", "stop_token_ids")}
    return {**sampling, "max_tokens": length, "generation_kwargs": own}


class ServerWatch:
    """Counts preemptions since ``begin``; omits cache use, as the server reports only its momentary value."""

    engine_bytes: Optional[int] = None
    """Unknown: the memory is on the server's GPUs."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._before: Optional[int] = None

    def begin(self) -> None:
        self._before = self._count()

    def end(self) -> Tuple[Optional[int], Optional[float]]:
        """Returns (preemptions, or ``None`` if not reported; ``None`` for the cache use)."""
        now = self._count()
        return (None if now is None or self._before is None else now - self._before), None

    def _count(self) -> Optional[int]:
        answer = self._client.session.get(self._client.base_url + "/metrics")
        return counted(answer.text, PREEMPTIONS) if answer.status_code == 200 else None


def counted(text: str, name: str) -> Optional[int]:
    """Returns the sum of counter ``name`` over its labels in Prometheus text; ``None`` if it is absent."""
    lines = (line.rpartition(" ") for line in text.splitlines())
    values = [float(value) for key, _, value in lines if key.partition("{")[0] == name]
    return int(sum(values)) if values else None


Watch = Union[EngineWatch, ServerWatch]


def watch_server(trainer: Any) -> List[Watch]:
    """Returns the counters of the trainer's server; empty without a server, or on a rank without its client."""
    if not trainer.use_vllm or trainer.vllm_generation.mode != "server" or not trainer.accelerator.is_main_process:
        return []
    return [ServerWatch(trainer.vllm_generation.vllm_client)]
