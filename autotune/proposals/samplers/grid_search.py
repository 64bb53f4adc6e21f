"""Every candidate in turn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from autotune.proposals.lattice import Lattice, Mask
from autotune.proposals.translation import Evidence
from search_spaces.configuration import KnobValue


class GridSampler:
    """Takes the candidates in their order; learns nothing."""

    name = "grid"
    needs: tuple[str, ...] = ()
    learns = False

    def choose(
        self,
        lattice: Lattice,  # noqa: ARG002
        left: Mask,
        evidence: Sequence[Evidence],  # noqa: ARG002
        seed: int,  # noqa: ARG002
        start: Mapping[str, KnobValue] | None,  # noqa: ARG002
    ) -> int:
        return int(np.flatnonzero(left)[0])
