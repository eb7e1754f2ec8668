"""The id of a run: stands in the first line of its journal and of its request files, and says that they belong together.

A chain (`executors.engine.chain`) says that a file is whole, and nothing of which files are of one run: calls of another run
have times and replicas that fit well enough to be believed. A run whose bytes are to be the same every time has an id that
follows from how it is made; any other one is drawn. Files of older releases have none.
"""

import hashlib
import secrets
from collections.abc import Mapping
from typing import Any, Final

from rankcore.codec import write_object

RUN: Final = "run"
"""Its key in the first line, within what the line says besides."""
_BYTES: Final = 8


def drawn_id() -> str:
    """An id that no other run has."""
    return secrets.token_hex(_BYTES)


def derived_id(made_of: Mapping[str, Any]) -> str:
    """The id of a run that is made again, to the byte, of the same things."""
    return hashlib.sha256(write_object(dict(made_of)).encode()).hexdigest()[: 2 * _BYTES]


def run_of(about: Mapping[str, Any]) -> str | None:
    """The id in a first line; None: it has none."""
    found = about.get(RUN)
    return found if isinstance(found, str) else None
