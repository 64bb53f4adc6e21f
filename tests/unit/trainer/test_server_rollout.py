"""Lengths row by row from a server whose client knows one limit for all; the real client is tried in integration."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.child.failures import MeterError
from trainer.child.frameworks.trl.server_rollout import ServerWatch, counted, install_lengths, watch_server


class Client:
    """Answers as TRL's client does: token ``i`` of a row is ``prompt's first token x 100 + i``."""

    base_url = "http://127.0.0.1:1"

    def __init__(self, logprobs: bool = True) -> None:
        self.asked: list[dict[str, Any]] = []
        self._logprobs = logprobs
        self._lock = threading.Lock()

    def generate(self, prompts: Any, features: Any = None, n: int = 1, **sampling: Any) -> dict[str, Any]:
        with self._lock:
            self.asked.append({"prompts": prompts, "features": features, "n": n, **sampling})
        own = {**sampling, **(sampling.get("generation_kwargs") or {})}
        rows = [[prompt[0] * 100 + i for i in range(own["max_tokens"])] for prompt in prompts for _ in range(n)]
        logprobs = [[[-float(token)] for token in row] for row in rows] if self._logprobs else None
        ids = [[[token] for token in row] for row in rows] if self._logprobs else None
        return {"prompt_ids": prompts, "completion_ids": rows, "logprobs": logprobs, "logprob_token_ids": ids}


def ask(client: Client, lengths: list[int] | None, prompts: list[list[int]], n: int, **sampling: Any) -> Any:
    install_lengths(client, lambda: lengths)
    return client.generate(prompts=prompts, features=None, n=n, max_tokens=50, temperature=0.7, **sampling)


@given(st.integers(1, 4), st.integers(1, 5), st.lists(st.integers(1, 12), min_size=20, max_size=20), st.booleans())
def test_every_row_has_its_own_length_and_is_its_own_prompts(
    n: int, count: int, drawn: list[int], logprobs: bool
) -> None:
    prompts, lengths = [[p, 7] for p in range(1, count + 1)], drawn[: n * count]
    found = ask(Client(logprobs), lengths, prompts, n)
    assert [len(row) for row in found["completion_ids"]] == lengths
    assert [row[0] // 100 for row in found["completion_ids"]] == [p for p, _ in prompts for _ in range(n)]
    assert found["prompt_ids"] == prompts
    if logprobs:
        assert [[-int(v[0]) for v in row] for row in found["logprobs"]] == found["completion_ids"]
        assert [[v[0] for v in row] for row in found["logprob_token_ids"]] == found["completion_ids"]
    else:
        assert found["logprobs"] is None
        assert found["logprob_token_ids"] is None


def test_one_request_for_each_length_and_the_users_sampling_in_all() -> None:
    client = Client()
    ask(
        client,
        [3, 5, 3, 5],
        [[1], [2]],
        2,
        generation_kwargs={"seed": 4, "max_tokens": 99, "stop": ["</a>"], "stop_token_ids": [7]},
        top_k=9,
    )
    assert len(client.asked) == 2
    for asked in client.asked:
        own = asked["generation_kwargs"]
        assert own["max_tokens"] == asked["max_tokens"] in (3, 5), "the user's own limit would decide otherwise"
        assert own["ignore_eos"] is True
        assert not {"stop", "stop_token_ids"} & set(own), "they would end a row before its length"
        assert (own["seed"], asked["top_k"], asked["temperature"]) == (4, 9, 0.7)
        assert asked["n"] == 1


def test_natural_lengths_go_through_as_they_are() -> None:
    client = Client()
    ask(client, None, [[1], [2]], 2)
    assert client.asked == [{"prompts": [[1], [2]], "features": None, "n": 2, "max_tokens": 50, "temperature": 0.7}]


def test_the_requests_are_sent_together() -> None:
    """One after the other the engine would never have more than one length to work on."""
    together = threading.Barrier(3, timeout=60)
    client = Client()
    answer = client.generate

    def waiting(**asked: Any) -> Any:
        together.wait()
        return answer(**asked)

    client.generate = waiting  # type: ignore[method-assign]
    assert len(ask(client, [2, 3, 4], [[1], [2], [3]], 1)["completion_ids"]) == 3


def test_images_stay_with_their_prompts() -> None:
    client = Client()
    install_lengths(client, lambda: [2, 3, 3, 2])
    client.generate(prompts=[[1], [2]], features=["one", "two"], n=2, max_tokens=9)
    assert {(tuple(map(tuple, a["prompts"])), tuple(a["features"])) for a in client.asked} == {
        (((1,), (2,)), ("one", "two"))
    }


def test_lengths_for_other_rows_are_refused() -> None:
    with pytest.raises(MeterError, match="a generation of 4 rows, but lengths for 3"):
        ask(Client(), [1, 2, 3], [[1], [2]], 2)


METRICS = """# HELP vllm:num_preemptions_total Cumulative number of preemption from the engine.
# TYPE vllm:num_preemptions_total counter
vllm:num_preemptions_total{engine="0",model_name="m"} 3.0
vllm:num_preemptions_total{engine="1",model_name="m"} 4.0
vllm:num_preemptions_total_created{engine="0",model_name="m"} 1.7e+09
"""


def test_preemptions_are_summed_over_replicas_and_told_since_the_cycle_began() -> None:
    texts = [METRICS, METRICS.replace(" 4.0", " 9.0")]
    session = SimpleNamespace(get=lambda url: SimpleNamespace(status_code=200, text=texts.pop(0)))
    watch = ServerWatch(SimpleNamespace(base_url="", session=session))
    watch.begin()
    assert watch.end() == (5, None)


def test_a_server_that_counts_nothing_tells_nothing() -> None:
    assert counted("vllm:other 3.0\n", "vllm:num_preemptions_total") is None
    session = SimpleNamespace(get=lambda url: SimpleNamespace(status_code=404, text=""))
    watch = ServerWatch(SimpleNamespace(base_url="", session=session))
    watch.begin()
    assert watch.end() == (None, None)


@pytest.mark.parametrize(
    ("use_vllm", "mode", "main", "watched"),
    [(True, "server", True, 1), (True, "server", False, 0), (True, "colocate", True, 0), (False, "server", True, 0)],
)
def test_only_the_process_that_speaks_to_a_server_watches_it(
    use_vllm: bool, mode: str, main: bool, watched: int
) -> None:
    generation = SimpleNamespace(mode=mode, vllm_client=SimpleNamespace())
    accelerator = SimpleNamespace(is_main_process=main)
    trainer = SimpleNamespace(use_vllm=use_vllm, vllm_generation=generation, accelerator=accelerator)
    assert len(watch_server(trainer)) == watched
