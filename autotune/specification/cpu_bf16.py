"""Avoids bf16 on a CPU without instructions for it, where it is many times as slow as fp32.

Frameworks compute in bf16 by default, so a first trial there would take longer than many a study. A study without a
configuration therefore begins in fp32, and a preset is searched without bf16. Explicit choices of the user stay: a
configuration, ``--set`` and a space. See docs/decisions/0038-bf16-on-a-cpu.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from autotune.specification.request import ResolvedRequest
from search_spaces.configuration import KnobValue
from search_spaces.knobs import defaults
from search_spaces.space import SearchSpace

KNOBS = ("precision", "master_weights")
"""Number formats of the computation, and of the stored weights."""
SLOW, FAST = "bf16", "fp32"
WHY = "this CPU has no instructions for bf16, and computes in it many times as slowly as in fp32"


def avoided(request: ResolvedRequest, space: SearchSpace) -> tuple[ResolvedRequest, SearchSpace, str]:
    """Returns request and space without bf16, and a sentence on the change; empty without one.

    Args:
        request: request of a study on such a CPU.
        space: the space that it names, or the preset.
    """
    said = []
    begins = {} if request.config is not None else _beginning(request.baseline, space, request.framework)
    if begins:
        request = replace(request, baseline={**begins, **request.baseline})
        said.append(f"the baseline computes in {FAST} instead of {SLOW}")
    if request.space is None and (cut := _cut(space, request.baseline)) is not None:
        space = cut
        said.append(f"{SLOW} is left out of the space")
    if said:
        return request, space, f"{WHY}: {' and '.join(said)} (--set precision={SLOW} measures it all the same)"
    slow = _slow(request.baseline, space, request.framework)
    return request, space, f"{WHY}: expect long trials" if slow else ""


def _beginning(own: Mapping[str, KnobValue], space: SearchSpace, framework: str) -> dict[str, KnobValue]:
    """Returns the knobs that set the baseline to fp32; empty if user or space sets one, or it is fp32 already."""
    settings = {**space.fixed, **own}
    if any(name in settings for name in KNOBS) or not _slow(own, space, framework):
        return {}
    unset = defaults(framework)
    return {n: FAST for n in KNOBS if unset.get(n) == SLOW and FAST in space.values.get(n, (FAST,))}


def _slow(own: Mapping[str, KnobValue], space: SearchSpace, framework: str) -> bool:
    """Tells whether the baseline computes in bf16."""
    values = {**defaults(framework), **space.fixed, **own}
    return any(values.get(name) == SLOW for name in KNOBS)


def _cut(space: SearchSpace, own: Mapping[str, KnobValue]) -> SearchSpace | None:
    """Returns a preset without bf16; ``None`` if there is nothing to leave out."""
    if any(own.get(name) == SLOW for name in KNOBS):
        return None
    left = {n: [v for v in space.values[n] if v != SLOW] for n in KNOBS if SLOW in space.values.get(n, ())}
    if not left:
        return None
    data = space.as_json()
    return SearchSpace.from_json({**data, "knobs": {**data["knobs"], **left}})
