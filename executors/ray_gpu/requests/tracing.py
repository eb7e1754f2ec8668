"""Spans of OpenTelemetry: of a request at the proxy, of each call at its caller, of each call at its replica, as one trace.

    RANKCORE_TRACING_EXPORTER_IMPORT_PATH=my_package.traces:processors

names a function without arguments that returns what is to be done with spans, a list of `SpanProcessor`s; each process reads it
once. Without it, or without OpenTelemetry's SDK, there are no spans: one comparison with None is all that a call pays. With it
a call carries its `traceparent` (W3C), so that what a replica calls belongs to the trace of the request that it answers.
"""

import logging
import os
from collections.abc import Mapping
from concurrent.futures import Future
from functools import cache
from typing import TYPE_CHECKING, Any

from executors.ray_gpu.requests.frames import ERROR

if TYPE_CHECKING:
    from executors.ray_gpu.requests.call import Answer, Call

LOG = logging.getLogger(__name__)

VARIABLE = "RANKCORE_TRACING_EXPORTER_IMPORT_PATH"
TRACEPARENT = "traceparent"


class Span:
    """One that has begun."""

    def __init__(self, tracing: "Tracer", span: Any) -> None:
        self._tracing = tracing
        self._span = span

    @property
    def traceparent(self) -> str:
        """What whoever belongs to it is told."""
        return self._tracing.carried(self._span)

    def end(self, problem: str = "") -> None:
        """It is over.

        Args:
            problem: What went wrong; "": nothing.
        """
        self._tracing.end(self._span, problem)


class Tracer:
    """Begins spans. One for each process."""

    def __init__(self, processors: Any) -> None:
        from opentelemetry import context, trace
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        provider = TracerProvider(resource=Resource.create({"service.name": "rankcore"}))
        for each in processors:
            provider.add_span_processor(each)
        self._tracer = provider.get_tracer("rankcore")
        self._trace = trace
        self._context = context
        self._propagator = TraceContextTextMapPropagator()

    def serves(self, name: str, traceparent: str, about: Mapping[str, str]) -> Span:
        """The span of a request that is served here. What this task does from now on belongs to it."""
        parent = self._propagator.extract({TRACEPARENT: traceparent}) if traceparent else None
        span = self._tracer.start_span(name, parent, self._trace.SpanKind.SERVER, attributes=dict(about))
        self._context.attach(self._trace.set_span_in_context(span))
        return Span(self, span)

    def follow(self, call: "Call", name: str) -> None:
        """A call that is made here has a span from now until it is answered, and carries it."""
        span = self._tracer.start_span(name, kind=self._trace.SpanKind.CLIENT)
        call.about = call.about._replace(trace=self.carried(span))
        call.answer.add_done_callback(lambda answer: self.end(span, _problem_of(answer)))

    def carried(self, span: Any) -> str:
        """The `traceparent` of a span."""
        carrier: dict[str, str] = {}
        self._propagator.inject(carrier, self._trace.set_span_in_context(span))
        return carrier.get(TRACEPARENT, "")

    def end(self, span: Any, problem: str) -> None:
        """It is over; see `Span.end`."""
        if problem:
            span.set_status(self._trace.StatusCode.ERROR, problem)
        span.end()


def _problem_of(answer: "Future[Answer]") -> str:
    if answer.cancelled():
        return "cancelled"
    if (error := answer.exception()) is not None:
        return type(error).__name__
    return "raised" if answer.result().kind == ERROR else ""


@cache
def tracer() -> Tracer | None:
    """Of this process; None: there are no spans."""
    path = os.environ.get(VARIABLE)
    if not path:
        return None
    from executors.loading import LoadError, load_object

    try:
        return Tracer(load_object(path, "module:function, of which the result is a list of span processors")())
    except (LoadError, ImportError) as error:
        LOG.warning("no spans of OpenTelemetry: %s", error)
    except Exception:  # what user code raises
        LOG.exception("no spans of OpenTelemetry: %s has failed", path)
    return None
