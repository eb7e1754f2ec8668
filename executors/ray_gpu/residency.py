"""Names of before, for one release: models were a product of their own, and are deployments with `residency=` now.

Each warns, says what it is called now, and does that. A model is the application of its name, with one deployment of that name.
"""

import warnings
from typing import Any

from executors.ray_gpu.errors import InvalidDeploymentError, NoAnswerError, NotRunningError, UnknownNameError, explained

try:
    from executors.ray_gpu import changing, deploying, inspecting, instance
    from executors.ray_gpu.declaration import Application, Deployment
    from executors.ray_gpu.overview import DeploymentInfo as ModelStanding
    from executors.ray_gpu.overview import NodeMemoryStatus as NodeStanding
    from executors.ray_gpu.overview import Status as FleetStanding
    from executors.ray_gpu.overview import WorkerStatus as ReplicaStanding
    from executors.ray_gpu.requests.response import DeploymentResponse as ModelResponse
    from executors.ray_gpu.worker.declaration import Residency
    from executors.ray_gpu.worker.options import DeviceKind, MemoryOptions
except ModuleNotFoundError as error:
    raise explained(error) from None

__all__ = [
    "DeviceKind",
    "FleetOptions",
    "FleetStanding",
    "Model",
    "ModelHandle",
    "ModelResponse",
    "ModelStanding",
    "NodeStanding",
    "ReplicaStanding",
    "deploy",
    "evict",
    "scale",
    "shutdown",
    "standing",
    "start",
    "where",
]

OF_RESIDENCY = ("working_bytes", "gpus", "priority", "dedicated", "min_hot_s", "spread", "node_labels", "load_timeout_s")
RENAMED = {"autoscaling": "autoscaling_config"}
DEFAULTS = {"max_ongoing_requests": 1, "num_replicas": 1}
"""Of models, where those of deployments are others."""
ELSEWHERE = {
    "dispatch": "Residency(min_hot_s=..., wait_for_room_s=..., failed_for_s=...) of each deployment says that now",
    "residency": "Residency(idle_to_warm_s=..., idle_to_cold_s=...), graceful_shutdown_timeout_s, start_backoff_s and "
    "max_start_failures of each deployment say that now",
}


def Model(*, name: str, code: type, weights: Any, args: Any = (), kwargs: Any = None, **options: Any) -> Application:
    """`@deployment(residency=Residency(weights=...))`, bound."""
    _warn("Model", "@deployment(residency=Residency(weights=...)) and bind()")
    fields = {key: options.pop(key) for key in OF_RESIDENCY if key in options}
    settings = {RENAMED.get(key, key): value for key, value in options.items()}
    if settings.get("autoscaling_config") is not None:
        settings["num_replicas"] = None
    residency = Residency(weights=weights, **{"min_hot_s": 0.0, **fields})
    deployment = Deployment(target=code).options(**{**DEFAULTS, **settings, "name": name, "residency": residency})
    return deployment.bind(*args, **(kwargs or {}))


def FleetOptions(**options: Any) -> MemoryOptions:
    """`MemoryOptions`.

    Raises:
        InvalidDeploymentError: It was given how requests are treated, which deployments say by now.
    """
    _warn("FleetOptions", "MemoryOptions")
    for name, said_by in ELSEWHERE.items():
        if options.pop(name, None) is not None:
            raise InvalidDeploymentError(f"FleetOptions.{name} is gone: {said_by}")
    return MemoryOptions(**options)


def start(options: MemoryOptions | None = None, *, namespace: str | None = None, journal: str | None = "") -> None:
    """`start(memory=...)`."""
    _warn("start", "start(memory=...)")
    instance.start(namespace=namespace, journal=journal, memory=options)


def deploy(*models: Application, replicas: int = 1, replace: bool = False, namespace: str | None = None) -> None:
    """`run_many`: one request, each model an application that is called as it is."""
    _warn("deploy", "run_many")
    for each in models:
        if not isinstance(each, Application):
            raise InvalidDeploymentError(f"residency.deploy takes models, got {each!r:.80}")
    targets = [deploying.RunTarget(_with_replicas(each, replicas), each.deployment.name) for each in models]
    deploying.run_many(targets, wait=False, replace=replace, namespace=namespace)


def _with_replicas(model: Application, replicas: int) -> Application:
    if model.deployment.settings.get("autoscaling_config") is not None:
        return model
    return model.options(num_replicas=replicas)


def scale(model: str, replicas: int, *, namespace: str | None = None) -> None:
    """`scale`."""
    _warn("scale", "scale")
    changing.scale(model, replicas, namespace=namespace)


def evict(model: str | None = None, *, replica_id: str | None = None, keep: Any = "WARM", namespace: str | None = None) -> None:
    """`evict`, which takes the name of either."""
    _warn("evict", "evict")
    if (name := model or replica_id) is None or (model and replica_id):
        raise InvalidDeploymentError("evict takes either a model or a replica_id")
    changing.evict(name, keep=keep, namespace=namespace)


def standing(*, namespace: str | None = None) -> FleetStanding:
    """`status`."""
    _warn("standing", "status")
    return inspecting.status(namespace=namespace)


def where(model: str, *, namespace: str | None = None) -> ModelStanding:
    """`status().deployments[...]`, whose `workers` say where weights are."""
    _warn("where", "status().deployments[name]")
    try:
        return inspecting.status(namespace=namespace).deployments[model]
    except KeyError as error:
        raise UnknownNameError(str(error.args[0])) from None


def shutdown(*, namespace: str | None = None) -> None:
    """`delete`, of all deployments with residency; there may be none. `shutdown` ends all others too."""
    _warn("shutdown", "delete")
    try:
        found = inspecting.status(namespace=namespace).deployments
        deploying.delete_all([name for name, info in found.items() if info.has_residency], namespace=namespace)
    except NoAnswerError:
        raise
    except NotRunningError:
        return


class ModelHandle:
    """`get_deployment_handle`: the same calls, and the errors of handles."""

    def __init__(
        self, model: str, *, method: str = "__call__", timeout_s: float | None = None, namespace: str | None = None
    ) -> None:
        _warn("ModelHandle", "get_deployment_handle")
        self.model = model
        self._options: dict[str, Any] = {"method_name": method, "timeout_s": timeout_s}
        self._namespace = namespace

    def options(self, *, method: str | None = None, timeout_s: float | None = None) -> "ModelHandle":
        """`handle.options(method_name=..., timeout_s=...)`."""
        method = method or self._options["method_name"]
        timeout_s = timeout_s if timeout_s is not None else self._options["timeout_s"]
        return ModelHandle(self.model, method=method, timeout_s=timeout_s, namespace=self._namespace)

    def remote(self, *args: Any, **kwargs: Any) -> ModelResponse:
        """`handle.remote`."""
        handle = inspecting.get_deployment_handle(self.model, namespace=self._namespace).options(**self._options)
        response: ModelResponse = handle.remote(*args, **kwargs)
        return response


def _warn(name: str, now: str) -> None:
    text = f"executors.ray_gpu.residency.{name} goes with the next release: it is executors.ray_gpu's {now} now"
    warnings.warn(text, DeprecationWarning, stacklevel=3)
