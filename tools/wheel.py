"""Layout of the wheel: ``api``, ``search_spaces`` and ``trainer`` inside ``autotune``.

They are top-level folders of the checkout. In site-packages such common names would hide a user's own, or be hidden
by them, so a wheel adds one name there: ``autotune``, which finds the other three in ``CARRIED``.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from setuptools.command.build_py import build_py

CARRIED = Path("autotune", "carried")
FOLDERS = ("api", "search_spaces", "trainer")


class BuildPy(build_py):  # type: ignore[misc]  # setuptools has no types
    """``build_py`` that moves ``FOLDERS`` into ``CARRIED``. An editable install is the checkout as it is."""

    def run(self) -> None:
        """Builds the packages, then moves three of them below ``autotune/carried``."""
        super().run()
        if self.editable_mode:
            return
        built = Path(self.build_lib)
        carried = built / CARRIED
        shutil.rmtree(carried, ignore_errors=True)
        carried.mkdir(parents=True)
        for name in FOLDERS:
            shutil.move(built / name, carried / name)
