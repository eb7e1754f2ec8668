"""One gRPC call on its way through a proxy. All of it runs on the routers' thread."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from time import perf_counter
from typing import Any, NoReturn

import grpc

from executors.ray_gpu.errors import (
    CallCancelledError,
    CallError,
    DeadlineError,
    NotRunningError,
    OverloadedError,
    RemoteError,
    ReplicaGoneError,
    UnavailableError,
    UnknownNameError,
)
from executors.ray_gpu.grpc_proxy.capture import Method
from executors.ray_gpu.http.proxy_app import named
from executors.ray_gpu.http.refusals import retry_after_s, text_of, trace_of
from executors.ray_gpu.logs.access import AccessLog
from executors.ray_gpu.metrics.counts import ProxyCounts
from executors.ray_gpu.requests import inputs
from executors.ray_gpu.requests.call import Call, Wishes
from executors.ray_gpu.requests.inputs import InputsToCome, no_more
from executors.ray_gpu.requests.packing import About
from executors.ray_gpu.requests.pieces import Body
from executors.ray_gpu.requests.response import DeploymentResponseGenerator, answered_here
from executors.ray_gpu.requests.tracing import TRACEPARENT, Span, tracer

LOG = logging.getLogger(__name__)

APPLICATION, MODEL, REQUEST_ID = "application", "multiplexed_model_id", "request_id"
"""Keys of the metadata that a client may send, as in Ray Serve."""
RETRY_AFTER, PUSHBACK = "retry-after", "grpc-retry-pushback-ms"
"""Keys of the metadata that follow a refusal, where it may be worth to try again: in seconds, as of HTTP; and in milliseconds,
which a client with a retry policy of gRPC's own obeys."""

DETAILS_MAX = 500
"""Characters of a status's text: headers have 8 KiB together, of which each may take 12 bytes. A client sees
RESOURCE_EXHAUSTED in place of a status that has more."""

STATUSES: tuple[tuple[type[Exception], grpc.StatusCode], ...] = (
    (OverloadedError, grpc.StatusCode.RESOURCE_EXHAUSTED),
    (DeadlineError, grpc.StatusCode.DEADLINE_EXCEEDED),
    (ReplicaGoneError, grpc.StatusCode.UNAVAILABLE),
    (UnavailableError, grpc.StatusCode.UNAVAILABLE),
    (UnknownNameError, grpc.StatusCode.NOT_FOUND),
    (NotRunningError, grpc.StatusCode.UNAVAILABLE),
    (CallCancelledError, grpc.StatusCode.CANCELLED),
    (CallError, grpc.StatusCode.INTERNAL),
)
"""The first that fits; what user code raises is INTERNAL too."""


class RequestStream:
    """A client's messages, as the source of a call: the next one is read when the replica wants it."""

    def __init__(self, requests: AsyncIterator[bytes], method: Method) -> None:
        self._requests = requests
        self._method = method
        self._reading: asyncio.Task[None] | None = None

    def wanted(self, give: Callable[[Body], None]) -> None:
        """Give the next one, or say that there is none."""
        self._reading = asyncio.get_running_loop().create_task(self._read(give))

    async def _read(self, give: Callable[[Body], None]) -> None:
        try:
            read = self._method.read(await anext(self._requests))
        except StopAsyncIteration:
            give(no_more())
        except Exception as error:  # it is no message of the type, or the client is gone
            method = f"{self._method.service}/{self._method.name}"
            give(no_more(f"no message for {method} could be read: {type(error).__name__}: {error}"))
        else:
            give(inputs.message(read))


CODES: dict[object, str] = {each.value[0]: each.name for each in grpc.StatusCode}
"""By the numbers that grpc's contexts keep."""


class _Said:
    """What a call turns out to be about."""

    __slots__ = ("application", "deployment", "request_id", "span")

    def __init__(self) -> None:
        self.application = self.deployment = self.request_id = ""
        self.span: Span | None = None

    def begin_span(self, method: Method, said: Mapping[str, str]) -> str:
        """Begin the call's span, where there are spans; returns what it carries on."""
        if (tracing := tracer()) is None:
            return ""
        about = {"request_id": self.request_id, "deployment": self.deployment}
        self.span = tracing.serves(f"{method.service}/{method.name}", said.get(TRACEPARENT, ""), about)
        return self.span.traceparent


