"""Where answers go: standard output, as wide as the terminal, and wide enough for tables where there is none."""

import os
import sys

from rich.console import Console

WIDTH_WITHOUT_TERMINAL = 120


def answers() -> Console:
    """What prints tables. Piped or redirected they are of one width, which `COLUMNS` overrides."""
    on_screen = sys.stdout is not None and sys.stdout.isatty()  # None: somebody has closed it
    free = not on_screen and not os.environ.get("COLUMNS", "").isdigit()
    return Console(file=sys.stdout, highlight=False, width=WIDTH_WITHOUT_TERMINAL if free else None)
