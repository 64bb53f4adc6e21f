"""A wheel adds one name to site-packages, and runs beside packages that are called as folders of this checkout are."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGED = ("api", "autotune", "search_spaces", "trainer", "tools")
OTHERS = ("api", "search_spaces", "trainer")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    source, wheels = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheels")
    for name in PACKAGED:
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    build = "import sys, setuptools.build_meta as backend; backend.build_wheel(sys.argv[1])"
    run = subprocess.run([sys.executable, "-c", build, wheels], cwd=source, check=False, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    (made,) = wheels.glob("*.whl")
    return made


@pytest.fixture
def site(wheel: Path, tmp_path: Path) -> Path:
    """The wheel unpacked beside packages of other people that have the names of our folders."""
    with ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    for name in OTHERS:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("theirs = True\n", encoding="utf-8")
    return tmp_path


def ran(site: Path, *words: str, code: int = 0) -> str:
    environment = os.environ | {"PYTHONPATH": str(site), "AUTOTUNE_HOME": str(site / "home")}
    command = [sys.executable, *words]
    run = subprocess.run(command, cwd=site, env=environment, check=False, capture_output=True, text=True)
    assert run.returncode == code, run.stderr
    return run.stdout + run.stderr


def test_one_name_is_added(wheel: Path) -> None:
    with ZipFile(wheel) as archive:
        first = {name.partition("/")[0] for name in archive.namelist()}
    assert {name for name in first if not name.endswith(".dist-info")} == {"autotune"}


def test_every_file_of_the_folders_is_in_it(wheel: Path) -> None:
    with ZipFile(wheel) as archive:
        inside = {
            name.removeprefix("autotune/") if (name.split("/")[1] in OTHERS) else name for name in archive.namelist()
        }
    words = ["git", "ls-files", "autotune", *OTHERS]
    tracked = subprocess.run(words, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()
    assert len(tracked) > 500
    assert [name for name in tracked if name not in inside] == []


def test_the_command_runs_from_it(site: Path) -> None:
    assert "knobs searched" in ran(site, "-m", "autotune.cli", "space", "show", "single-gpu")
    assert "there is no study" in ran(site, "-m", "autotune.cli", "status", code=2)


def test_what_an_importer_has_of_these_names_stays_theirs(site: Path) -> None:
    both = "import autotune.extension, trainer, autotune.trainer; print(trainer.theirs, *sys.path[1:2])"
    assert ran(site, "-c", f"import sys; {both}") == f"True {site}\n"


def test_no_file_of_it_imports_them_by_the_names_of_the_checkout(site: Path) -> None:
    for path in (site / "autotune").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
            names += [each.name for each in node.names] if isinstance(node, ast.Import) else []
            assert not {name.partition(".")[0] for name in names} & {*OTHERS, "tools", "tests"}, path


def test_a_framework_of_another_package_works_with_it(site: Path) -> None:
    shutil.copytree(ROOT / "tests" / "support" / "made_up_package", site, dirs_exist_ok=True)
    read = "framework_named('made_up').import_config(Source('rows: 2\\nown: 1\\n', 'run.yaml'), {}, 1, {}).knobs"
    assert ran(site, "-c", f"from autotune.frameworks import *; print(dict({read}))") == "{'micro_batch_size': 2}\n"
