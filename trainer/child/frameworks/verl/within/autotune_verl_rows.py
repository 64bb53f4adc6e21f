"""verl's own single-turn agent loop, extended to set and report the length of each completion.

verl loads it by ``actor_rollout_ref.rollout.agent.agent_loop_config_path``, one object for each completion.
"""

from __future__ import annotations

from typing import Any, List

from autotune_in_verl import ours  # type: ignore[import-not-found]
from verl.experimental.agent_loop.single_turn_agent_loop import SingleTurnAgentLoop

scoring = ours("scoring")


class Measured(SingleTurnAgentLoop):  # type: ignore[misc]
    """An agent loop for one completion."""

    _width = 0

    async def run(self, sampling_params: Any, **kwargs: Any) -> Any:
        """Runs verl's own loop with the length that the trial has set for this row."""
        here = scoring.here()
        number, row = int(kwargs["global_steps"]), here.row(kwargs["index"], kwargs["session_id"])
        step = await here.step(number)
        self._width = here.board.longest_prompt if step.stretched else 0
        output = await super().run(scoring.sampling(sampling_params, step, row), **kwargs)
        here.tell_row(number, row, len(output.prompt_ids), len(output.response_ids))
        return output

    async def ct_build_initial_tokens(self, *args: Any, **kwargs: Any) -> List[int]:
        """Returns the prompt's token ids, in the worst case stretched to the maximum length."""
        found = await super().ct_build_initial_tokens(*args, **kwargs)
        return scoring.stretch(found, self._width)  # type: ignore[no-any-return]
