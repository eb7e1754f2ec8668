"""`@ingress(app)`: an ASGI application in front of a class. Replica processes import this."""

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

from executors.ray_gpu.errors import InvalidDeploymentError

APP = "_rankcore_asgi_app"
"""Where a class keeps its application."""
METHOD = "_rankcore_method"
"""Where a method that is bound to an instance keeps what it is without one."""


def ingress(app: Any) -> Callable[[type], type]:
    """Let an ASGI application answer the HTTP requests and websockets of a deployed class.

    Routes of a FastAPI application whose functions are methods of the class are called with the replica's instance as
    `self`; all others as ever.

    Args:
        app: A FastAPI or Starlette application, or any other ASGI callable; or a function without parameters that makes one,
            which each replica calls at its start, after `__init__`.

    Raises:
        InvalidDeploymentError: The application is none, or what is decorated is no class.

    Example:
        app = FastAPI()

        @serve.deployment
        @serve.ingress(app)
        class Model:
            @app.get("/generate")
            async def generate(self, prompt: str): ...
    """
    if not callable(app):
        raise InvalidDeploymentError(f"@ingress takes an ASGI application, such as FastAPI(), got {app!r:.80}")

    def wrap(target: type) -> type:
        if not inspect.isclass(target):
            raise InvalidDeploymentError(
                f"@ingress goes on a class, below @deployment: got {target!r:.80}; a function needs no ingress"
            )
        setattr(target, APP, staticmethod(app))
        return target

    return wrap


def app_of(instance: Any) -> Any:
    """The application in front of an instance, its methods bound; None: there is none.

    Of two instances in one process that have one application, it is the last one's. A function that makes one is called each
    time.

    Raises:
        InvalidDeploymentError: The function has made something else.
    """
    app = getattr(type(instance), APP, None)
    if inspect.isfunction(app) and not inspect.signature(app).parameters:
        made = app()
        if not callable(made):
            raise InvalidDeploymentError(
                f"{app.__qualname__}, given to @ingress, has to return an ASGI application: {made!r:.80}"
            )
        app = made
    if app is not None and hasattr(app, "routes") and hasattr(app, "router"):
        _bind(app.router, instance)
        app.openapi_schema = None  # it has `self` as a parameter
    return app


def _bind(router: Any, instance: Any) -> None:
    """Make anew the routes whose functions are methods of the instance's class, with the instance as `self`."""
    routes = router.routes
    for index, route in enumerate(routes):
        if hasattr(route, "original_router"):  # newer FastAPI keeps an included router as it is
            _bind(route.original_router, instance)
        endpoint = getattr(route, "endpoint", None)
        endpoint = getattr(endpoint, METHOD, endpoint)
        if endpoint is None or not _is_method(endpoint, type(instance)):
            continue
        parameters = inspect.signature(type(route).__init__).parameters
        options = {key: getattr(route, key) for key in parameters if key != "self" and hasattr(route, key)}
        options["endpoint"] = _bound(endpoint, instance)
        routes[index] = type(route)(**options)
    if hasattr(router, "_mark_routes_changed"):
        router._mark_routes_changed()


def _is_method(endpoint: Any, of: type) -> bool:
    name = getattr(endpoint, "__name__", "")
    return any(vars(each).get(name) is endpoint for each in of.__mro__)


def _bound(endpoint: Callable[..., Any], instance: Any) -> Callable[..., Any]:
    bound = partial(endpoint, instance)
    setattr(bound, METHOD, endpoint)
    # What FastAPI reads of a function; a partial has none of it.
    bound.__name__ = endpoint.__name__  # type: ignore[attr-defined]
    bound.__doc__ = endpoint.__doc__
    bound.__module__ = endpoint.__module__
    return bound
