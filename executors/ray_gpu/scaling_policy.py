"""A user's autoscaling policy on its way to the controller: the function itself, or where it is imported from."""

import inspect
import sys
from collections.abc import Callable, Mapping
from typing import Any

import attrs
from ray import cloudpickle

from executors.ray_gpu.errors import InvalidDeploymentError, as_error
from executors.ray_gpu.sent_code import by_value, imported, split, with_path
from rankcore.autoscaling import View
from rankcore.errors import PolicyError

SERVES = "policy_function"
"""Ray Serve's `policy` is a dict with this key."""


@attrs.frozen
class PolicySource:
    """A policy that has not been loaded yet.

    Attributes:
        name: "module:function", or of the function that was given.
        pickled: The function, with all of its module that it needs; None: it is imported by its name, since the process that
            deploys cannot.
        sys_path: Where the deployer's modules are found.
    """

    name: str
    pickled: bytes | None
    sys_path: tuple[str, ...]

    @classmethod
    def of(cls, given: Any) -> "PolicySource":
        """What a user has written as `autoscaling_config["policy"]`.

        Raises:
            InvalidDeploymentError: It is no function of one argument, nor the name of one; or it cannot be pickled.
        """
        if isinstance(given, Mapping) and set(given) == {SERVES}:
            given = given[SERVES]
        path = tuple(sys.path)
        if isinstance(given, str) and all(part.strip() for part in split(given)):
            return cls(given, _carried(given), path)
        if isinstance(given, str) or not callable(given):
            raise InvalidDeploymentError(
                f"autoscaling_config['policy'] must be a function or 'module:function', got {given!r:.80}"
            )
        name = getattr(given, "__name__", type(given).__name__)
        problem = _takes_no_view(given)
        if problem:
            raise InvalidDeploymentError(f"autoscaling_config['policy']: {name} {problem}")
        try:
            return cls(name, by_value(given), path)
        except Exception as error:
            raise InvalidDeploymentError(f"autoscaling_config['policy']: {name} cannot be pickled: {error}") from error

    def load(self) -> Callable[[View], Any]:
        """The function; whatever it raises is an `Exception`.

        Raises:
            PolicyError: It cannot be imported, or is no function of one argument.
        """
        with_path(self.sys_path)
        try:
            found = imported(self.name) if self.pickled is None else cloudpickle.loads(self.pickled)
        except BaseException as error:  # a module may do anything when it is imported
            raise PolicyError(self.name, f"cannot be imported: {type(error).__name__}: {error}") from error
        problem = _takes_no_view(found)
        if problem:
            raise PolicyError(self.name, problem)

        def policy(view: View) -> Any:
            try:
                return found(view)
            except Exception:
                raise
            except BaseException as error:  # such as SystemExit, which would end the controller
                raise as_error(error) from None

        policy.__name__ = self.name
        return policy


def _takes_no_view(found: Any) -> str:
    """Why something cannot be asked as a policy; "": it can."""
    if not callable(found):
        return f"is no function, but {found!r:.80}"
    try:
        inspect.signature(found).bind(None)
    except TypeError:
        return f"must be callable with one argument, a View, and takes {inspect.signature(found)}"
    except ValueError:  # it is built in, and does not say
        return ""
    return ""


def _carried(name: str) -> bytes | None:
    """The controller has neither the deployer's environment nor its folders: what is found here is sent."""
    try:
        found = imported(name)
        return None if _takes_no_view(found) else by_value(found)
    except (Exception, SystemExit):  # a module may do anything when it is imported; `load` says what the problem is
        return None
