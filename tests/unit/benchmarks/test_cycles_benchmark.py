"""The comparison of a trial's cycles with plain TRL's: its ratio, and the turns of its processes."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any, ClassVar

import pytest

from autotune.errors import MachineError
from benchmarks.cycles import __main__ as cycles
from benchmarks.cycles import processes
from benchmarks.cycles.processes import COLD, FORKED, MODES, PLAIN, REWARD, Round


def test_the_first_cycle_is_left_out_and_rounds_are_compared_with_their_own_plain_steps() -> None:
    rounds = [
        {PLAIN: [9.0, 1.0, 2.0], COLD: [90.0, 1.1, 2.2], FORKED: [9.0, 1.0, 2.0]},
        {PLAIN: [9.0, 4.0, 4.0], COLD: [9.0, 4.4, 4.4], FORKED: [9.0, 8.0, 2.0]},
    ]
    found = cycles.judged(rounds)
    assert found[COLD]["ratio"] == pytest.approx(1.1)
    assert found[COLD]["low"] == pytest.approx(1.1)
    assert found[FORKED]["ratio"] == pytest.approx(1.0)
    text = "\n".join(cycles.words(rounds, found))
    assert "| cold | 49.50 | 2.75 | 3.30 |" in text
    assert "cold / plain, from the second cycle on: 1.100 (95 % interval 1.100 to 1.100, 2 rounds)" in text


class Fake:
    """A process of the three: a thread that computes for a while and scores; it notes who computes beside it."""

    computing: ClassVar[set[str]] = set()
    together: ClassVar[list[set[str]]] = []
    signals: ClassVar[list[tuple[str, signal.Signals]]] = []
    dies: ClassVar[str] = ""

    def __init__(self, bench: Any, mode: str, folder: Path) -> None:
        self.mode, self.folder, self._cycles = mode, folder / mode, bench
        self._thread = threading.Thread(target=self._train)
        self._thread.start()

    def _train(self) -> None:
        spec = importlib.util.spec_from_file_location(f"reward_{self.mode}", self.folder / "reward.py")
        assert spec is not None
        assert spec.loader is not None
        reward = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(reward)
        for _ in range(self._cycles):
            self.computing.add(self.mode)
            time.sleep(0.02)  # whoever is let go too early computes beside it
            self.together.append(set(self.computing))
            self.computing.discard(self.mode)
            if self.dies == self.mode:
                return
            assert reward.score(["p"], ["ab"]) == [0.5]
        (self.folder / "steps.json").write_text(json.dumps([5.0] * self._cycles))

    def ended(self) -> bool:
        return not self._thread.is_alive()

    def kill(self) -> None:
        """Let it run to its end."""
        go = os.open(self.folder / "go", os.O_RDWR)
        os.write(go, b"x" * 9)
        self._thread.join()
        os.close(go)

    def send(self, number: signal.Signals) -> None:
        self.signals.append((self.mode, number))

    net = processes.Running.net


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> type[Fake]:
    monkeypatch.setattr(processes, "Running", Fake)
    monkeypatch.setattr(Fake, "dies", "")
    monkeypatch.setattr(Fake, "together", [])
    monkeypatch.setattr(Fake, "signals", [])
    return Fake


def test_only_one_of_the_three_computes_and_each_makes_all_its_cycles(tmp_path: Path, fake: type[Fake]) -> None:
    found = Round(3, tmp_path / "round", MODES).run()  # type: ignore[arg-type]
    assert {mode: len(seconds) for mode, seconds in found.items()} == dict.fromkeys(MODES, 3)
    assert all(0.0 < second < 5.0 for seconds in found.values() for second in seconds)  # less what each waited
    assert fake.together == [{mode} for mode in MODES] * 3


def test_a_tuner_is_stopped_while_another_has_its_turn(tmp_path: Path, fake: type[Fake]) -> None:
    Round(2, tmp_path / "round", MODES).run()  # type: ignore[arg-type]
    own = [number for mode, number in fake.signals if mode == COLD]
    assert own == [signal.SIGSTOP, signal.SIGCONT, signal.SIGSTOP, signal.SIGCONT]


def test_one_that_dies_ends_the_round_and_is_named(tmp_path: Path, fake: type[Fake]) -> None:
    fake.dies = PLAIN
    with pytest.raises(MachineError, match="plain did not end well"):
        Round(1, tmp_path / "round", MODES).run()  # type: ignore[arg-type]


def test_the_reward_is_a_whole_program(tmp_path: Path) -> None:
    compile(REWARD.format(letter="p", come="/a", go="/b", log="/c"), "reward.py", "exec")


def test_one_cycle_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        cycles.main(["--out", "/nowhere", "--cycles", "1"])
    assert raised.value.code == 2
    assert "two cycles" in capsys.readouterr().err
