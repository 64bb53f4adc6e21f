"""Exact completion lengths in transformers' continuous batching.

Its logits processors see rows of many requests packed together, so lengths are not set there: each
request is submitted with its own ``max_new_tokens`` and no end-of-sequence token.
"""

from __future__ import annotations

import contextlib
import importlib
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence

from ...failures import MeterError

MODULE = "transformers.generation.continuous_batching"
NO_END = -1
"""An id no token has: transformers' own word for "nothing ends a request but its length"."""


def generate_with_lengths(
    generate_batch: Callable[..., Any], inputs: Sequence[Any], lengths: Optional[Sequence[int]], **kwargs: Any
) -> Any:
    """Runs ``generate_batch`` of the model with ``lengths[i]`` tokens for row i; ``None`` leaves lengths free.

    Raises:
        MeterError: this transformers submits its requests in an unknown way.
        Exception: the error that ended the engine's thread; transformers itself only logs it and returns the rows
            finished by then.
    """
    managers: List[Any] = []
    with _submitting(lengths, managers):
        outputs = generate_batch(inputs, **kwargs)
    if not managers:
        raise MeterError("continuous batching did not submit its requests by add_requests")
    error = _ended_by(managers[0], outputs, len(inputs))
    if error is not None:
        raise error
    return outputs


@contextlib.contextmanager
def _submitting(lengths: Optional[Sequence[int]], managers: List[Any]) -> Iterator[None]:
    """Makes submitted requests take ``lengths``; adds their manager to ``managers``."""
    manager_class = importlib.import_module(MODULE).ContinuousBatchingManager
    submit = manager_class.add_requests

    def add_requests(manager: Any, inputs: Sequence[Any], *args: Any, **kwargs: Any) -> Any:
        managers.append(manager)
        if lengths is None:
            return submit(manager, inputs, *args, **kwargs)
        if len(lengths) != len(inputs):
            raise MeterError("a generation of %d rows, but lengths for %d" % (len(inputs), len(lengths)))
        given: Dict[str, Any] = {key: value for key, value in kwargs.items() if key != "max_new_tokens"}
        names = ["row_%d" % row for row in range(len(inputs))]
        for row in _order(manager, inputs):
            manager.add_request(
                inputs[row], request_id=names[row], max_new_tokens=lengths[row], eos_token_id=NO_END, **given
            )
        return names

    manager_class.add_requests = add_requests
    try:
        yield
    finally:
        manager_class.add_requests = submit


def _order(manager: Any, inputs: Sequence[Any]) -> List[int]:
    """Returns transformers' order of the rows: with shared prefixes, equal rows follow one another."""
    rows = list(range(len(inputs)))
    if getattr(manager, "_use_prefix_sharing", False):
        rows.sort(key=lambda row: list(inputs[row]), reverse=True)
    return rows


def _ended_by(manager: Any, outputs: Mapping[str, Any], rows: int) -> Optional[BaseException]:
    """Returns the error that left rows unfinished, or ``None`` if all are whole."""
    fatal = getattr(getattr(manager, "background_thread_status", None), "fatal_error", None)
    if isinstance(fatal, BaseException):
        return fatal
    said = [str(output.error) for output in outputs.values() if output.error is not None]
    if said or len(outputs) < rows:
        return RuntimeError("continuous batching lost completions: %s" % (said[0] if said else "it does not say why"))
    return None
