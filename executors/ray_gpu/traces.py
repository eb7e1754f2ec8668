"""Which spans there are, and where they go: the options, with the names that they have in Ray Serve.

What is asked for is kept in the cluster. A replica or a proxy reads it as it begins, and goes on with that; where nothing was
asked for, its environment says it. Replica processes import this: it needs nothing of the core, nor of OpenTelemetry.
"""

import json
import os
from typing import Any

import attrs
from ray.experimental import internal_kv

from executors.ray_gpu import names
from executors.ray_gpu.config_objects import config_of
from executors.ray_gpu.errors import InvalidDeploymentError

VARIABLE = "RANKCORE_TRACING_EXPORTER_IMPORT_PATH"
SERVES_VARIABLE = "RAY_SERVE_TRACING_EXPORTER_IMPORT_PATH"
SERVES_RATIO = "RAY_SERVE_TRACING_SAMPLING_RATIO"
RATIO = 0.01


def _path_said() -> str:
    return os.environ.get(VARIABLE) or os.environ.get(SERVES_VARIABLE) or ""


def _ratio_said() -> float:
    try:
        return float(os.environ.get(SERVES_RATIO, RATIO))
    except ValueError:
        return RATIO


@attrs.frozen(kw_only=True)
class TracingConfig:
    """Whether requests leave spans of OpenTelemetry, and which of them.

    Attributes:
        enabled: Where it is left out: whether the environment names an exporter.
        exporter_import_path: "module:function" of a function without arguments that returns a list of `SpanProcessor`s. "": a
            file for each process, in `rankcore/spans` among the logs of Ray's session.
        sampling_ratio: The share of traces that are kept, from 0 to 1; those of a client that has decided are as it says.

    Raises:
        InvalidDeploymentError: One of them is not what it may be.
    """

    enabled: bool = attrs.field(factory=lambda: _path_said() != "")
    exporter_import_path: str = attrs.field(factory=_path_said)
    sampling_ratio: float = attrs.field(factory=_ratio_said)

    def __attrs_post_init__(self) -> None:
        if type(self.enabled) is not bool:
            raise _wrong("enabled", self.enabled, "True or False")
        if type(self.exporter_import_path) is not str:
            raise _wrong("exporter_import_path", self.exporter_import_path, "such as 'my_package.traces:processors', or ''")
        if type(self.sampling_ratio) not in (int, float) or not 0.0 <= self.sampling_ratio <= 1.0:
            raise _wrong("sampling_ratio", self.sampling_ratio, "a number from 0 to 1")


def tracing_config_of(given: object) -> TracingConfig | None:
    """What a user gives, as `config_of` takes it."""
    return config_of(TracingConfig, "tracing_config", given)


def of_environment() -> TracingConfig | None:
    """What the environment of this process asks for; None: nothing. By our own variable all traces are kept."""
    if path := os.environ.get(VARIABLE):
        return TracingConfig(enabled=True, exporter_import_path=path, sampling_ratio=1.0)
    return TracingConfig() if os.environ.get(SERVES_VARIABLE) else None


def kept(namespace: str) -> TracingConfig | None:
    """What was asked for in a namespace; None: nothing, or it cannot be read. Blocks for a round trip."""
    text = internal_kv._internal_kv_get(names.tracing_key(namespace), namespace=names.KV_NAMESPACE)
    try:
        return tracing_config_of(json.loads(text)) if text is not None else None
    except (ValueError, InvalidDeploymentError):  # of a later release
        return None


def keep(namespace: str, config: TracingConfig | None) -> None:
    """Ask for it from now on; None: nobody has said. Blocks for a round trip."""
    key = names.tracing_key(namespace)
    if config is None:
        internal_kv._internal_kv_del(key, namespace=names.KV_NAMESPACE)
    else:
        text = json.dumps(attrs.asdict(config)).encode()
        internal_kv._internal_kv_put(key, text, overwrite=True, namespace=names.KV_NAMESPACE)


def get_trace_context() -> Any:
    """OpenTelemetry's context of the request that is answered here, to begin spans in; None: there is none.

    Example:
        with tracer.start_as_current_span("mine", context=get_trace_context()): ...
    """
    try:
        from opentelemetry.context import get_current
    except ImportError:
        return None
    return get_current() or None


def _wrong(name: str, found: object, allowed: str) -> InvalidDeploymentError:
    return InvalidDeploymentError(f"TracingConfig.{name} must be {allowed}, got {found!r:.80}")
