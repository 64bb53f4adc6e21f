"""verl's single-turn agent loop, as ``verl/experimental/agent_loop/single_turn_agent_loop.py`` of 0.9.1 has it.

The engine is one that writes what it is asked for, and of itself 3 to 9 tokens.
"""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any


class SingleTurnAgentLoop:
    def __init__(self, prompt_length: int, response_length: int) -> None:
        self.prompt_length, self.response_length = prompt_length, response_length

    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> Any:
        prompt = await self.ct_build_initial_tokens(list(kwargs["raw_prompt"]))
        length = 3 + (5 * int(kwargs["index"]) + 3 * int(kwargs["session_id"])) % 7
        if sampling_params.get("ignore_eos"):
            length = sampling_params["max_tokens"]
        await asyncio.sleep(0)
        answer = list(range(min(length, self.response_length)))
        return SimpleNamespace(prompt_ids=prompt, response_ids=answer)

    async def ct_build_initial_tokens(self, messages: list[dict[str, str]]) -> list[int]:
        return [ord(sign) for sign in messages[-1]["content"]][-self.prompt_length :]
