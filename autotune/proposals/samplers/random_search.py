"""Any candidate, each equally likely."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from autotune.proposals.lattice import Lattice, Mask
from autotune.proposals.translation import Evidence
from search_spaces.configuration import KnobValue


class RandomSampler:
    """Draws without looking at what is known; the floor every other sampler is compared with."""

    name = "random"
    needs: tuple[str, ...] = ()
    learns = False

    def choose(
        self,
        lattice: Lattice,  # noqa: ARG002
        left: Mask,
        evidence: Sequence[Evidence],  # noqa: ARG002
        seed: int,
        start: Mapping[str, KnobValue] | None,  # noqa: ARG002
    ) -> int:
        # The seed is a digest, uniform over 32 bits already; a generator would add nothing but a version to pin.
        indices = np.flatnonzero(left)
        return int(indices[seed % len(indices)])
