"""Calling a deployment: `handle.remote(...)` goes to the running replicas in turn; results and exceptions come back."""

import asyncio
from collections.abc import Generator
from concurrent.futures import Future
from typing import Any

from executors.ray_gpu import names
from executors.ray_gpu.router import Call, router_of
from executors.ray_gpu.wire import pack_call, unpack


class DeploymentResponse:
    """What a call will return: `.result()`, or `await` it."""

    def __init__(self, answer: "Future[tuple[int, bytes]]") -> None:
        self._answer = answer

    def result(self, timeout_s: float | None = None) -> Any:
        """Wait for the result.

        Raises:
            TimeoutError: Not yet; the call goes on.
            ReplicaGoneError: The replica died while it ran.
            Exception: What the user's code raised, with the remote traceback as its cause.
        """
        return unpack(*self._answer.result(timeout_s))

    def done(self) -> bool:
        """Whether the answer is there."""
        return self._answer.done()

    def __await__(self) -> Generator[Any, None, Any]:
        answer = yield from asyncio.wrap_future(self._answer).__await__()
        return unpack(*answer)


class DeploymentHandle:
    """Calls one deployment. It can be pickled, and passed to other replicas and drivers.

    Example:
        handle = run(Model.bind()); handle.remote(1).result(); handle.predict.remote(2).result()
    """

    def __init__(self, deployment: str, *, namespace: str = names.DEFAULT_NAMESPACE, method: str = "__call__") -> None:
        self.deployment_name = deployment
        self._namespace = namespace
        self._method = method

    def options(self, *, method_name: str = "__call__") -> "DeploymentHandle":
        """A handle that calls another method."""
        return DeploymentHandle(self.deployment_name, namespace=self._namespace, method=method_name)

    def remote(self, *args: Any, **kwargs: Any) -> DeploymentResponse:
        """Begin a call. Arguments are pickled now; what happens to them afterwards does not matter."""
        call = Call(pack_call(self._method, args, kwargs))
        router_of(self._namespace, self.deployment_name).submit(call)
        return DeploymentResponse(call.answer)

    def __getattr__(self, name: str) -> "DeploymentHandle":
        if name.startswith("_"):
            raise AttributeError(name)
        return self.options(method_name=name)

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (self.deployment_name, self._namespace, self._method)

    def __repr__(self) -> str:
        return f"DeploymentHandle({self.deployment_name!r}, method={self._method!r})"


def _rebuild(deployment: str, namespace: str, method: str) -> DeploymentHandle:
    return DeploymentHandle(deployment, namespace=namespace, method=method)
