"""What was asked of `rankcore simulate`, and what all its kinds of runs do with that in the same way."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import typer

from executors.checking import Checking
from executors.cli.outputs import Outputs
from executors.cli.run_files import RunFiles

if TYPE_CHECKING:
    from rich.console import Console


@attrs.frozen
class SimulateAsked:
    """The arguments; `recorded` is --from."""

    scenario: Path | None
    recorded: Path | None
    seed: int | None
    settings: Sequence[str]
    at: str | None
    faults: Sequence[str]
    traces: Path | None
    json_file: str | None
    journal: Path | None
    report: Path | None
    quiet: bool
    must_heal: bool
    checking: Checking = Checking.EACH
    requests: Path | None = None
    slo: Sequence[str] = ()
    slo_window: str | None = None

    def open_files(self, outputs: Outputs, stem: str, inputs: tuple[Path, ...]) -> RunFiles:
        """Reserve the places of all that is to be written; the page is named after what was run, unless it has a name."""
        page = self.report if self.report is not None else Path(f"{stem}.report.html")
        return RunFiles.open(outputs, page=page, json_file=self.json_file, journal=self.journal, inputs=inputs)

    def answer(self, figures: str, files: RunFiles, rerun: str, tell: Callable[["Console"], None]) -> None:
        """Print the figures where they were asked for; else a table and where the files are, unless that is too much."""
        if self.json_file == "-":
            typer.echo(figures, nl=False)
        elif not self.quiet:
            from rich.text import Text

            from executors.cli.screen import answers

            console = answers()
            tell(console)
            for label, place in (("report:  ", files.page), ("journal: ", self.journal), ("again:   ", rerun)):
                if place is not None:
                    console.print(Text(f"{label}{place}"), soft_wrap=True)
