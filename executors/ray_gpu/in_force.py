"""What is in force, in the words of a file of applications: `rankcore config` prints it, and a deploy of it changes nothing.

Each option is as it was wanted last, whether by a file, in Python or by a verb such as `scale`. What is as it is by default is
left out, and so are versions, which follow from the code. Where an application's code is, the file or the command that deployed
it has said (`RayExtras.origin`); of what Python deployed nobody has.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from executors.apps.said import differing, spec_options
from executors.deployment_ids import own_name
from executors.ray_gpu.building import STATIC_PLACEMENT
from executors.ray_gpu.declaration import ACTOR_OPTIONS, ROUTING_DEFAULTS, ROUTING_OPTIONS
from executors.ray_gpu.logs.config import from_plain
from executors.ray_gpu.packing import POLICY
from executors.ray_gpu.proxies.options import ProxyOptions
from executors.ray_gpu.ray_deployment import RayDeployment
from executors.ray_gpu.user_code import Code
from rankcore.cluster.records import Cause
from rankcore.cluster.state import Application
from rankcore.frozen import thaw_json
from rankcore.placement import StaticPlacement

SECRETS = ("ssl_keyfile_password", "bearer_token")


def config_of(
    applications: Mapping[str, Application], deployments: Mapping[str, RayDeployment], proxies: ProxyOptions | None
) -> dict[str, Any]:
    """All of it, as a file would say it."""
    outside: dict[str, Any] = {}
    if proxies is not None:
        http = differing(proxies.http, ("sys_path", "runtime_env", *SECRETS))
        location = http.pop("location", None)
        outside |= {"proxy_location": location} if location is not None else {}
        outside |= {"http_options": http} if http else {}
        outside |= {"logging_config": _logging(proxies.logging)} if proxies.logging is not None else {}
        if proxies.grpc is not None:
            outside |= {"grpc_options": differing(proxies.grpc, ("sys_path", "runtime_env", *SECRETS))}
    found = [
        application_config(name, application, [deployments[each] for each in application.deployments if each in deployments])
        for name, application in sorted(applications.items())
    ]
    return {**outside, "applications": found}


def application_config(name: str, application: Application, deployments: Iterable[RayDeployment]) -> dict[str, Any]:
    """One application."""
    there = [each for each in deployments if not each.entry.deleting]
    origin: dict[str, Any] = next((thaw_json(each.extras.origin) for each in there if each.extras.origin is not None), {})
    prefix = {"route_prefix": application.route_prefix} if application.route_prefix is not None else {}
    return {"name": name, **prefix, **origin, "deployments": [_deployment(name, each) for each in there]}


def _deployment(application: str, found: RayDeployment) -> dict[str, Any]:
    spec, entry = found.entry.spec, found.entry
    options: dict[str, Any] = {"name": own_name(application, found.deployment)}
    static = spec.ranks.static_placement
    if spec.autoscaling is None and static is None and (spec.residency is None or entry.target.cause is Cause.USER):
        options["num_replicas"] = entry.target.replicas
    options |= spec_options(spec.ranks)
    if static is not None:
        options[STATIC_PLACEMENT] = _static(static)
    if spec.routing is not None:
        routed = differing(spec.routing, (), ROUTING_DEFAULTS)
        options |= {option: routed[field] for option, field in ROUTING_OPTIONS.items() if field in routed}
    if spec.autoscaling is not None:
        policy = {POLICY: found.extras.policy.name} if found.extras.policy is not None else {}
        options["autoscaling_config"] = {**differing(spec.autoscaling, ()), **policy}
    code = found.codes().get(spec.ranks.version)
    if spec.residency is not None:
        measured = () if code is None or code.weights_contents is None else ("weight_bytes",)
        options["residency"] = differing(spec.residency, measured)
    if found.extras.spares:
        options["spares"] = found.extras.spares
    return {**options, **(_of_code(code) if code is not None else {})}


def _of_code(code: Code) -> dict[str, Any]:
    actors = {key: value for key, value in code.actor_options.items() if key in ACTOR_OPTIONS and key != "runtime_env"}
    logs = {"logging_config": _logging(code.logging)} if code.logging is not None else {}
    threads = {"sync_threads": code.sync_threads} if code.sync_threads != 1 else {}
    return {**logs, **threads, **({"ray_actor_options": actors} if actors else {})}


def _logging(plain: Mapping[str, Any]) -> dict[str, Any]:
    config = from_plain(plain)
    return {} if config is None else differing(config)


def _static(static: StaticPlacement) -> dict[str, Any]:
    mapping = {rank: list(bundles) for rank, bundles in enumerate(static.bundles)}
    return {"placement_group": static.group, "replica_bundle_mapping": mapping}
