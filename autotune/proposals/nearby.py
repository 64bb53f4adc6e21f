"""The legal configurations about one of a space too large to be listed: those that differ from it in one knob.

Of such a space the candidates are drawn by chance (``SearchSpace.candidates``), and hardly any two of them differ in
one knob alone. Whoever climbs one knob at a time asks here instead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from autotune.domain import Configuration, Resources
from autotune.proposals.candidate_grid import STEPS
from autotune.proposals.local_search import ROWS
from search_spaces.knobs import KNOBS, Knob
from search_spaces.space import SearchSpace

LISTED = 50_000
"""Candidates that are listed at most; a space with as many was drawn from."""
KEPT = 16
"""Neighbourhoods remembered: a climb asks about the same base again and again."""


@dataclass
class Nearby:
    """Neighbours of a configuration, each once, in an order that depends on nothing but the arguments.

    With a knob goes what follows from it: the settings only it brings into play, or else other rows, where it takes
    their memory, and the steps per generation, which are counted in micro-batches.
    """

    space: SearchSpace
    baseline: Configuration
    resources: Resources
    knobs: Mapping[str, Knob] = field(default_factory=lambda: KNOBS)
    _known: dict[tuple[str, bool], tuple[Configuration, ...]] = field(default_factory=dict)

    def of(self, base: Configuration, *, same_learning: bool) -> tuple[Configuration, ...]:
        """Those of ``base``, it among them where it is a candidate itself."""
        key = (base.key, same_learning)
        if key not in self._known:
            if len(self._known) >= KEPT:
                del self._known[next(iter(self._known))]
            found = (c for name in self.space.values for c in self._along(name, base, same_learning))
            self._known[key] = tuple(dict.fromkeys(found))
        return self._known[key]

    def _along(self, name: str, base: Configuration, same_learning: bool) -> Sequence[Configuration]:
        followers = {n for n in self.space.values if n in self.knobs and name in self.knobs[n].needs}
        free = {name, *(followers or (ROWS, STEPS))}
        narrow = self.space.about(base, free)
        return narrow.candidates(self.baseline, self.resources, same_learning=same_learning, limit=LISTED)
