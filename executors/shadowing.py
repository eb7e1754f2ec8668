"""Other code that is called `executors` too: of the two, Python imports the one whose folder comes first, and hides the other.

Seen from here it is theirs that is hidden. Where theirs comes first, as in a program that is run from a folder with a folder
`executors`, nothing of ours is imported that could say so; hence replicas and commands are started so that ours comes first.
"""

import sys
from pathlib import Path

OURS = Path(__file__).parent
OF_RANKCORE = (Path(__file__).name, "driver.py")
"""Files by which a folder is known as rankcore's: this one, and one of releases that did not have it."""


def hidden() -> Path | None:
    """The first folder or file of another project that cannot be imported since ours has its name; None: there is none."""
    for entry in sys.path:
        place = Path(entry or ".").absolute()
        for found in (place / OURS.name, place / f"{OURS.name}.py"):
            if found != OURS and _is_code(found) and not _is_of_rankcore(found):
                return found
    return None


def warning_of(found: Path) -> str:
    """What to say of it, in one line."""
    return f"{found} is hidden by rankcore's package of the same name ({OURS}): give it another name"


def _is_code(path: Path) -> bool:
    try:
        return path.is_file() if path.suffix else next(path.glob("*.py"), None) is not None
    except OSError:
        return False


def _is_of_rankcore(path: Path) -> bool:
    """Another checkout, or ours by another path."""
    return any((path / each).exists() for each in OF_RANKCORE)
