"""What runs, as Ray Serve's `GET /api/serve/applications/` says it, for its CLI, its dashboard, and KubeRay."""

import json
from collections.abc import Iterable
from typing import Any

from executors.deployment_ids import own_name
from executors.ray_gpu import names
from executors.ray_gpu.overview import DeploymentInfo, ReplicaStatus
from executors.ray_gpu.proxies.info import ProxyInfo
from executors.ray_gpu.rest.cluster_view import ClusterSeen
from executors.ray_gpu.serve_statuses import DEPLOYMENTS, application_status
from rankcore import ReplicaState

REPLICAS = {
    ReplicaState.RUNNING: "RUNNING",
    ReplicaState.RECONFIGURING: "UPDATING",
    ReplicaState.DRAINING: "STOPPING",
    ReplicaState.STOPPED: "STOPPED",
    ReplicaState.RECOVERING: "RECOVERING",
    ReplicaState.FAILED: "STOPPED",
}
"""All others are STARTING."""
NOT_SERVES = ("autoscaling_config",)
"""Options of deployments whose values are not Serve's, since a policy is named in another way."""
NONE: dict[str, Any] = {"controller_info": {}, "proxies": {}, "applications": {}, "target_capacity": None}
"""Nothing runs."""


def details(seen: ClusterSeen, api_type: str | None = None) -> dict[str, Any]:
    """All of it.

    Args:
        api_type: Only applications that a config has deployed ("declarative"), or only others ("imperative"); None: all.
    """
    applications = seen.config.get("applications", ())
    status, configs = seen.status, {each["name"]: serves_config(each) for each in applications if "import_path" in each}
    prefixes = {own: prefix for prefix, own in seen.ingress.prefixes.items()}
    scale_themselves = {
        each["name"] for each in applications if any("autoscaling_config" in one for one in each.get("deployments", ()))
    }
    found = {}
    for name, application in status.applications.items():
        source = "declarative" if name in configs else "imperative"
        if api_type in (None, source):
            prefix = prefixes.get(seen.ingress.applications.get(name, ""))
            found[name] = application_details(
                name,
                application.deployments.values(),
                prefix,
                configs.get(name),
                source,
                name in scale_themselves,
                application.last_deployed_time_s,
            )
    options = seen.proxies
    return {
        "controller_info": {"node_id": seen.node_id, "actor_name": names.CONTROLLER},
        "proxy_location": options.http.location if options is not None else None,
        "http_options": {"host": options.http.host, "port": options.http.port} if options is not None else None,
        "proxies": {each.node_id: proxy_details(each) for each in status.proxy_infos},
        "applications": found,
        "target_capacity": seen.config.get("target_capacity"),
    }


def serves_config(config: dict[str, Any]) -> dict[str, Any]:
    """An application of a file, without what Serve's schema would refuse; what it does not know it leaves out itself."""
    deployments = [
        {key: value for key, value in each.items() if key not in NOT_SERVES and (key != "num_replicas" or value)}
        for each in config.get("deployments", ())
    ]
    return {**config, "deployments": deployments}


def application_details(
    name: str,
    deployments: Iterable[DeploymentInfo],
    prefix: str | None,
    config: dict[str, Any] | None,
    source: str,
    scales_itself: bool,
    deployed_at: float,
) -> dict[str, Any]:
    """One application; `scales_itself`: a deployment of it does, so that its number is not for others to set."""
    deployments = list(deployments)
    return {
        "name": name,
        "route_prefix": prefix,
        "docs_path": None,
        "status": application_status({each.status for each in deployments}),
        "message": "; ".join(f"{each.own_name}: {each.message}" for each in deployments if each.message),
        "last_deployed_time_s": deployed_at,
        "deployed_app_config": config,
        "source": source,
        "deployments": {each.own_name: deployment_details(each) for each in deployments},
        "external_scaler_enabled": not scales_itself,
    }


def deployment_details(info: DeploymentInfo) -> dict[str, Any]:
    """One deployment."""
    status, trigger = DEPLOYMENTS[info.status]
    return {
        "name": info.own_name,
        "status": status,
        "status_trigger": trigger,
        "message": info.message,
        "deployment_config": {"name": info.own_name, **({"num_replicas": info.world_size} if info.world_size else {})},
        "target_num_replicas": info.world_size,
        "required_resources": {},
        "replicas": [_replica(each, info) for each in info.replicas],
    }


def _replica(replica: ReplicaStatus, info: DeploymentInfo) -> dict[str, Any]:
    return {
        "replica_id": own_name(info.app_name, replica.replica_id),
        "state": REPLICAS.get(replica.state, "STARTING"),
        "pid": replica.pid,
        "start_time_s": 0.0,
        "node_id": replica.node_id,
        "actor_name": names.actor_name(info.name, replica.replica_id),
    }


def proxy_details(proxy: ProxyInfo) -> dict[str, Any]:
    """One proxy."""
    return {"node_id": proxy.node_id, "status": proxy.status, "actor_name": names.proxy_name(proxy.node_id)}


def as_bytes(seen: ClusterSeen) -> bytes:
    """All of it, as it is sent."""
    return json.dumps(details(seen)).encode()
