"""Old names of what has another one now, for one release."""

import sys
import warnings
from collections.abc import Callable
from typing import Any


def renamed(module: str, now: dict[str, str]) -> Callable[[str], Any]:
    """The `__getattr__` of a module: an old name is what it is called now, with a warning that says so."""

    def find(name: str) -> Any:
        if name not in now:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        warnings.warn(f"{module}.{name} goes in the next release: use {now[name]}", DeprecationWarning, stacklevel=2)
        return getattr(sys.modules[module], now[name])

    return find
