"""`@ingress(app)`: an ASGI application in front of a class. Replica processes import this."""

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

from executors.ray_gpu.errors import InvalidDeploymentError

APP = "_rankcore_asgi_app"
"""Where a class keeps its application."""


def ingress(app: Any) -> Callable[[type], type]:
    """Let an ASGI application answer the HTTP requests and websockets of a deployed class.

    Routes of a FastAPI application whose functions are methods of the class are called with the replica's instance as
    `self`; all others as ever.

    Args:
        app: A FastAPI or Starlette application, or any other ASGI callable.

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
    """The application in front of an instance, its methods bound; None: there is none."""
    app = getattr(type(instance), APP, None)
    if app is not None and hasattr(app, "routes") and hasattr(app, "router"):
        _bind(app, instance)
    return app


def _bind(app: Any, instance: Any) -> None:
    """Make anew the routes whose functions are methods of the instance's class, with the instance as `self`."""
    routes = app.router.routes
    for index, route in enumerate(routes):
        endpoint = getattr(route, "endpoint", None)
        name = getattr(endpoint, "__name__", "")
        if endpoint is None or inspect.getattr_static(type(instance), name, None) is not endpoint:
            continue
        parameters = inspect.signature(type(route).__init__).parameters
        options = {key: getattr(route, key) for key in parameters if key != "self" and hasattr(route, key)}
        options["endpoint"] = _bound(endpoint, instance)
        routes[index] = type(route)(**options)
    app.openapi_schema = None  # it has `self` as a parameter


def _bound(endpoint: Callable[..., Any], instance: Any) -> Callable[..., Any]:
    bound = partial(endpoint, instance)
    # What FastAPI reads of a function; a partial has none of it.
    bound.__name__ = endpoint.__name__  # type: ignore[attr-defined]
    bound.__doc__ = endpoint.__doc__
    bound.__module__ = endpoint.__module__
    return bound
