"""Every candidate in turn, as far as it goes without starting anything anew."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from autotune.proposals.lattice import Lattice, Mask
from autotune.proposals.translation import Evidence
from search_spaces.configuration import KnobValue
from search_spaces.knobs.restart import restart_between

WINDOW = 256
"""Candidates looked at for one that costs no restart."""


class GridSampler:
    """Takes the candidates in their order, those first that cost the last trial's process the least; learns nothing."""

    name = "grid"
    needs: tuple[str, ...] = ()

    def choose(
        self,
        lattice: Lattice,
        left: Mask,
        evidence: Sequence[Evidence],
        seed: int,  # noqa: ARG002
        start: Mapping[str, KnobValue] | None,  # noqa: ARG002
    ) -> int:
        indices = np.flatnonzero(left)[:WINDOW]
        if not evidence:
            return int(indices[0])
        last = evidence[-1].configuration
        return int(min(indices, key=lambda index: (restart_between(last, lattice.candidates[index]), index)))
