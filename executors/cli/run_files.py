"""The files of a run: figures and journal appear before the page is made, so that no page can lose a run."""

import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Self

import attrs

from executors.cli.outputs import OutputError, Outputs
from executors.cli.problems import warn


class PageError(Exception):
    """A page could not be made. The text is one line that names the page, the error and its place in our code."""


@attrs.define
class RunFiles:
    """What a run is written to.

    Attributes:
        page: Where the report goes; None: nowhere, since it was not asked for or could not be made.
        json_part, journal_part: What to write to until the files are kept; None: not asked for.
        page_problem: Why there is no page; None: nothing is wrong.
    """

    outputs: Outputs
    page_option: str
    page: Path | None
    page_part: Path | None
    json_part: Path | None
    journal_part: Path | None
    page_problem: Exception | None = None

    @classmethod
    def open(
        cls,
        outputs: Outputs,
        *,
        page: Path | None,
        json_file: str | None,
        journal: Path | None,
        inputs: tuple[Path, ...],
        page_option: str = "--report",
    ) -> Self:
        """Reserve the place of each; `-` stands for figures that are printed.

        Raises:
            OutputError: One of them cannot be written to.
        """
        return cls(
            outputs=outputs,
            page_option=page_option,
            page=page,
            page_part=outputs.open(page_option, page, inputs) if page is not None else None,
            json_part=outputs.open("--json", Path(json_file), inputs) if json_file not in (None, "-") else None,
            journal_part=outputs.open("--journal", journal, inputs) if journal is not None else None,
        )

    def keep(self, figures: str, render: Callable[[], str]) -> None:
        """Keep figures and journal, and then make the page; an error of that is kept for `tell_of_page`."""
        if self.json_part is not None:
            self.outputs.write(self.json_part, figures)
        self.outputs.keep(besides=self.page_part)
        if self.page_part is None:
            return
        try:
            self.outputs.write(self.page_part, render())
            self.outputs.keep()
        except OutputError as error:
            self._is_lost(error)
        except OSError as error:
            self._is_lost(OutputError(f"{self.page_option}: {self.page} cannot be written: {error.strerror or error}"))
        except Exception as error:  # whatever a bug in a page raises
            self._is_lost(PageError(_in_one_line(self.page, error)))

    def tell_of_page(self, broken: str | None) -> None:
        """End with the error of the page, where there is one; beside a broken promise, which matters more, only warn.

        Raises:
            OutputError: The page could not be written.
            PageError: It could not be made.
        """
        if self.page_problem is None:
            return
        if broken is None:
            raise self.page_problem
        warn(str(self.page_problem))

    def _is_lost(self, problem: Exception) -> None:
        self.page, self.page_problem = None, problem


def _in_one_line(page: Path | None, error: Exception) -> str:
    place = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{type(error).__name__}: {error}, at {Path(place.filename).name}:{place.lineno}"
    return f"the page {page} could not be made ({where}); all else that was asked for is written"
