"""Calling a deployment: `handle.remote(...)` goes to a replica that has room; results, items and exceptions come back."""

import asyncio
from contextlib import AbstractAsyncContextManager
from typing import Any

import attrs

from executors.ray_gpu import names
from executors.ray_gpu.errors import InvalidCallError
from executors.ray_gpu.messages import across_releases
from executors.ray_gpu.requests.call import Call, Wishes
from executors.ray_gpu.requests.composition import submit
from executors.ray_gpu.requests.encodings import PICKLES, SERIALIZATIONS
from executors.ray_gpu.requests.packing import About
from executors.ray_gpu.requests.request_context import current_request_id
from executors.ray_gpu.requests.request_ids import made_up, next_number
from executors.ray_gpu.requests.response import (
    DeploymentBroadcastResponse,
    DeploymentResponse,
    DeploymentResponseGenerator,
)
from executors.ray_gpu.requests.routes import caller_of, end_router, known_caller_of
from executors.ray_gpu.requests.selection import ReplicaSelection, chosen, dispatched
from executors.ray_gpu.requests.tracing import tracer


@across_releases  # handles are arguments of what was deployed by an older release
@attrs.frozen(kw_only=True)
class CallOptions:
    """How a handle calls.

    Attributes:
        method_name: Which method.
        stream: Whether it is a generator, whose items are wanted one by one.
        rank: Only the replica with this global rank.
        broadcast: All ranks; the response is a list of their results in rank order. A rank that nobody has at the moment is
            waited for.
        key: Calls of one key go to one replica, with `routing_policy="affinity"`: a session, the beginning of a prompt.
            `session_id`, as Ray Serve has it, is the same.
        multiplexed_model_id: Likewise for a model, which `get_multiplexed_model_id()` names.
        timeout_s: Fail with `DeadlineError` where there is no answer after so long; None: what the deployment says.
        request_id: Names the request in the replica's `get_request_context()` and in logs; "": as the request that makes the
            call, and outside of one a new one.
        request_serialization, response_serialization: As what arguments, and results, travel: "cloudpickle" and "pickle"
            are the same; "msgpack", "orjson" (JSON) and "noop" (bytes alone) are plain data at the other end.
    """

    method_name: str = "__call__"
    stream: bool = False
    rank: int | None = None
    broadcast: bool = False
    key: str | None = None
    multiplexed_model_id: str = ""
    timeout_s: float | None = None
    request_id: str = ""
    request_serialization: str = PICKLES[0]
    response_serialization: str = PICKLES[0]

    def __attrs_post_init__(self) -> None:
        for name in ("request_serialization", "response_serialization"):
            if (how := getattr(self, name)) not in SERIALIZATIONS:
                raise InvalidCallError(f"{name} must be one of {', '.join(SERIALIZATIONS)}, got {how!r:.80}")
        wishes = [name for name in ("rank", "broadcast", "key", "multiplexed_model_id") if getattr(self, name) not in NO_WISH]
        if len(wishes) > 1:
            raise InvalidCallError(f"a call can have one of {' and '.join(wishes)}, not both")
        if self.broadcast and self.stream:
            raise InvalidCallError("a broadcast cannot stream: its answers are gathered")
        for name in ("method_name", "key", "multiplexed_model_id", "request_id"):
            text = getattr(self, name)
            may_be_none, may_be_empty = name == "key", name in ("multiplexed_model_id", "request_id")
            if not ((text is None and may_be_none) or (isinstance(text, str) and (text or may_be_empty))):
                raise InvalidCallError(f"{name} must be a {'' if may_be_empty else 'non-empty '}string, got {text!r:.80}")
        if self.rank is not None and (type(self.rank) is not int or self.rank < 0):
            raise InvalidCallError(f"rank must be an integer from 0 on, got {self.rank!r:.80}")
        if self.timeout_s is not None and not (type(self.timeout_s) in (int, float) and 0 < self.timeout_s < float("inf")):
            raise InvalidCallError(f"timeout_s must be a number of seconds above 0, got {self.timeout_s!r:.80}")


NO_WISH = (None, False, "")

SERVE_OPTIONS = {"session_id": "key"}
"""By Ray Serve's name: ours."""


