"""What user code raised, as an exception of its own class that is a `ray.exceptions.RayTaskError` too, as in Ray Serve.

`except ValueError` and `except RayTaskError` both catch it; it reads as what was raised does, and `cause` is that very one.
What cannot be copied faithfully, such as one of a class that lets nobody derive from it, stays as it is.
"""

import builtins
import os
from functools import lru_cache
from typing import Any

from ray.exceptions import RayTaskError

from executors.ray_gpu.errors import RayExecutorError

OWN = ("cause", "traceback_str", "function_name", "proctitle", "pid", "ip", "actor_repr", "_actor_id")


def as_task_error(error: BaseException, trace: str) -> BaseException:
    """The error as a task error too; itself where it is one, or is none of the user's.

    Args:
        trace: The remote traceback.
    """
    if not isinstance(error, Exception) or isinstance(error, (RayTaskError, RayExecutorError, BaseExceptionGroup)):
        return error
    try:
        return _made(error, trace)
    except Exception:  # the user's class has its own ideas of subclasses, or of instances
        return error


def _made(error: Exception, trace: str) -> BaseException:
    kind: Any = type(error)
    if any(each.__dict__.get("__slots__") for each in kind.__mro__ if each.__module__ != builtins.__name__):
        return error
    both = _class_of(kind)
    # Of builtins: (class, arguments[, attributes]), where an OSError's file is among the arguments.
    reduced = BaseException.__reduce__(error) if not isinstance(error, OSError) else OSError.__reduce__(error)
    args = reduced[1] if isinstance(reduced[1], tuple) else ()
    solid: Any = next(each for each in kind.__mro__ if each.__module__ == builtins.__name__)
    made: Any = both.__new__(both, *args)
    solid.__init__(made, *args)
    made.args = error.args
    about = (error, trace, kind.__name__, "", os.getpid(), "", None, None)
    made.__dict__.update(zip(OWN, about, strict=True))
    made.__dict__.update(error.__dict__)
    made.__dict__["_raised"] = error
    return made  # type: ignore[no-any-return]


def _again(error: BaseException, trace: str) -> BaseException:
    return as_task_error(error, trace)


@lru_cache(maxsize=256)
def _class_of(kind: Any) -> Any:
    """The class of both. It is called as the user's, which is what tracebacks are to say."""

    def text(self: Any) -> str:
        return str(self._raised)

    def shown(self: Any) -> str:
        return repr(self._raised)

    def reduced(self: Any) -> tuple[Any, ...]:
        return _again, (self._raised, self.traceback_str)

    members = {"__str__": text, "__repr__": shown, "__reduce__": reduced, "__module__": kind.__module__}
    return type(kind.__name__, (kind, RayTaskError), members | {"__qualname__": kind.__qualname__})
