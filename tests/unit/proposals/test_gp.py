"""The Gaussian process: its contract in a process that has torch and scipy, and what holds without them."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from autotune import wiring
from autotune.errors import UsageError
from autotune.proposals import making
from autotune.proposals.samplers.gp import TOLD_FASTEST, TOLD_NEWEST, selected
from autotune.proposals.translation import evidence
from autotune.settings import read_settings
from autotune.specification.build import Request
from tests.contracts.proposer_suite import complete, landscape
from tests.support import factories

ROOT = Path(__file__).parents[3]
QUERY = "import sys, sysconfig; print(sys.version_info[:2]); print(sysconfig.get_path('purelib'))"


def training_packages() -> str:
    """Where the training environment keeps torch; behind the tool's own packages it lends nothing else."""
    python = os.environ.get("AUTOTUNE_TEST_PYTHON", str(ROOT / ".venv-train" / "bin" / "python"))
    if not Path(python).exists():
        pytest.skip(f"there is no training environment at {python} to take torch from")
    done = subprocess.run([python, "-c", QUERY], check=True, capture_output=True, text=True)
    version, folder = done.stdout.splitlines()
    if version != str(sys.version_info[:2]):
        pytest.skip(f"its packages are for Python {version}")
    return folder


def with_torch(script: str) -> subprocess.CompletedProcess[str]:
    """A script in a process of its own that can import torch after everything of ours."""
    begin = f"import sys; sys.path.insert(0, {str(ROOT)!r}); sys.path.append({training_packages()!r})\n"
    command = [sys.executable, "-P", "-c", begin + script]
    return subprocess.run(command, check=False, capture_output=True, text=True, cwd=ROOT, timeout=280)


@pytest.mark.full
def test_the_contract_holds() -> None:
    flags = ["-q", "-p", "no:cacheprovider", "-p", "no:randomly", "tests/contracts/gp_case.py"]
    done = with_torch(f"import pytest; raise SystemExit(pytest.main({flags!r}))")
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert " passed" in done.stdout
    assert "skipped" not in done.stdout


def test_importing_and_proposing_by_others_never_imports_torch() -> None:
    done = with_torch(
        "import autotune.wiring, autotune.proposals\n"
        "from tests.contracts.proposer_suite import landscape, search\n"
        "from tests.unit.proposals.test_proposer import built\n"
        "search(built(landscape(), 'tpe'), landscape(), 30); search(built(landscape(), 'cmaes'), landscape(), 30)\n"
        "print('torch' in sys.modules)\n"
        "world = landscape(); made = search(built(world, 'gp'), world, 30)\n"
        "print(len(made), 'torch' in sys.modules)\n"
    )
    assert done.stdout.splitlines() == ["False", "31 True"], done.stderr


def test_without_its_packages_one_sentence_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(making.importlib.util, "find_spec", lambda name: None if name == "torch" else object())
    with pytest.raises(UsageError) as refused:
        making.named_sampler("gp")
    assert str(refused.value).endswith(f"{shlex.quote(sys.executable)} -m pip install torch")
    assert making.named_sampler("tpe").name == "tpe"


def test_of_a_long_history_the_fastest_the_newest_and_the_pending_are_told() -> None:
    world = landscape()
    made = [complete(i, c, 1000.0 - i) for i, c in enumerate(world.permitted[:300])]
    made.append(factories.trial(300, configuration=world.permitted[300]))
    told = [e.number for e in selected(evidence(made))]
    assert told == [*range(TOLD_FASTEST), *range(300 - TOLD_NEWEST, 301)]
    assert [e.number for e in selected(evidence(made[:50]))] == list(range(50))


def test_a_study_that_lacks_them_is_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    monkeypatch.setattr(making.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(UsageError, match="the sampler gp needs torch and scipy"):
        wiring.prepare(Request(sampler="gp"), read_settings(environ={}, home=home), lambda _: None)
    assert not home.exists()