class DeploymentHandle:
    """Calls one deployment. It can be pickled, and passed to other replicas and drivers.

    Attributes:
        deployment_name: In its application.
        app_name: Of the application.

    Example:
        handle = run(Model.bind()); handle.remote(1).result(); handle.predict.remote(2).result()
    """

    def __init__(
        self, deployment: str, *, namespace: str = names.DEFAULT_NAMESPACE, options: CallOptions | None = None
    ) -> None:
        self.app_name, _, self.deployment_name = deployment.rpartition("/")
        self._deployment = deployment
        self._namespace = namespace
        self._options = options or CallOptions()
        chosen = self._options
        encoding, as_what = (
            "" if each in PICKLES else each for each in (chosen.request_serialization, chosen.response_serialization)
        )
        self._about = About(chosen.request_id, chosen.multiplexed_model_id, chosen.stream, encoding=as_what)
        self._wishes = Wishes(
            rank=chosen.rank,
            broadcast=chosen.broadcast,
            key=chosen.key,
            model_id=chosen.multiplexed_model_id,
            timeout_s=chosen.timeout_s,
            encoding=encoding,
        )

    def options(self, **options: Any) -> "DeploymentHandle":
        """A handle that calls otherwise: see `CallOptions`; what is not named stays.

        Raises:
            InvalidCallError: There is no such option, or it is not what it may be.
        """
        for name, ours in SERVE_OPTIONS.items():
            if name in options and ours in options:
                raise InvalidCallError(f"{name} cannot be had with {ours}, which it is called here: leave one of them out")
            if name in options:
                options[ours] = options.pop(name) or None
        allowed = [field.name for field in attrs.fields(CallOptions)]
        for name in options:
            if name not in allowed:
                there_are = ", ".join((*allowed, *SERVE_OPTIONS))
                raise InvalidCallError(f"handle option {name!r} is unknown; there are: {there_are}")
        chosen = attrs.evolve(self._options, **options)
        return DeploymentHandle(self._deployment, namespace=self._namespace, options=chosen)

    @property
    def is_initialized(self) -> bool:
        """Whether this process has called the deployment before, with this handle or another."""
        return known_caller_of(self._namespace, self._deployment) is not None

    def running_replicas_populated(self) -> bool:
        """Whether this process knows a replica that takes calls. Those that are made before wait for one."""
        caller = known_caller_of(self._namespace, self._deployment)
        return caller is not None and caller.has_replicas

    def remote(self, *args: Any, **kwargs: Any) -> Any:
        """Begin a call. Arguments are pickled now; what happens to them afterwards does not matter.

        Responses of other calls may be among the arguments: the call begins once they are there, and their results take
        their places.

        Returns:
            A `DeploymentResponse`; with `stream=True` a `DeploymentResponseGenerator`. `broadcast` has a shorter form.
        """
        call = self._begin(self._wishes, args, kwargs)
        return DeploymentResponseGenerator(call) if self._options.stream else DeploymentResponse(call)

    def _begin(self, wishes: Wishes, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
        about, number = self._about, 0
        if not about.request_id:
            if serves := current_request_id():  # so that log lines of all that a request leads to have its id
                about = about._replace(request_id=serves)
            else:
                number = next_number()
        call = Call(self._options.method_name, about, wishes)
        call.number = number
        if (tracing := tracer()) is not None:
            tracing.follow(call, f"{self._deployment} {call.method}")
        submit(call, (args, kwargs), caller_of(self._namespace, self._deployment))
        return call

    def broadcast(self, method_name: str, *args: Any, **kwargs: Any) -> DeploymentBroadcastResponse:
        """Call a method of all replicas that run, at once; what they return is in rank order. What one of them raises, or its
        death, ends no other. A rank that nobody has at the moment is left out; with `broadcast=True` it is waited for.

        Example:
            handle.broadcast("reset_cache").results(timeout_s=10)
        """
        everybody = self.options(method_name=method_name, broadcast=True)
        call = everybody._begin(attrs.evolve(everybody._wishes, keep_failures=True), args, kwargs)
        return DeploymentBroadcastResponse(DeploymentResponse(call))

    def choose_replica(self, *args: Any, **kwargs: Any) -> AbstractAsyncContextManager[ReplicaSelection]:
        """Have a place at a replica, and say which: `async with`. `dispatch` in it sends the call there; without, the place is
        free again at the end.

        Args:
            args, kwargs: What a request router of one's own may look at.

        Example:
            async with handle.choose_replica() as chosen: print(await handle.dispatch(chosen, 1))
        """
        router = caller_of(self._namespace, self._deployment)
        about = self._about._replace(request_id=self._about.request_id or current_request_id() or made_up())
        return chosen(router, self._deployment, self._options.method_name, about, self._wishes, (args, kwargs))

    def dispatch(self, selection: ReplicaSelection, *args: Any, **kwargs: Any) -> Any:
        """Call the method that the place was chosen for, there.

        Returns:
            As `remote`.

        Raises:
            InvalidCallError: It is of another deployment, or was dispatched before.
        """
        call = dispatched(selection, self._deployment, (args, kwargs))
        return DeploymentResponseGenerator(call) if call.about.stream else DeploymentResponse(call)

    def shutdown(self) -> None:
        """Wait for what this process has under way for the deployment, by this handle or another, and follow it no more. Who
        calls it later begins anew. In asynchronous code this does not wait: `shutdown_async` does.
        """
        ended = end_router(self._namespace, self._deployment)
        if asyncio._get_running_loop() is None:
            ended.result()

    async def shutdown_async(self) -> None:
        """The same, to be awaited."""
        await asyncio.wrap_future(end_router(self._namespace, self._deployment))

    def __getattr__(self, name: str) -> "DeploymentHandle":
        if name.startswith("_"):
            raise AttributeError(name)
        found = self.options(method_name=name)
        setattr(self, name, found)  # the next call finds it: to make it takes longer than all else of a call here
        return found

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (self._deployment, self._namespace, self._options)

    def __repr__(self) -> str:
        return f"DeploymentHandle({self._deployment!r}, method={self._options.method_name!r})"


def _rebuild(deployment: str, namespace: str, options: CallOptions) -> DeploymentHandle:
    return DeploymentHandle(deployment, namespace=namespace, options=options)
