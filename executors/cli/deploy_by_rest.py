"""`rankcore deploy` through a REST server: the server imports the code, and says what would change; nothing needs Ray here."""

import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from executors.apps.file import FILES, AppsFile
from executors.cli.asked import BAD_INPUT, asked, end
from executors.cli.run_options import prefix_of
from executors.deployment_ids import DEFAULT_APPLICATION

if TYPE_CHECKING:
    from executors.cli.deploy import DeployAsked, Wanted

LOOK_EVERY_S = 0.5


def wanted_by_rest(api: Any, asked_for: "DeployAsked", prune: bool) -> "Wanted":
    """What is to be deployed, as a config that the server is sent."""
    from executors.cli.deploy import Wanted

    if asked_for.namespace is not None:
        asked(partial(api.status, namespace=asked_for.namespace))
    config = _config(asked_for)
    applications = [each.get("name", DEFAULT_APPLICATION) for each in config["applications"]]
    how = {"prune": str(prune).lower(), "replace": str(asked_for.replace).lower()}

    def take(expected: str | None) -> None:
        api.put(config, how, expected)
        if asked_for.wait:
            _wait(api, applications)

    return Wanted(
        plan=lambda: api.plan(config, how),
        take=take,
        names=lambda status: [name for name, info in status.deployments.items() if info.app_name in applications],
        status=api.status,
    )


def _config(wanted: "DeployAsked") -> dict[str, Any]:
    if Path(wanted.target).suffix in FILES:
        data: dict[str, Any] = asked(lambda: AppsFile.read(Path(wanted.target))).data
        return data
    if wanted.replicas is not None:
        end("--replicas cannot be had through a REST server, which has the code: say num_replicas in a file", BAD_INPUT)
    environment = dict(wanted.runtime_env or {})
    folder = str(environment.get("working_dir", ""))
    if folder and "://" not in folder:
        end(f"--working-dir: expected the URI of a .zip, which the cluster can read, found {folder!r:.80}", BAD_INPUT)
    said = {"name": wanted.name, "args": dict(wanted.args), "runtime_env": environment}
    prefix = {} if wanted.route_prefix is None else {"route_prefix": prefix_of(wanted.route_prefix)}
    there = {key: each for key, each in said.items() if each}
    return {"applications": [{"import_path": wanted.target, **prefix, **there}]}


def _wait(api: Any, applications: list[str]) -> None:
    """Until all is healthy.

    Raises:
        DeploymentFailedError: A deployment did not come up.
    """
    from executors.ray_gpu.errors import DeploymentFailedError

    while True:
        there = [each for each in api.status().deployments.values() if each.app_name in applications]
        for each in there:
            if each.status == "DEPLOY_FAILED":
                raise DeploymentFailedError(f"{each.name} is {each.status}: {each.message}")
        if all(each.status in ("HEALTHY", "DELETING") for each in there):
            return
        time.sleep(LOOK_EVERY_S)
