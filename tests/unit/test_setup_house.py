"""What keeps the house as designed: the import rules catch, the tool needs no torch, the locks say nothing private."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tools import old_syntax

ROOT = Path(__file__).resolve().parents[2]
LOCKS = sorted((ROOT / "requirements").glob("*.txt"))


def test_tool_imports_neither_torch_nor_a_framework() -> None:
    code = (
        "import sys, pkgutil, importlib\n"
        "import autotune, search_spaces, api\n"
        "for package in (autotune, search_spaces, api):\n"
        "    for found in pkgutil.walk_packages(package.__path__, package.__name__ + '.'):\n"
        "        if not found.name.endswith('__main__'): importlib.import_module(found.name)\n"
        "print([m for m in ('torch', 'transformers', 'trl', 'vllm', 'datasets') if m in sys.modules])"
    )
    answer = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packages with nothing in them but what each test adds."""
    folder = tmp_path_factory.mktemp("house")
    for package in ("api", "autotune", "search_spaces", "trainer"):
        for path in (ROOT / package).rglob("*.py"):
            copy = folder / path.relative_to(ROOT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_text("")
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


def lint(house: Path) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    return subprocess.run(command, cwd=house, capture_output=True, text=True, check=False)


def test_empty_house_keeps_the_rules(house: Path) -> None:
    done = lint(house)
    assert done.returncode == 0, done.stdout + done.stderr


VIOLATIONS = [
    ("api/__init__.py", "import autotune.cli", "The top"),
    ("autotune/store/__init__.py", "import autotune.study.loop", "The rooms of the tuner"),
    ("autotune/domain/trials.py", "import autotune.ports", "The rooms of the tuner"),
    ("autotune/study/loop.py", "import autotune.store", "What decides acts through ports"),
    ("autotune/recommendation/recommend.py", "import autotune.running", "What decides acts through ports"),
    ("autotune/errors.py", "import search_spaces", "Errors and the contract"),
    ("search_spaces/configuration.py", "import autotune.domain", "Search spaces import nothing"),
    ("trainer/frameworks/__init__.py", "import autotune.errors", "The parent side of a framework"),
    ("trainer/child/rewards.py", "import search_spaces", "What runs in the user's interpreter"),
    ("trainer/child/rewards.py", "from . import prepare", "The child's layers"),
    ("autotune/ports/store.py", "import trainer.child.rewards", "The parent imports nothing of the child"),
    ("autotune/study/loop.py", "import sqlalchemy", "sqlalchemy: only the store"),
    ("autotune/running/__init__.py", "import optuna", "optuna: only"),
    ("autotune/cli/__init__.py", "import subprocess", "Only the running room"),
    ("trainer/frameworks/__init__.py", "import torch", "Training frameworks"),
    ("autotune/study/crews.py", "import ray", "ray: only the file"),
]


def test_every_rule_catches_what_it_is_for(house: Path) -> None:
    """All violations at once: one run of the linter, one line of its report for each rule."""
    by_file: dict[str, list[str]] = {}
    for name, line, _ in VIOLATIONS:
        by_file.setdefault(name, []).append(line)
    for name, lines in by_file.items():
        (house / name).write_text("\n".join(lines) + "\n")
    try:
        report = " ".join(lint(house).stdout.split())
    finally:
        for name in by_file:
            (house / name).write_text("")
    for name, line, rule in VIOLATIONS:
        assert re.search(re.escape(rule) + r"[^:]*(: [^:]*)? BROKEN", report), f"{line} in {name} was not caught"


def test_a_module_without_a_room_is_refused(house: Path) -> None:
    flat = house / "autotune" / "flat.py"
    flat.write_text("")
    try:
        done = lint(house)
    finally:
        flat.unlink()
    assert done.returncode == 1
    assert "autotune.flat" in done.stdout


def test_what_each_room_is_for_is_allowed(house: Path) -> None:
    allowed = {
        "autotune/store/__init__.py": "import sqlalchemy",
        "autotune/proposals/__init__.py": "import optuna",
        "autotune/running/__init__.py": "import subprocess",
        "autotune/domain/trials.py": "import trainer.child.contract, search_spaces.configuration",
        "trainer/child/prepare.py": "import torch",
    }
    for name, line in allowed.items():
        (house / name).write_text(line + "\n")
    try:
        done = lint(house)
    finally:
        for name in allowed:
            (house / name).write_text("")
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("path", LOCKS, ids=lambda path: path.name)
def test_lock_names_no_place(path: Path) -> None:
    """Where packages come from is pip's own business on each machine."""
    text = path.read_text(encoding="utf-8")
    assert "://" not in text
    assert not re.search(r"^\s*(-i|--index|--extra|--find|-f|--trusted)", text, re.MULTILINE)
    assert not re.search(r"(^|[\s@])/\w", text)


@pytest.mark.parametrize("path", LOCKS, ids=lambda path: path.name)
def test_lock_pins_every_package_exactly_and_once(path: Path) -> None:
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line and not line.startswith(("#", " "))]
    names = [re.match(r"([a-z0-9-]+(?:\[[a-z,]+\])?)==[0-9]", line) for line in lines]
    assert lines
    assert all(names), [line for line, name in zip(lines, names, strict=True) if not name]
    unconditional = [name.group(1) for name, line in zip(names, lines, strict=True) if name and ";" not in line]
    assert len(unconditional) == len(set(unconditional))


