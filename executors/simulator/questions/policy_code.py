"""A policy of a user's own, loaded from the Python file that a policy file names."""

import runpy
from pathlib import Path
from typing import Any, cast

from executors.simulator.fields import FieldProblem, FileProblem
from rankcore.autoscaling import Policy

ALLOWED = "FILE.py:FUNCTION, such as policies.py:by_queue"


def load_policy(named: Any, folder: Path) -> Policy:
    """The function that `FILE.py:FUNCTION` names. This runs the file.

    Raises:
        FieldProblem: There is no such function; the key path is that of `policy`.
    """
    file, separator, name = named.rpartition(":") if isinstance(named, str) else ("", "", "")
    if not separator or not file or not name.isidentifier():
        raise FieldProblem(("policy",), named, ALLOWED)
    try:
        found = runpy.run_path(str(folder / file)).get(name)
    except OSError as error:
        raise FileProblem(("policy",), named, f"{folder / file} cannot be read: {error.strerror or error}") from None
    except Exception as error:  # whatever a user's file raises
        raise FileProblem(("policy",), named, f"{folder / file} cannot be run: {type(error).__name__}: {error}") from None
    if not callable(found):
        raise FileProblem(("policy",), named, f"{folder / file} has no function {name}")
    return cast(Policy, found)
