"""What is in force, in the words of a file of applications: `rankcore config` prints it, and a deploy of it, of the same code
from the same place, changes no replica.

Each option is as it was wanted last, whether by a file, in Python or by a verb such as `scale`. What is as it is by default is
left out, and so are versions that follow from the code. A secret is not said: `KEPT` stands for the one that is in force. Where
an application's code is, the file or the command that deployed it has said (`RayExtras.origin`); of what Python deployed nobody
has. An option that a file has set back to its default, against what the code says, is left out like any other.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import attrs

from executors.apps.said import differing, spec_options
from executors.deployment_ids import own_name
from executors.ray_gpu.capacity import share_in_force, unscaled
from executors.ray_gpu.declaration import ACTOR_OPTIONS, ROUTING_OPTIONS, STATIC_PLACEMENT
from executors.ray_gpu.grpc_proxy.options import GrpcOptions
from executors.ray_gpu.http.access import KEPT, SECRETS
from executors.ray_gpu.http.options import HttpOptions
from executors.ray_gpu.logs.config import UNASKED, from_plain
from executors.ray_gpu.packing import POLICY
from executors.ray_gpu.process import CAPTURE_CHILD_TASKS
from executors.ray_gpu.proxies.options import ProxyOptions
from executors.ray_gpu.ray_deployment import RayDeployment
from executors.ray_gpu.room import OWN_GROUP, one_of_each_node
from executors.ray_gpu.routing_defaults import ROUTING_DEFAULTS, UNAVAILABLE
from executors.ray_gpu.traces import TracingConfig
from executors.ray_gpu.user_code import Code
from rankcore.cluster.records import Cause
from rankcore.cluster.state import Application
from rankcore.frozen import thaw_json
from rankcore.placement import StaticPlacement

ENVIRONMENT = ("sys_path", "runtime_env")
"""Options of proxies that follow from the process that deploys."""


def config_of(
    applications: Mapping[str, Application],
    deployments: Mapping[str, RayDeployment],
    proxies: ProxyOptions | None,
    tracing: TracingConfig | None = None,
) -> dict[str, Any]:
    """All of it, as a file would say it."""
    outside = outside_of(proxies)
    found = [
        application_config(
            name,
            application,
            [deployments[each] for each in application.deployments if each in deployments],
            "logging_config" in outside,
        )
        for name, application in sorted(applications.items())
    ]
    spans = {"tracing_config": attrs.asdict(tracing)} if tracing is not None else {}
    percent = share_in_force(applications, deployments).percent
    share = {"target_capacity": percent} if percent is not None else {}
    return {**outside, **spans, **share, "applications": found}


def outside_of(proxies: ProxyOptions | None) -> dict[str, Any]:
    """What is wanted of proxies; {}: there are none."""
    if proxies is None:
        return {}
    http = _outside(proxies.http)
    found: dict[str, Any] = {"proxy_location": http.pop("location", proxies.http.location)}
    found |= {"http_options": http} if http else {}
    found |= {"grpc_options": _outside(proxies.grpc)} if proxies.grpc is not None else {}
    return found | ({"logging_config": _logging(proxies.logging)} if proxies.logging is not None else {})


def application_config(
    name: str, application: Application, deployments: Iterable[RayDeployment], is_logging_said: bool = False
) -> dict[str, Any]:
    """One application.

    Args:
        is_logging_said: Whether the file says how to log, which holds for each deployment that does not say it itself.
    """
    there = [each for each in deployments if not each.entry.deleting]
    origin: dict[str, Any] = next((thaw_json(each.extras.origin) for each in there if each.extras.origin is not None), {})
    prefix = application.route_prefix  # said in any case: what left out means has changed once
    return {
        "name": name,
        "route_prefix": prefix,
        **origin,
        "deployments": [_deployment(name, each, is_logging_said) for each in there],
    }


def _outside(options: HttpOptions | GrpcOptions) -> dict[str, Any]:
    found = differing(options, ENVIRONMENT)
    return {key: KEPT if key in SECRETS else value for key, value in found.items()}


def _deployment(application: str, found: RayDeployment, is_logging_said: bool) -> dict[str, Any]:
    spec, entry = found.entry.spec, found.entry
    options: dict[str, Any] = {"name": own_name(application, found.deployment)}
    static = spec.ranks.static_placement
    code = found.codes().get(spec.ranks.version)
    if spec.autoscaling is None and static is None and (spec.residency is None or entry.target.cause is Cause.USER):
        options["num_replicas"] = entry.target.replicas
    options |= spec_options(spec.ranks)
    if static is not None:
        options[STATIC_PLACEMENT] = _static(static, code)
    if spec.routing is not None:
        routed = differing(spec.routing, (), ROUTING_DEFAULTS)
        options |= {option: routed[field] for option, field in ROUTING_OPTIONS.items() if field in routed}
    if spec.autoscaling is not None:
        policy = {POLICY: found.extras.policy.name} if found.extras.policy is not None else {}
        options["autoscaling_config"] = {**differing(spec.autoscaling, ()), **policy}
    if found.extras.capacity is not None:
        unscaled(thaw_json(found.extras.capacity), options, entry.target.replicas)
    if spec.residency is not None:
        measured = () if code is None or code.weights_contents is None else ("weight_bytes",)
        options["residency"] = differing(spec.residency, measured)
    if found.extras.rejected_with != UNAVAILABLE:
        options["rejected_with"] = found.extras.rejected_with
    if found.extras.spares:
        options["spares"] = found.extras.spares
    return {**options, **(_of_code(code, is_logging_said) if code is not None else {})}


def _of_code(code: Code, is_logging_said: bool) -> dict[str, Any]:
    found: dict[str, Any] = {"version": code.version} if code.version_said else {}
    if code.logging is not None:
        found["logging_config"] = _logging(code.logging)
    elif is_logging_said:
        found["logging_config"] = differing(UNASKED)
    if code.actors_said is not None:
        found["deployment_actors"] = code.actors_said
    if code.sync_threads != 1:
        found["sync_threads"] = code.sync_threads
    actors = {key: value for key, value in code.actor_options.items() if key in ACTOR_OPTIONS and key != "runtime_env"}
    resources = dict(actors.pop("resources", None) or {})
    if (of_each_node := resources.pop(one_of_each_node(code.deployment), None)) is not None:
        found["max_replicas_per_node"] = round(1.0 / of_each_node)
    if (group := code.actor_options.get(OWN_GROUP)) is not None:
        found["placement_group_bundles"] = group["bundles"]
        found["placement_group_strategy"] = group["strategy"]
        found |= {"placement_group_bundle_label_selector": group["labels"]} if group["labels"] else {}
    actors |= {"resources": resources} if resources else {}
    actors |= {"runtime_env": code.runtime_env_said} if code.runtime_env_said else {}
    return {**found, **({"ray_actor_options": actors} if actors else {})}


def _logging(plain: Mapping[str, Any]) -> dict[str, Any]:
    config = from_plain(plain)
    return {} if config is None else differing(config)


def _static(static: StaticPlacement, code: Code | None) -> dict[str, Any]:
    mapping = {rank: list(bundles) for rank, bundles in enumerate(static.bundles)}
    captures = code is None or code.actor_options.get(CAPTURE_CHILD_TASKS, True)
    return {
        "placement_group": static.group,
        "replica_bundle_mapping": mapping,
        **({} if captures else {"capture_child_tasks": False}),
    }