class Service:
    """Answers the calls of all methods.

    Attributes:
        applications: Deployments by the application's name; None: not known yet.
        access_log: Takes a line for each call; None: there are to be none.
        counts: Of the calls that were answered.
    """

    def __init__(
        self, router_of: Callable[[str], Any], request_timeout_s: float | None, access_log: AccessLog | None = None
    ) -> None:
        self.applications: Mapping[str, str] | None = None
        self.access_log = access_log
        self.counts = ProxyCounts()
        self._router_of = router_of
        self._request_timeout_s = request_timeout_s

    def handler(self, method: Method) -> Any:
        """What grpc calls for one method."""
        if method.is_streaming:

            async def stream(request: Any, context: Any) -> AsyncIterator[Any]:
                with self._noted(method, context) as about:
                    call = await self._begin(method, request, context, about)
                    try:
                        async for item in DeploymentResponseGenerator(call):
                            yield method.write(item)
                    except Exception as error:
                        await self._abort(context, method, about.request_id, error)
                    finally:
                        call.cancel()

            takes = grpc.stream_stream_rpc_method_handler if method.takes_stream else grpc.unary_stream_rpc_method_handler
            return takes(stream)

        async def unary(request: Any, context: Any) -> Any:
            with self._noted(method, context) as about:
                call = await self._begin(method, request, context, about)
                try:
                    return method.write(await answered_here(call))
                except Exception as error:
                    await self._abort(context, method, about.request_id, error)
                finally:
                    call.cancel()

        takes = grpc.stream_unary_rpc_method_handler if method.takes_stream else grpc.unary_unary_rpc_method_handler
        return takes(unary)

    @contextmanager
    def _noted(self, method: Method, context: Any) -> Iterator["_Said"]:
        """Count a call, and write it down where that is wanted, once it is over."""
        began, about = perf_counter(), _Said()
        self.counts.ongoing += 1
        try:
            yield about
        finally:
            self.counts.ongoing -= 1
            latency_s, code = perf_counter() - began, context.code()
            status = CODES.get(code, getattr(code, "name", "OK"))
            path = f"/{method.service}/{method.name}"
            self.counts.answered(about.application, about.deployment, path, status, latency_s)
            if about.span is not None:
                about.span.end("" if status == "OK" else status)
            if self.access_log is not None:
                self.access_log.note("GRPC", path, status, latency_s, about.request_id)

    async def _begin(self, method: Method, request: Any, context: Any, noted: "_Said") -> Call:
        said = {key: value for key, value in context.invocation_metadata() or () if isinstance(value, str)}
        noted.request_id = request_id = named(said.get(REQUEST_ID))
        context.set_trailing_metadata(((REQUEST_ID, request_id),))
        noted.deployment = deployment = await self._deployment(said.get(APPLICATION), context)
        noted.application = deployment.partition("/")[0]
        try:
            message = InputsToCome() if method.takes_stream else method.read(request)
        except Exception:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"this is no message for {method.service}/{method.name}")
        left_s = context.time_remaining()
        timeout_s = self._request_timeout_s if left_s is None else max(left_s, 0.001)
        model_id = said.get(MODEL, "")
        about = About(request_id, model_id, method.is_streaming, noted.begin_span(method, said))
        call = Call(method.name, about, Wishes(model_id=model_id, timeout_s=timeout_s))
        if method.takes_stream:
            call.source = RequestStream(request, method)
        try:
            call.pack(((message,), {}))
            self._router_of(deployment).submit_here(call)
        except Exception as error:
            await self._abort(context, method, request_id, error)
        return call

    async def _deployment(self, application: str | None, context: Any) -> str:
        if self.applications is None:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the applications are not known yet")
            raise AssertionError("abort raises")
        if application is None and len(self.applications) == 1:
            return next(iter(self.applications.values()))
        found = self.applications.get(str(application)) if application is not None else None
        if found is None:
            there_is = ", ".join(sorted(self.applications)) or "none"
            wrong = f"say which application, in metadata {APPLICATION!r}"
            wrong = wrong if application is None else f"there is no application {application!r:.120}"
            await context.abort(grpc.StatusCode.NOT_FOUND, f"{wrong}; there is: {there_is}"[:DETAILS_MAX])
        return str(found)

    async def _abort(self, context: Any, method: Method, request_id: str, error: Exception) -> NoReturn:
        for kind, code in STATUSES:
            if isinstance(error, kind) and not isinstance(error, RemoteError):  # whose text is the user's
                if (retry_s := retry_after_s(error)) is not None:
                    after = (REQUEST_ID, request_id), (RETRY_AFTER, str(retry_s)), (PUSHBACK, str(1000 * retry_s))
                    context.set_trailing_metadata(after)
                await context.abort(code, text_of(error)[:DETAILS_MAX])
        LOG.error("call %s of %s/%s failed\n%s", request_id, method.service, method.name, trace_of(error))
        text = f"{type(error).__name__}: the log has the traceback of request {request_id}"
        await context.abort(grpc.StatusCode.INTERNAL, text)
        raise AssertionError("abort raises")
