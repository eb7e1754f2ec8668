"""Old names of what has another one now, for one release."""

import warnings
from collections.abc import Callable, Mapping
from typing import Any


def renamed(names: Mapping[str, Any], now: Mapping[str, str]) -> Callable[[str], Any]:
    """The `__getattr__` of a module, made of its globals: an old name is what it is called now, with a warning that says so."""
    module = names["__name__"]

    def find(name: str) -> Any:
        if name not in now:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        warnings.warn(f"{module}.{name} goes in the next release: use {now[name]}", DeprecationWarning, stacklevel=2)
        return names[now[name]]

    return find
