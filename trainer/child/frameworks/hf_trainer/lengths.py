"""Exact completion lengths for transformers generation."""

from __future__ import annotations

from typing import Any, Dict, List, Sequence

import torch


class ExactLengths:
    """Logits processor that gives each completion exactly its given length, in tokens.

    Forbids the end-of-sequence token before token L and forces it as token L. A completion of maximum length gets none,
    as if it were clipped. All masks are made before the first token, so that no step waits for the device.
    """

    def __init__(
        self, lengths: Sequence[int], prompt_width: int, maximum: int, eos: Sequence[int], device: Any
    ) -> None:
        self._width = prompt_width
        self._eos = torch.tensor(list(eos), device=device)
        wanted = torch.tensor(list(lengths), device=device).unsqueeze(1)
        step = torch.arange(1, maximum + 1, device=device).unsqueeze(0)
        self._forbidden = (step < wanted) | (wanted >= maximum)
        ends: Dict[int, List[int]] = {}
        for row, length in enumerate(lengths):
            if length < maximum:
                ends.setdefault(length, []).append(row)
        self._ends = {at: torch.tensor(rows, device=device) for at, rows in ends.items()}

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        step = input_ids.shape[1] - self._width + 1
        ending = self._ends.get(step)
        if ending is not None:
            scores[ending] = float("-inf")
            scores[ending, self._eos[0]] = 0.0
        forbidden = self._forbidden[:, step - 1 : step]
        scores[:, self._eos] = scores[:, self._eos].masked_fill(forbidden, float("-inf"))
        return scores
