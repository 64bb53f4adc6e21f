"""Code of a trial inside verl's processes: sets lengths, reports completions, and computes the study's rewards.

verl requests one completion's reward at a time, from several threads of a reward worker. It logs a failed reward and
trains on the rest; this module reports the failure, so that the trial ends.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import json
import os
import threading
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Optional

from ...contract import FailureReason, RunPaths, read_spec
from ...rewards import RAISED, as_numbers, as_reward_error, load_reward, name_of
from ..hf_trainer.sampling import stretch
from .board import TRIAL_VARIABLE, Board, Places, ReportedFailure, StepTargets, append, read_board, tell_failure

__all__ = ["here", "sampling", "score", "stretch"]

LOOK_S = 0.02
WAIT_S = 600.0
"""Seconds to wait for the lengths of a step, after which the trial counts as gone."""


class Inside:
    """Access to the trial's files from one process of verl."""

    def __init__(self, root: Path) -> None:
        self.places = Places(root)
        self._board: Optional[Board] = None
        self._looked = float("-inf")

    @property
    def board(self) -> Board:
        """The board as last read. Raises ``RuntimeError`` if the trial has written none."""
        found = self._board or self._read()
        if found is None:
            raise RuntimeError("the trial has written no %s" % self.places.board)
        return found

    def _read(self) -> Optional[Board]:
        """Reads the board at most every ``LOOK_S`` seconds, although each row that waits asks for it."""
        if time.monotonic() - self._looked >= LOOK_S:
            self._looked = time.monotonic()
            self._board = read_board(self.places) or self._board
        return self._board

    async def step(self, number: int) -> StepTargets:
        """Waits for verl's step ``number``, from 1 on. Raises ``RuntimeError`` if it is not published in time."""
        until = time.monotonic() + WAIT_S
        while len(self.board.steps) < number:
            if time.monotonic() >= until:
                raise RuntimeError("nobody has decided how long the completions of step %d are" % number)
            await asyncio.sleep(LOOK_S)
            self._read()
        return self.board.steps[number - 1]

    def row(self, prompt: Any, generation: Any) -> int:
        """Returns a completion's index in its step; ``prompt``: number in the trial, ``generation``: in the group."""
        board = self.board
        return int(prompt) % board.prompts * board.generations + int(generation)

    def tell_row(self, step: int, row: int, prompt: int, completion: int) -> None:
        """Reports a finished completion, with the tokens of ``prompt`` and ``completion``."""
        append(self.places.rows, [step, row, prompt, completion])

    def tell_score(self, prompt: Any, score: float) -> None:
        """Reports the score of a completion of the prompt with number ``prompt`` in the trial."""
        append(self.places.scores, [int(prompt), score])


@functools.lru_cache(maxsize=None)
def here() -> Inside:
    """Returns the access to this process's trial."""
    return Inside(Path(os.environ[TRIAL_VARIABLE]))


def sampling(own: Mapping[str, Any], step: StepTargets, row: int) -> Dict[str, Any]:
    """Returns vLLM's sampling parameters for a row, with the row's length in the step.

    Only the limit ends such a completion, and no token is forbidden.
    """
    if step.lengths is None:
        return dict(own)
    return {**own, "max_tokens": step.lengths[row], "ignore_eos": True, "stop": [], "stop_token_ids": []}


_ONE_AT_A_TIME = threading.Lock()


def score(solution: str, truth: str, extra: Optional[Mapping[str, Any]]) -> float:
    """Returns the sum of the rewards of one completion; a reward of ``None`` counts as 0.

    Args:
        truth: the prompt's line of the prompts file, as JSON.
        extra: mapping with ``index``, the prompt's number.
    """
    inside = here()
    with _ONE_AT_A_TIME:
        try:
            total = sum(_one(reward, solution, json.loads(truth)) for reward in _rewards(inside.places.root))
        except RAISED as error:
            failed = as_reward_error(error)
            tell_failure(inside.places, ReportedFailure(FailureReason.REWARD_ERROR.value, str(failed)))
            raise
    inside.tell_score((extra or {}).get("index", 0), total)
    return total


@functools.lru_cache(maxsize=None)
def _rewards(root: Path) -> List[Callable[..., Any]]:
    return [load_reward(reward) for reward in read_spec(RunPaths(root).config).rewards]


def _one(reward: Callable[..., Any], solution: str, columns: Mapping[str, Any]) -> float:
    prompt = columns["prompt"]
    completion: Any = solution if isinstance(prompt, str) else [{"role": "assistant", "content": solution}]
    given = {name: [value] for name, value in columns.items() if name != "prompt"}
    given["completions"] = [completion]
    scores = reward(prompts=[prompt], **given)
    if inspect.isawaitable(scores):
        scores = asyncio.run(_awaited(scores))
    return as_numbers(scores, name_of(reward), given["completions"])[0] or 0.0


async def _awaited(scores: Any) -> Any:
    return await scores
