"""Copies of the tree that bugs are planted in. The checkout itself is only read."""

import os
import shutil
from pathlib import Path

from mutants.mutant import Mutant

TOPS = ("rankcore", "executors", "tests", "docs", "examples", "README.md", "pyproject.toml")
"""What the layers read."""
OTHER_TIME_S = 1_000_000.0


class Tree:
    """One copy, with at most one bug in it at a time."""

    def __init__(self, checkout: Path, folder: Path) -> None:
        """Copy what the layers need; times are kept, so that compiled files stay valid."""
        self.folder = folder
        self._checkout = checkout
        self._planted: str | None = None
        for top in TOPS:
            if (checkout / top).is_dir():
                shutil.copytree(checkout / top, folder / top)
            else:
                shutil.copy2(checkout / top, folder / top)

    def plant(self, mutant: Mutant | None) -> None:
        """Take the last bug out, and plant this one; None: leave the copy honest.

        Raises:
            MutantError: It does not fit the present source.
        """
        if self._planted is not None:
            shutil.copy2(self._checkout / self._planted, self.folder / self._planted)
            self._planted = None
        if mutant is not None:
            source, target = mutant.source(self.folder), self.folder / mutant.path
            times = target.stat()
            target.write_text(source, encoding="utf-8")
            # A compiled file is known by its source's size and whole seconds, which may be those of the honest one.
            os.utime(target, (times.st_atime, times.st_mtime - OTHER_TIME_S))
            self._planted = mutant.path
