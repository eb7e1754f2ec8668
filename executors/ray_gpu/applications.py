"""What is sent of an application: its deployments in an order, each with handles in the place of those that it is given."""

import itertools
from collections.abc import Mapping
from typing import Any

from executors.deployment_ids import deployment_id
from executors.ray_gpu.declaration import Application
from executors.ray_gpu.packing import Package, pack
from executors.ray_gpu.requests.handle import DeploymentHandle


def packages_in(
    target: Application, app_name: str, prefix: str | None, namespace: str, logging: object = None
) -> tuple[list[Package], dict[int, DeploymentHandle]]:
    """What is sent of an application: its deployments, those first that others are given handles of; and these."""
    named = in_order(target)
    handles = {id(each): DeploymentHandle(deployment_id(app_name, name), namespace=namespace) for name, each in named.items()}
    packages = [
        pack(
            each,
            tuple(with_handles(value, handles) for value in each.args),
            {key: with_handles(value, handles) for key, value in each.kwargs.items()},
            app_name,
            name,
            route_prefix=prefix if each is target else None,
            is_ingress=each is target,
            logging=logging,
        )
        for name, each in named.items()
    ]
    return packages, handles


def in_order(target: Application) -> dict[str, Application]:
    """An application's deployments by their names in it, those first whose handles others need.

    The first of several that have one name keeps it, as in Ray Serve; the others get a number.
    """
    found: dict[int, Application] = {}

    def visit(value: Any) -> None:
        if isinstance(value, Application):
            if id(value) in found:
                return
            for each in (*value.args, *value.kwargs.values()):
                visit(each)
            found[id(value)] = value
        elif isinstance(value, (list, tuple)):
            for each in value:
                visit(each)
        elif isinstance(value, dict):
            for each in value.values():
                visit(each)

    visit(target)
    named: dict[str, Application] = {}
    for application in found.values():
        name = application.deployment.name
        numbered = (f"{name}_{number}" for number in itertools.count(1))
        named[name if name not in named else next(each for each in numbered if each not in named)] = application
    return named


def with_handles(value: Any, handles: Mapping[int, DeploymentHandle]) -> Any:
    """An argument of `bind`, with handles in the place of the applications in it, by their `id`."""
    if isinstance(value, Application):
        return handles[id(value)]
    if type(value) in (list, tuple):
        return type(value)(with_handles(each, handles) for each in value)
    if type(value) is dict:
        return {key: with_handles(each, handles) for key, each in value.items()}
    return value
