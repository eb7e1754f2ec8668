"""A user's function or class on its way to another process, which has neither the deployer's environment nor its folders."""

import importlib
import sys
from typing import Any

OURS = ("rankcore", "executors")


def split(name: str) -> tuple[str, str]:
    """Module and what is in it: "module:name", or "module.name" as Ray Serve has it too."""
    module, _, within = name.partition(":") if ":" in name else name.rpartition(".")
    return module, within


def imported(name: str) -> Any:
    """What is called so.

    Raises:
        BaseException: Whatever its module raises, or Python for lack of it.
    """
    module, within = split(name)
    found: Any = importlib.import_module(module)
    for part in within.split("."):
        found = getattr(found, part)
    return found


def by_value(found: Any) -> bytes:
    """With its module's code: another node need not have it, and what was edited since is what it gets."""
    cloudpickle: Any = importlib.import_module("ray.cloudpickle")  # where there is no Ray nothing is sent
    module = sys.modules.get(getattr(found, "__module__", None) or "")
    if module is None or module.__name__.partition(".")[0] in (*OURS, "__main__", "builtins"):
        return bytes(cloudpickle.dumps(found))
    cloudpickle.register_pickle_by_value(module)
    try:
        return bytes(cloudpickle.dumps(found))
    finally:
        cloudpickle.unregister_pickle_by_value(module)


def with_path(sys_path: tuple[str, ...]) -> None:
    """Let the deployer's modules be found, behind those of this process."""
    sys.path.extend(each for each in sys_path if each not in sys.path)
