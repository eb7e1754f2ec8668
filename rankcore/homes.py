"""Names of a package that are loaded when they are first used: whoever wants one of them has not to load what others want."""

from collections.abc import Callable, Collection, Mapping
from importlib import import_module
from typing import Any


def loading(package: str, homes: Mapping[str, str], modules: Collection[str] = ()) -> Callable[[str], Any]:
    """The `__getattr__` of a package.

    Args:
        homes: The module of each name.
        modules: Those of its own that are names too.
    """

    def load(name: str) -> Any:
        if name in modules:
            return import_module(f"{package}.{name}")  # which sets the attribute
        home = homes.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(home), name)
        setattr(import_module(package), name, value)
        return value

    return load
