"""math-verify in a process of its own: what hangs or dies costs one completion, never the trial."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from trainer.child.failures import RewardFailedError
from trainer.child.rewards import VERIFIER, MathReward, Verifier, completion_text

PYTHON = os.environ.get("AUTOTUNE_TEST_PYTHON", "")

STAND_IN = """
import json, os, signal, sys, time
print(json.dumps({"ready": True}), flush=True)
for line in sys.stdin:
    text = json.loads(line)["text"]
    if text == "hang":
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        while True:
            time.sleep(600)
    if text == "die":
        os._exit(3)
    if text == "long":
        sys.stdout.write('{"score": 1.0, "more": "' + "x" * 300000 + '"}\\n')
        sys.stdout.flush()
        continue
    print(json.dumps({"score": {"right": 1.0, "unreadable": None}.get(text, 0.0)}), flush=True)
"""


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Callable[..., MathReward]]:
    rewards: list[MathReward] = []

    def make(script: str = STAND_IN, seconds: float = 0.5) -> MathReward:
        path = tmp_path / "verifier.py"
        path.write_text(script)
        rewards.append(MathReward(completion_text, seconds=seconds, script=path))
        return rewards[-1]

    yield make
    for reward in rewards:
        reward._verifier.kill()


def ended(pid: int, seconds: float = 10.0) -> bool:
    """Gone, or dead and not yet reaped: an earlier test may have made this process everybody's heir."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except OSError:
            return True
        if state in "ZX":
            return True
        time.sleep(0.02)
    return False


def test_a_completion_that_hangs_the_verifier_scores_nothing_and_is_counted(made: Callable[..., MathReward]) -> None:
    reward = made()
    first = reward._verifier.pid
    scores = reward(completions=["right", "hang", "right", "wrong"], solution=["1"] * 4)
    assert scores == [1.0, 0.0, 1.0, 0.0]
    assert reward.facts == {"math_verify_lost": 1}
    assert reward._verifier.pid != first  # killed although it ignores signals, and started again
    assert first is not None
    assert ended(first)


def test_a_verifier_that_dies_is_replaced(made: Callable[..., MathReward]) -> None:
    reward = made()
    assert reward(completions=["die", "die", "right"], answer=[1, 2, 3]) == [0.0, 0.0, 1.0]
    assert reward.facts["math_verify_lost"] == 2


def test_an_unreadable_answer_of_the_prompt_is_not_scored(made: Callable[..., MathReward]) -> None:
    assert made()(completions=["unreadable"], solution=["?"]) == [None]


def test_answers_longer_than_a_pipe_holds(made: Callable[..., MathReward]) -> None:
    assert made(seconds=20.0)(completions=["long", "x" * 500_000 + "\n\0\ud800"], solution=["1", "1"]) == [1.0, 0.0]


def test_messages_are_read_and_a_missing_column_is_said(made: Callable[..., MathReward]) -> None:
    reward = made()
    assert reward(completions=[[{"role": "assistant", "content": "right"}]], answer=["1"]) == [1.0]
    with pytest.raises(RewardFailedError, match="no column solution or answer"):
        reward(completions=["right"], target=["1"])


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("import sys; sys.exit(1)", "could not be started"),
        ('print(\'{"ready": false, "error": "no sympy"}\')', "sympy"),
    ],
)
def test_a_verifier_that_cannot_start_is_a_reward_error(
    made: Callable[..., MathReward], script: str, said: str
) -> None:
    with pytest.raises(RewardFailedError, match=said):
        made(script)


def test_the_helper_ends_when_its_owner_is_killed(tmp_path: Path) -> None:
    """Even kill -9 of the trial leaves no verifier waiting: its input ends."""
    root = Path(__file__).resolve().parents[3]
    script = tmp_path / "verifier.py"
    script.write_text(STAND_IN)
    program = (
        f"import sys, time; sys.path.insert(0, {str(root)!r})\n"
        "from pathlib import Path\nfrom trainer.child.rewards import Verifier\n"
        f"v = Verifier(Path({str(script)!r})); v.start(); print(v.pid, flush=True); time.sleep(600)\n"
    )
    owner = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    helper = int(owner.stdout.readline())
    assert Path(f"/proc/{helper}").exists()
    owner.kill()
    owner.wait()
    owner.stdout.close()
    assert ended(helper)


REAL = [
    ("72", "so it is \\boxed{72}", 1.0),
    ("72", "the answer is 72", 1.0),
    ("72", "the answer is 27", 0.0),
    ("72", "", 0.0),
    (r"\frac{1}{2}", r"\boxed{0.5}", 1.0),
    (r"\frac{1}{3}", r"$\frac{1}{2}$", 0.0),
    ("$x^2+1$", r"\boxed{1+x^2}", 1.0),
    ("", "72", None),
    ("7", "9" * 5000, 0.0),
]


@pytest.mark.trl
@pytest.mark.skipif(not PYTHON, reason="AUTOTUNE_TEST_PYTHON names no interpreter")
def test_the_real_package_scores_in_the_training_environment() -> None:
    questions = "".join(json.dumps({"gold": gold, "text": text}) + "\n" for gold, text, _ in REAL)
    done = subprocess.run([PYTHON, str(VERIFIER)], input=questions, capture_output=True, text=True, check=True)
    ready, *answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert ready == {"ready": True}
    assert [a["score"] for a in answers] == [score for *_, score in REAL]


def test_a_missing_package_is_said_by_the_helper() -> None:
    """The tool's own environment has no math-verify."""
    verifier = Verifier(VERIFIER)
    with pytest.raises(RewardFailedError, match="math-verify cannot be used: ModuleNotFoundError"):
        verifier.start()
