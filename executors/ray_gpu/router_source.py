"""Which request router a user has written, as text on its way to whoever calls the deployment: `RoutingSpec.router`.

Deployed with a class: its module's code goes with it. With the name of one: the same where the process that deploys can import
it, else every process that calls imports it by itself.
"""

import base64
import importlib
import json
import sys
from collections.abc import Mapping
from typing import Any

import attrs

from executors.ray_gpu.errors import InvalidDeploymentError
from executors.ray_gpu.sent_code import by_value, imported, split, with_path

WHAT = "request_router_config['request_router_class']"


@attrs.frozen(kw_only=True)
class RouterSource:
    """A request router that has not been loaded yet.

    Attributes:
        name: "module:Class", or of the class that was given.
        pickled: The class, as base64; "": it is imported by its name.
        sys_path: Where the deployer's modules are found.
        kwargs: For its `initialize_state`.
        stats_period_s, stats_timeout_s: How often replicas are to say what they have, and how long that may take.
        backoff: What the router is to be made with: how long until it is asked again.
    """

    name: str
    pickled: str = ""
    sys_path: list[str] = attrs.Factory(list)
    kwargs: dict[str, Any] = attrs.Factory(dict)
    stats_period_s: float = 10.0
    stats_timeout_s: float = 30.0
    backoff: dict[str, float] = attrs.Factory(dict)

    @classmethod
    def of(cls, given: Any, **fields: Any) -> "RouterSource":
        """What a user has written as `request_router_class`.

        Raises:
            InvalidDeploymentError: It is no request router, nor the name of one; or it cannot be sent.
        """
        if isinstance(given, str):
            if not all(part.strip() for part in split(given)):
                raise InvalidDeploymentError(f"{WHAT} must be a class or 'module:Class', got {given!r:.80}")
            return cls(name=given, pickled=_carried(given), sys_path=list(sys.path), **fields)
        if problem := is_no_router(given):
            raise InvalidDeploymentError(f"{WHAT}: {given!r:.80} {problem}")
        try:
            pickled = base64.b64encode(by_value(given)).decode()
        except Exception as error:
            raise InvalidDeploymentError(f"{WHAT}: {given.__name__} cannot be pickled: {error}") from error
        return cls(name=f"{given.__module__}:{given.__qualname__}", pickled=pickled, sys_path=list(sys.path), **fields)

    @property
    def text(self) -> str:
        """As `RoutingSpec.router` has it."""
        return json.dumps(attrs.asdict(self), sort_keys=True)

    @classmethod
    def read(cls, text: str) -> "RouterSource":
        """The same from its text; what another release has added is left out."""
        known = {field.name for field in attrs.fields(cls)}
        return cls(**{name: value for name, value in json.loads(text).items() if name in known})

    def load(self) -> type:
        """The class.

        Raises:
            TypeError: It is none.
            BaseException: Whatever its module raises, or Python for lack of it.
        """
        with_path(tuple(self.sys_path))
        cloudpickle: Any = importlib.import_module("ray.cloudpickle")
        found = cloudpickle.loads(base64.b64decode(self.pickled)) if self.pickled else imported(self.name)
        if problem := is_no_router(found):
            raise TypeError(f"{self.name} {problem}")
        return found  # type: ignore[no-any-return]


def is_no_router(found: Any) -> str:
    """Why something is no class of request routers; "": it is one."""
    if not isinstance(found, type):
        return "is no class"
    return (
        ""
        if callable(getattr(found, "choose_replicas", None))
        else "has no choose_replicas(candidate_replicas, pending_request)"
    )


def _carried(name: str) -> str:
    """What processes that call need not be able to import."""
    try:
        found = imported(name)
        return "" if is_no_router(found) else base64.b64encode(by_value(found)).decode()
    except (Exception, SystemExit):  # a module may do anything when it is imported; whoever calls says what the problem is
        return ""


def is_json(given: Any) -> bool:
    """Whether these are arguments that can be sent as text."""
    try:
        return isinstance(given, Mapping) and all(isinstance(each, str) for each in given) and bool(json.dumps(given))
    except (TypeError, ValueError):
        return False
