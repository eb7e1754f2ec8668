"""Replicas share an actor of their deployment, which is there before them and gone after them."""

import time

import ray
from ray import serve
from ray.serve.config import DeploymentActorConfig


@ray.remote(num_cpus=0)
class Counter:
    def __init__(self, start: int, step: int = 1):
        self.count, self.step = start, step

    def add(self) -> int:
        self.count += self.step
        return self.count

    def who(self) -> list:
        found = serve.get_deployment_actor_context()
        return [found.app_name, found.deployment, found.actor_name, found.deployment_id.name, bool(found.code_version)]


@serve.deployment(
    num_replicas=2,
    ray_actor_options={"num_cpus": 0},
    deployment_actors=[
        DeploymentActorConfig(name="counter", actor_class=Counter, init_args=(10,), init_kwargs={"step": 5}),
        {"name": "other", "actor_class": Counter, "init_args": [0], "actor_options": {"num_cpus": 0}},
    ],
)
class Model:
    def __init__(self):
        self.first = ray.get(serve.get_deployment_actor("counter").add.remote())

    def __call__(self) -> int:
        return ray.get(serve.get_deployment_actor("counter").add.remote())

    def who(self, name: str) -> list:
        return ray.get(serve.get_deployment_actor(name).who.remote())

    def missing(self) -> str:
        try:
            serve.get_deployment_actor("nobody")
        except ValueError:
            return "ValueError"
        return "found"


def counters() -> int:
    return sum(each["name"].endswith(("counter", "other")) for each in ray.util.list_named_actors(all_namespaces=True))


def main() -> object:

    handle = serve.run(Model.bind(), name="shared", route_prefix=None)
    counts = [handle.remote().result() for _ in range(6)]
    told = [handle.who.remote(name).result() for name in ("counter", "other")]
    missing, alive = handle.missing.remote().result(), counters()
    serve.delete("shared")
    deadline = time.monotonic() + 30
    while counters() and time.monotonic() < deadline:
        time.sleep(0.2)
    return [counts, told, missing, alive, counters()]


EXPECTED = [
    [25, 30, 35, 40, 45, 50],
    [["shared", "Model", "counter", "Model", True], ["shared", "Model", "other", "Model", True]],
    "ValueError",
    2,
    0,
]
