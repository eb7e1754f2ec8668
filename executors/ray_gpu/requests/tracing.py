"""Spans of OpenTelemetry: of a request at the proxy, of each call at its caller, of each call at its replica, as one trace.

    start(tracing_config=TracingConfig(enabled=True, exporter_import_path="my_package.traces:processors"))

names a function without arguments that returns what is to be done with spans, a list of `SpanProcessor`s; each process reads it
once (`traces`). Without it, or without OpenTelemetry's SDK, there are no spans: one comparison with None is all that a call
pays. With it a call carries its `traceparent` (W3C), so that what a replica calls belongs to the trace of what it answers.
"""

import logging
import os
from collections.abc import Mapping
from concurrent.futures import Future
from functools import cache
from typing import TYPE_CHECKING, Any

from executors.deployment_ids import escaped
from executors.ray_gpu.requests.frames import ERROR
from executors.ray_gpu.traces import TracingConfig, of_environment

if TYPE_CHECKING:
    from executors.ray_gpu.requests.call import Answer, Call

LOG = logging.getLogger(__name__)

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
    """Begins spans. One for each process, whose own spans of user code have the same end where it has chosen none.

    Args:
        processors: What is done with spans.
        sampling_ratio: The share of traces that are kept, where nobody has decided before.
    """

    def __init__(self, processors: Any, sampling_ratio: float = 1.0) -> None:
        from opentelemetry import context, trace
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.sampling import ParentBasedTraceIdRatio
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        provider = TracerProvider(
            sampler=ParentBasedTraceIdRatio(sampling_ratio), resource=Resource.create({"service.name": "rankcore"})
        )
        for each in processors:
            provider.add_span_processor(each)
        self._tracer = provider.get_tracer("rankcore")
        if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):  # nobody has said otherwise
            trace.set_tracer_provider(provider)
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


_asked: tuple[TracingConfig | None, str] = (None, "")  # and what this process is called


def trace_as(config: TracingConfig | None, name: str) -> None:
    """What spans this process leaves, said before it answers anything; None: its environment says it."""
    global _asked
    _asked = config, name
    tracer.cache_clear()
    tracer()


@cache
def tracer() -> Tracer | None:
    """Of this process; None: there are no spans."""
    config = _asked[0] or of_environment()
    if config is None or not config.enabled:
        return None
    from executors.loading import LoadError, load_object

    path = config.exporter_import_path
    try:
        processors = (
            load_object(path, "module:function, of which the result is a list of span processors")()
            if path
            else to_file(_asked[1])
        )
        return Tracer(processors, config.sampling_ratio)
    except (LoadError, ImportError) as error:
        LOG.warning("no spans of OpenTelemetry: %s", error)
    except Exception:  # what user code raises
        LOG.exception("no spans of OpenTelemetry: %s has failed", path)
    return None


def to_file(name: str) -> list[Any]:
    """Spans go to a file of this process, one JSON object after the other."""
    from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor

    from executors.ray_gpu.logs.process import FOLDER, session_logs

    folder = session_logs() / FOLDER / "spans"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{escaped(name or 'driver', 200)}_{os.getpid()}_tracing.json"
    return [SimpleSpanProcessor(ConsoleSpanExporter(out=path.open("a")))]
