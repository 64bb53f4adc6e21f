"""The known failure texts are those of the installed frameworks.

If this fails after an upgrade: look the sentence up in the new sources and change the table with it.
"""

from __future__ import annotations

import mmap
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.support.trl_trials import training_python
from trainer.child.contract import SIGNS

pytestmark = pytest.mark.trl

TABLE = Path(__file__).parents[1] / "fixtures" / "failure_sources.yaml"
PIECES = [(file, text) for file, texts in yaml.safe_load(TABLE.read_text()).items() for text in texts]


@pytest.fixture(scope="module")
def packages() -> Path:
    """Where the training environment keeps its packages."""
    asked = [training_python(), "-c", "import sysconfig; print(sysconfig.get_path('platlib'))"]
    return Path(subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip())


@pytest.mark.parametrize("name", sorted({name for name, _ in PIECES}))
def test_the_installed_sources_write_them(packages: Path, name: str) -> None:
    missing = []
    with (packages / name).open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as held:
        missing = [piece for where, piece in PIECES if where == name and held.find(piece.encode()) < 0]
    assert not missing


def test_every_piece_belongs_to_the_table() -> None:
    """A piece nobody looks for would keep this test green for nothing."""
    words = [part.strip() for sign in SIGNS for text in sign.texts for part in text.split("…")]
    for _, piece in PIECES:
        assert any(piece.strip() in word or (len(word) > 9 and word in piece) for word in words), piece