def pin(name: str, package: str) -> str:
    text = (ROOT / "requirements" / name).read_text(encoding="utf-8")
    found = re.search(rf"^{package}==(\S+)", text, re.MULTILINE)
    return found.group(1) if found else ""


def test_tool_lock_holds_no_framework_and_only_hashed_packages() -> None:
    assert not any(pin("dev.txt", name) for name in ("torch", "transformers", "trl", "vllm", "datasets"))
    text = (ROOT / "requirements" / "dev.txt").read_text(encoding="utf-8")
    assert all("--hash=sha256:" in block for block in re.split(r"\n(?=[a-z])", text)[1:])


def test_training_locks_agree_where_results_depend_on_it() -> None:
    for package in ("torch", "trl", "transformers", "accelerate", "datasets", "peft", "reasoning-gym"):
        assert pin("train-cpu.txt", package) == pin("train-gpu.txt", package) != ""


def test_cpu_lock_asks_for_nothing_of_a_gpu_nor_for_what_breaks_transformers() -> None:
    text = (ROOT / "requirements" / "train-cpu.txt").read_text(encoding="utf-8")
    assert not re.search(r"^(nvidia|cuda|triton|torchvision|torchaudio|torchcodec|pycosat)", text, re.MULTILINE)


def locked(tmp_path: Path, filter_: str, *options: str) -> subprocess.CompletedProcess[str]:
    """The script with a resolver that puts each lock through ``filter_``."""
    resolver = tmp_path / "uv"
    resolver.write_text(
        f'#!/bin/bash\nout=${{@: -1}}; tail -n +3 "$out" | {filter_} > "$out.new"; mv "$out.new" "$out"\n'
    )
    resolver.chmod(0o755)
    command = [str(ROOT / "tools" / "lock.sh"), str(resolver), *options]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_every_lock_is_checked_and_one_that_resolves_differently_is_shown(tmp_path: Path) -> None:
    before = {path: path.read_text() for path in LOCKS}
    same = locked(tmp_path, "cat", "--check")
    assert (same.returncode, same.stdout) == (0, "")
    assert {line.split(":")[0] for line in same.stderr.splitlines()} == {f"requirements/{path.name}" for path in LOCKS}
    other = locked(tmp_path, "sed s/^torch==/torch==9/", "--check")
    assert other.returncode == 1
    assert "+torch==92.13.0" in other.stdout
    assert locked(tmp_path, "cat", "--sort").returncode == 2
    assert {path: path.read_text() for path in LOCKS} == before


def test_extra_and_lock_name_the_same_training_stack() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert f"torch=={pin('train-cpu.txt', 'torch')}" in project["optional-dependencies"]["trl"]
    assert f"trl=={pin('train-cpu.txt', 'trl')}" in project["optional-dependencies"]["trl"]
    assert not any(line.startswith(("torch", "trl", "transformers")) for line in project["dependencies"])


@pytest.mark.parametrize(
    ("text", "old"),
    [
        ("match 1:\n    case _: pass\n", True),
        ("x: int | None = None\n", True),
        ("try: pass\nexcept* ValueError: pass\n", False),
        ("def f[T](x: T) -> T: return x\n", False),
        ("type A = int\n", False),
    ],
)
def test_newer_syntax_is_found(tmp_path: Path, text: str, old: bool) -> None:
    (tmp_path / "a.py").write_text(text)
    found = old_syntax.problems(tmp_path)
    assert (found == []) is old
    assert old or f"{tmp_path / 'a.py'}:" in found[0]


def test_child_needs_no_newer_syntax() -> None:
    assert old_syntax.problems(ROOT / "trainer" / "child") == []
