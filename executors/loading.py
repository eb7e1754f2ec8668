"""Finds the application that a command line names: MODULE:APP, or path/file.py:app. Needs no cluster library."""

import importlib
import inspect
import sys
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, TypeVar

from executors.ray_gpu.declaration import Application, Deployment
from executors.shadowing import hidden, warning_of

T = TypeVar("T")

ARGS_VARIABLE = "RANKCORE_APPLICATION_ARGS"
"""Of local replicas: what a function that returns their application is called with, as JSON."""


OURS = ("executors", "rankcore")
"""Packages whose modules this process runs: two of one class would be two classes."""


class LoadError(Exception):
    """It cannot be had; the text says why, in one line."""


def load_application(target: str, args: Mapping[str, Any] | None = None) -> Application:
    """The application that MODULE:APP names. Its folder, and this one, become places where modules are found.

    Args:
        args: For a function that returns it; see `arguments_for`.

    Raises:
        LoadError: It is not there, cannot be imported, or is something else.
        ModuleNotFoundError: It needs ray or torch, which are not installed.
    """
    found = load_object(target, "MODULE:APP, such as examples/sharded_embedding.py:app")
    place, _, name = target.rpartition(":")
    if isinstance(found, Deployment):
        raise LoadError(f"{target} is a deployment, not an application: write `app = {name}.bind()`")
    if not isinstance(found, Application) and callable(found):
        builder = found
        found = _guarded(place, lambda: builder(*arguments_for(builder, args or {})))
    elif args:
        raise LoadError(f"{target} takes no arguments: it is no function that returns an application")
    if not isinstance(found, Application):
        raise LoadError(f"{target} must be what bind() returned, or a function that returns it; found {found!r:.80}")
    return found


def arguments_for(builder: Callable[..., Any], args: Mapping[str, Any]) -> tuple[Any, ...]:
    """What a function that returns an application is called with, as in Ray Serve: a dict, or the pydantic model that its
    argument is annotated with; nothing, where it has no argument.

    Raises:
        LoadError: It takes none, and some were given.
        Exception: What the model raises, of arguments that it does not take.
    """
    parameters = tuple(inspect.signature(builder, eval_str=True).parameters.values())
    if not parameters:
        if args:
            raise LoadError(f"{name_of(builder)} takes none")
        return ()
    validate = getattr(parameters[0].annotation, "model_validate", None)
    return (validate(dict(args)) if validate is not None else dict(args),)


def name_of(builder: Any) -> str:
    """What a function is called, or the class of an object that can be called."""
    return str(getattr(builder, "__name__", type(builder).__name__))


def forget_modules_of(folder: Path) -> None:
    """Modules whose files are in a folder, or below, are imported anew when they are asked for; ours stay."""
    importlib.invalidate_caches()
    inside = folder.resolve()
    for name, module in tuple(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if (
            name != "__main__"
            and name.partition(".")[0] not in OURS
            and file is not None
            and Path(file).resolve().is_relative_to(inside)
        ):
            if not {"site-packages", "dist-packages"} & set(Path(file).parts):
                del sys.modules[name]


def load_object(target: str, expected: str = "MODULE:NAME, such as package.module:models or path/file.py:models") -> Any:
    """Whatever MODULE:NAME names. Its folder, and this one, become places where modules are found.

    Raises:
        LoadError: It is not there, or cannot be imported.
        ModuleNotFoundError: It needs ray or torch, which are not installed.
    """
    place, separator, name = target.rpartition(":")
    if not separator or not place or not name.isidentifier():
        raise LoadError(f"expected {expected}, found {target!r}")
    sys.path.insert(0, str(Path.cwd()))
    module = _import(place)
    found = getattr(module, name, None)
    if found is None:
        public = [each for each in dir(module) if not each.startswith("_")]
        raise LoadError(f"{place} has no {name!r}; it has: {', '.join(public)}")
    return found


def _import(place: str) -> Any:
    if not place.endswith(".py"):
        return _guarded(place, lambda: importlib.import_module(place))
    path = Path(place)
    if not path.is_file():
        raise LoadError(f"{place}: there is no such file")
    # Replicas import the module by its name, so that its folder has to be where modules are looked for.
    sys.path.insert(0, str(path.resolve().parent))
    module = _guarded(place, lambda: importlib.import_module(path.stem))
    file = getattr(module, "__file__", None)
    if file is None or Path(file).resolve() != path.resolve():
        where = file or "Python itself"
        raise LoadError(
            f"{place} cannot be imported: the module {path.stem!r} is another one here, of {where}: rename the file"
        )
    return module


def in_users_code(act: Callable[[], T]) -> T:
    """What it returns. What it prints is for people: standard output is for what a command was asked for."""
    with redirect_stdout(sys.stderr):
        return act()


def _guarded(place: str, act: Callable[[], Any]) -> Any:
    try:
        return in_users_code(act)
    except ModuleNotFoundError as error:
        if error.name == place:
            raise LoadError(f"there is no module {place!r} here or among the installed ones") from error
        if (error.name or "").partition(".")[0] in ("ray", "torch"):
            raise
        if (error.name or "").startswith("executors.") and (other := hidden()) is not None:
            raise LoadError(f"{place} cannot be imported: {error}; {warning_of(other)}") from error
        raise LoadError(f"{place} cannot be imported: {error}") from error
    except LoadError:
        raise
    except (Exception, SystemExit) as error:
        raise LoadError(in_one_line(error, place)) from error


def in_one_line(error: BaseException, place: str = "") -> str:
    """Where an error was raised, and what it says."""
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    where = f"{frame.tb_frame.f_code.co_filename}:{frame.tb_lineno}" if frame is not None else place
    return f"{where}: {type(error).__name__}: {' '.join(str(error).split())}"
