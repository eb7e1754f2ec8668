"""`rankcore run --reload`: what changes in a folder is deployed anew, without an outage; a mistake in it is one line."""

from collections.abc import Callable
from pathlib import Path

import typer
from watchfiles import PythonFilter, watch

from executors.loading import LoadError, in_one_line
from rankcore.errors import RankcoreError


class Reloading:
    """Looks at a folder between two looks at the cluster.

    Args:
        folder: Modules in it and below.
        deploy: Loads what is there now, given the folder, and deploys it.
    """

    def __init__(self, folder: Path, deploy: Callable[[Path], None]) -> None:
        self._folder, self._deploy = folder.resolve(), deploy
        extra = (".yaml", ".yml", ".json")
        self._changes = watch(
            self._folder,
            watch_filter=PythonFilter(extra_extensions=extra),
            rust_timeout=1,
            yield_on_timeout=True,
            raise_interrupt=True,
            debounce=50,
            step=20,
        )

    def go_on(self, seconds: float) -> None:
        """Let about that many seconds pass, and deploy what has changed in them."""
        import time

        time.sleep(seconds)
        changed = sorted({Path(path).name for _, path in next(self._changes)})
        if not changed:
            return
        typer.echo(f"{', '.join(changed)} changed: it is deployed anew", err=True)
        try:
            self._deploy(self._folder)
        except (LoadError, RankcoreError) as error:
            typer.echo(f"rankcore: error: {error}; what was deployed last goes on", err=True)
        except Exception as error:  # whatever the user's code raises while it is packed
            typer.echo(f"rankcore: error: {in_one_line(error)}; what was deployed last goes on", err=True)
