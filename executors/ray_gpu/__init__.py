"""The Ray executor: rank-aware replicas on a Ray cluster. The public face follows the conventions of Ray Serve.

    from executors import ray_gpu as serve

    @serve.deployment(num_replicas=4, user_config={"name": "v1"}, ray_actor_options={"num_cpus": 0})
    class Model:
        def __init__(self): self.rank = serve.get_replica_context().rank.rank
        def reconfigure(self, user_config, rank): ...
        def __call__(self): return self.rank

    handle = serve.run(Model.bind())
    handle.remote().result()

Names are loaded when they are used: a replica's process imports this package too, and should stay as small as a bare actor.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from executors.log_lines import LogLine
    from executors.ray_gpu.changing import (
        cordon,
        drain,
        evict,
        pause,
        promote,
        replace_replicas,
        restart,
        resume,
        retry,
        rollback,
        scale,
        stop_replicas,
        uncordon,
        update,
    )
    from executors.ray_gpu.config import HTTPOptions
    from executors.ray_gpu.context import ReplicaContext, get_replica_context
    from executors.ray_gpu.declaration import Application, Deployment, deployment
    from executors.ray_gpu.deploying import RunTarget, delete, run, run_many
    from executors.ray_gpu.deployment_actors import get_deployment_actor, get_deployment_actor_context
    from executors.ray_gpu.errors import (
        CallCancelledError,
        CallError,
        ConflictError,
        DeadlineError,
        DeploymentFailedError,
        InvalidCallError,
        InvalidDeploymentError,
        MissingExtraError,
        NameInUseError,
        NoAnswerError,
        NotInReplicaError,
        NotRunningError,
        OverloadedError,
        ProcessGroupError,
        RayExecutorError,
        RemoteError,
        ReplicaGoneError,
        UnavailableError,
        UnknownNameError,
        UntrustedAddressError,
        VersionMismatchError,
    )
    from executors.ray_gpu.grpc_proxy.options import GrpcOptions
    from executors.ray_gpu.http.ingress import ingress
    from executors.ray_gpu.http.options import HttpOptions
    from executors.ray_gpu.inspecting import (
        config_in_force,
        controller_health,
        get_app_handle,
        get_deployment_handle,
        notes,
        propose_defragmentation,
        status,
    )
    from executors.ray_gpu.instance import shutdown, shutdown_async, start
    from executors.ray_gpu.log_files import replica_logs
    from executors.ray_gpu.logs.config import LoggingConfig
    from executors.ray_gpu.process_group import ensure_process_group, torch_env, wait_for_world_change
    from executors.ray_gpu.requests.batching import batch
    from executors.ray_gpu.requests.handle import DeploymentHandle
    from executors.ray_gpu.requests.multiplexing import multiplexed
    from executors.ray_gpu.requests.request_context import RequestContext, get_multiplexed_model_id, get_request_context
    from executors.ray_gpu.requests.response import (
        DeploymentBroadcastResponse,
        DeploymentResponse,
        DeploymentResponseGenerator,
    )
    from executors.ray_gpu.requests.under_way import cancel_request, cancel_waiting, requests_under_way
    from executors.ray_gpu.rest.options import RestOptions
    from executors.ray_gpu.rest.starting import start_rest, stop_rest
    from executors.ray_gpu.serve_options import ControllerOptions
    from executors.ray_gpu.static_placement import StaticPlacementConfig
    from executors.ray_gpu.traces import TracingConfig, get_trace_context
    from executors.ray_gpu.worker.declaration import Residency
    from executors.ray_gpu.worker.options import MemoryOptions
    from rankcore import ReplicaRank

_HOMES = {
    "Application": "executors.ray_gpu.declaration",
    "CallCancelledError": "executors.ray_gpu.errors",
    "CallError": "executors.ray_gpu.errors",
    "ControllerOptions": "executors.ray_gpu.serve_options",
    "ConflictError": "executors.ray_gpu.errors",
    "DeadlineError": "executors.ray_gpu.errors",
    "Deployment": "executors.ray_gpu.declaration",
    "DeploymentBroadcastResponse": "executors.ray_gpu.requests.response",
    "DeploymentFailedError": "executors.ray_gpu.errors",
    "DeploymentHandle": "executors.ray_gpu.requests.handle",
    "DeploymentResponse": "executors.ray_gpu.requests.response",
    "DeploymentResponseGenerator": "executors.ray_gpu.requests.response",
    "HTTPOptions": "executors.ray_gpu.config",
    "GrpcOptions": "executors.ray_gpu.grpc_proxy.options",
    "HttpOptions": "executors.ray_gpu.http.options",
    "InvalidCallError": "executors.ray_gpu.errors",
    "InvalidDeploymentError": "executors.ray_gpu.errors",
    "LoggingConfig": "executors.ray_gpu.logs.config",
    "MemoryOptions": "executors.ray_gpu.worker.options",
    "MissingExtraError": "executors.ray_gpu.errors",
    "NameInUseError": "executors.ray_gpu.errors",
    "NoAnswerError": "executors.ray_gpu.errors",
    "NotInReplicaError": "executors.ray_gpu.errors",
    "NotRunningError": "executors.ray_gpu.errors",
    "OverloadedError": "executors.ray_gpu.errors",
    "ProcessGroupError": "executors.ray_gpu.errors",
    "RayExecutorError": "executors.ray_gpu.errors",
    "RemoteError": "executors.ray_gpu.errors",
    "ReplicaContext": "executors.ray_gpu.context",
    "ReplicaGoneError": "executors.ray_gpu.errors",
    "ReplicaRank": "rankcore",
    "RestOptions": "executors.ray_gpu.rest.options",
    "RunTarget": "executors.ray_gpu.deploying",
    "Residency": "executors.ray_gpu.worker.declaration",
    "RequestContext": "executors.ray_gpu.requests.request_context",
    "StaticPlacementConfig": "executors.ray_gpu.static_placement",
    "TracingConfig": "executors.ray_gpu.traces",
    "UnavailableError": "executors.ray_gpu.errors",
    "UnknownNameError": "executors.ray_gpu.errors",
    "UntrustedAddressError": "executors.ray_gpu.errors",
    "VersionMismatchError": "executors.ray_gpu.errors",
    "batch": "executors.ray_gpu.requests.batching",
    "cancel_request": "executors.ray_gpu.requests.under_way",
    "cancel_waiting": "executors.ray_gpu.requests.under_way",
    "config_in_force": "executors.ray_gpu.inspecting",
    "controller_health": "executors.ray_gpu.inspecting",
    "LogLine": "executors.log_lines",
    "replica_logs": "executors.ray_gpu.log_files",
    "notes": "executors.ray_gpu.inspecting",
    "propose_defragmentation": "executors.ray_gpu.inspecting",
    "cordon": "executors.ray_gpu.changing",
    "delete": "executors.ray_gpu.deploying",
    "deployment": "executors.ray_gpu.declaration",
    "drain": "executors.ray_gpu.changing",
    "evict": "executors.ray_gpu.changing",
    "ensure_process_group": "executors.ray_gpu.process_group",
    "get_app_handle": "executors.ray_gpu.inspecting",
    "get_deployment_actor": "executors.ray_gpu.deployment_actors",
    "get_deployment_actor_context": "executors.ray_gpu.deployment_actors",
    "get_deployment_handle": "executors.ray_gpu.inspecting",
    "get_multiplexed_model_id": "executors.ray_gpu.requests.request_context",
    "get_replica_context": "executors.ray_gpu.context",
    "get_trace_context": "executors.ray_gpu.traces",
    "get_request_context": "executors.ray_gpu.requests.request_context",
    "ingress": "executors.ray_gpu.http.ingress",
    "multiplexed": "executors.ray_gpu.requests.multiplexing",
    "run": "executors.ray_gpu.deploying",
    "run_many": "executors.ray_gpu.deploying",
    "pause": "executors.ray_gpu.changing",
    "promote": "executors.ray_gpu.changing",
    "resume": "executors.ray_gpu.changing",
    "replace_replicas": "executors.ray_gpu.changing",
    "requests_under_way": "executors.ray_gpu.requests.under_way",
    "restart": "executors.ray_gpu.changing",
    "retry": "executors.ray_gpu.changing",
    "rollback": "executors.ray_gpu.changing",
    "scale": "executors.ray_gpu.changing",
    "shutdown": "executors.ray_gpu.instance",
    "shutdown_async": "executors.ray_gpu.instance",
    "start": "executors.ray_gpu.instance",
    "start_rest": "executors.ray_gpu.rest.starting",
    "status": "executors.ray_gpu.inspecting",
    "stop_replicas": "executors.ray_gpu.changing",
    "stop_rest": "executors.ray_gpu.rest.starting",
    "torch_env": "executors.ray_gpu.process_group",
    "uncordon": "executors.ray_gpu.changing",
    "update": "executors.ray_gpu.changing",
    "wait_for_world_change": "executors.ray_gpu.process_group",
}

__all__ = [
    "Application",
    "CallCancelledError",
    "CallError",
    "ConflictError",
    "ControllerOptions",
    "DeadlineError",
    "Deployment",
    "DeploymentBroadcastResponse",
    "DeploymentFailedError",
    "DeploymentHandle",
    "DeploymentResponse",
    "DeploymentResponseGenerator",
    "GrpcOptions",
    "HTTPOptions",
    "HttpOptions",
    "InvalidCallError",
    "InvalidDeploymentError",
    "LogLine",
    "LoggingConfig",
    "MemoryOptions",
    "MissingExtraError",
    "NameInUseError",
    "NoAnswerError",
    "NotInReplicaError",
    "NotRunningError",
    "OverloadedError",
    "ProcessGroupError",
    "RayExecutorError",
    "RemoteError",
    "ReplicaContext",
    "ReplicaGoneError",
    "ReplicaRank",
    "RequestContext",
    "Residency",
    "RestOptions",
    "RunTarget",
    "StaticPlacementConfig",
    "TracingConfig",
    "UnavailableError",
    "UnknownNameError",
    "UntrustedAddressError",
    "VersionMismatchError",
    "batch",
    "cancel_request",
    "cancel_waiting",
    "config_in_force",
    "controller_health",
    "cordon",
    "delete",
    "deployment",
    "drain",
    "ensure_process_group",
    "evict",
    "get_app_handle",
    "get_deployment_actor",
    "get_deployment_actor_context",
    "get_deployment_handle",
    "get_multiplexed_model_id",
    "get_replica_context",
    "get_request_context",
    "get_trace_context",
    "ingress",
    "multiplexed",
    "notes",
    "pause",
    "promote",
    "propose_defragmentation",
    "replace_replicas",
    "replica_logs",
    "requests_under_way",
    "restart",
    "resume",
    "retry",
    "rollback",
    "run",
    "run_many",
    "scale",
    "shutdown",
    "shutdown_async",
    "start",
    "start_rest",
    "status",
    "stop_replicas",
    "stop_rest",
    "torch_env",
    "uncordon",
    "update",
    "wait_for_world_change",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'executors.ray_gpu' has no attribute {name!r}")
    try:
        return getattr(import_module(home), name)
    except ModuleNotFoundError as error:
        from executors.ray_gpu.errors import explained

        raise explained(error) from None


def __dir__() -> list[str]:
    return sorted(__all__)
