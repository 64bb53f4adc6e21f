"""Lengths row by row through the rollout servers of TRL 0.18 and ms-swift, which know one limit for a whole request.

The engines here are stand-ins; the real ones are tried in the frameworks' own environments.
"""

from __future__ import annotations

import asyncio
import os
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.child.frameworks.hf_trainer import weight_group
from trainer.child.frameworks.hf_trainer.around import around
from trainer.child.frameworks.ms_swift import serving as swift
from trainer.child.frameworks.open_r1 import serving as openr1
from trainer.frameworks.common import serving as parent

TEXT = st.text(st.characters(exclude_characters="\0"), min_size=1, max_size=8)


class Sampling:
    """As much of vLLM's parameters as a length takes."""

    def __init__(self, **own: Any) -> None:
        self.own = {
            "max_tokens": 64,
            "min_tokens": 0,
            "ignore_eos": False,
            "stop": ["</a>"],
            "stop_token_ids": [7],
            **own,
        }
        vars(self).update(self.own)

    def clone(self) -> Sampling:
        return Sampling(**self.own)


@given(st.lists(st.tuples(TEXT, st.integers(1, 64)), min_size=1, max_size=6))
def test_a_marked_prompt_is_generated_from_as_it_was(rows: list[tuple[str, int]]) -> None:
    asked: list[Any] = []
    generate = around(openr1.with_lengths, lambda _, prompts, params: asked.append((prompts, params)))
    own = Sampling()
    generate(None, [openr1.mark(prompt, length) for prompt, length in rows], own)
    ((prompts, params),) = asked
    assert prompts == [prompt for prompt, _ in rows]
    assert [each.max_tokens for each in params] == [length for _, length in rows]
    assert all(each.min_tokens == each.max_tokens for each in params), "no end of sequence within a row"
    assert all(each.ignore_eos and not each.stop and not each.stop_token_ids for each in params)
    assert own.max_tokens == 64, "the parameters of natural lengths stay as they are"


def test_prompts_without_a_mark_go_through_with_the_users_own_limit() -> None:
    asked: list[Any] = []
    generate = around(openr1.with_lengths, lambda _, prompts, sampling_params: asked.append((prompts, sampling_params)))
    own = Sampling()
    generate(None, prompts=["7 + 8", {"prompt_token_ids": [1]}], sampling_params=own)
    assert asked == [(["7 + 8", {"prompt_token_ids": [1]}], own)]


class Engine:
    """Adds requests as ms-swift's engine does: in their order, or each in a task of its own."""

    def __init__(self) -> None:
        self.added: list[tuple[list[int], Any]] = []

    def _add_request(self, inputs: Any, generation_config: Any, request_id: str) -> None:
        del request_id
        self.added.append((inputs["input_ids"], generation_config.max_tokens))

    def infer(self, requests: Any) -> None:
        for number, request in enumerate(requests):
            assert "autotune" not in str(request), "what is wished is no part of the request"
            self._add_request({"input_ids": request["ids"]}, Sampling(), str(number))

    async def infer_async(self, request: Any) -> None:
        await asyncio.sleep(0)
        self._add_request({"input_ids": request["ids"]}, Sampling(), "id")


class Served(Engine):
    infer = around(swift.with_lengths, Engine.infer)
    infer_async = swift.with_length(Engine.infer_async)
    _add_request = around(swift.adding, Engine._add_request)


ROWS = st.lists(st.tuples(st.integers(1, 50), st.one_of(st.none(), st.integers(1, 8))), min_size=1, max_size=6)


@given(ROWS)
def test_each_request_of_ms_swift_has_its_own_length_and_its_own_prompt(rows: list[tuple[int, int | None]]) -> None:
    requests = [{"ids": [number], "data_dict": {"own": 1}} for number in range(len(rows))]
    marked = [swift.marked(request, tokens, prompt) for request, (tokens, prompt) in zip(requests, rows, strict=True)]
    engine = Served()
    engine.infer(marked)
    wished = [([number] * (prompt or 1), tokens) for number, (tokens, prompt) in enumerate(rows)]
    assert engine.added == wished
    engine.added.clear()

    async def all_at_once() -> None:
        await asyncio.gather(*(engine.infer_async(request) for request in marked))

    asyncio.run(all_at_once())
    assert sorted(engine.added) == sorted(wished)
    engine.added.clear()
    engine.infer(requests)
    assert engine.added == [([number], 64) for number in range(len(rows))], "natural lengths after recorded ones"


def test_the_weights_are_met_on_this_machine_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clients name every address of the machine, and the group loads pickles of whoever reaches it."""
    met: list[Any] = []

    class Extension:
        def init_communicator(self, host: str, port: int, world_size: int) -> None:
            met.append((host, port, world_size))

    weight_group.meet_at_home(Extension)
    Extension().init_communicator("0.0.0.0", 5, 3)  # noqa: S104 - it is what must not be met at
    assert met == [("127.0.0.1", 5, 3)]
    monkeypatch.setenv(parent.PORT_VARIABLE, "4711")
    assert weight_group.client_at_port(SimpleNamespace)(base_url="u").group_port == 4711
    monkeypatch.delenv(parent.PORT_VARIABLE)
    assert weight_group.client_at_port(SimpleNamespace) is SimpleNamespace
    assert os.path.isfile(parent.SERVE)
