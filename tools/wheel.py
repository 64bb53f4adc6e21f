"""Layout of the wheel: ``api``, ``search_spaces`` and ``trainer`` are packages inside ``autotune``.

They are top-level folders of the checkout. In site-packages such common names would hide the user's own, or be hidden
by them, so a wheel adds one name there, and imports of the other three are rewritten to ``autotune.api`` and so on.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from setuptools.command.build_py import build_py

FOLDERS = ("api", "search_spaces", "trainer")
IMPORT = re.compile(rf"^(\s*from )({'|'.join(FOLDERS)})(?=[. ])", re.MULTILINE)


class BuildPy(build_py):  # type: ignore[misc]  # setuptools has no types
    """``build_py`` that moves ``FOLDERS`` into ``autotune``. An editable install uses the checkout as it is."""

    def run(self) -> None:
        """Builds the packages, moves three of them, and rewrites the imports of all."""
        super().run()
        if self.editable_mode:
            return
        package = Path(self.build_lib, "autotune")
        for name in FOLDERS:
            shutil.rmtree(package / name, ignore_errors=True)
            shutil.move(package.with_name(name), package / name)
        for path in package.rglob("*.py"):
            path.write_text(IMPORT.sub(r"\1autotune.\2", path.read_text("utf-8")), "utf-8")
