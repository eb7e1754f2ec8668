"""Executors carry out what `rankcore` decides: everything here may touch the world, and nothing here decides.

`base` says what an executor is, `engine` connects one to the core, and keeps and re-runs what happened. `executors.Driver` and
`executors.Executor` are loaded when they are used, since the command's help needs neither.
`shadowing` looks for other code of the name `executors`, which cannot be imported beside this.
"""

import warnings
from typing import TYPE_CHECKING, Any

from executors.shadowing import hidden, warning_of

if TYPE_CHECKING:
    from executors.base import Executor
    from executors.engine.loop import Driver

if (_other := hidden()) is not None:
    warnings.warn(warning_of(_other), RuntimeWarning, stacklevel=2)

_HOMES = {"Driver": "executors.engine.loop", "Executor": "executors.base"}

__all__ = ["Driver", "Executor"]


def __getattr__(name: str) -> Any:
    from rankcore.homes import loading  # not above: the command's help does not need `rankcore`

    return loading(__name__, _HOMES)(name)
