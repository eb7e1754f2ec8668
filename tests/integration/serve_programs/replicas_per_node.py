"""`max_replicas_per_node` keeps a third replica from a node that has two; it waits for another node."""

import time

from ray import serve


@serve.deployment(num_replicas=3, max_replicas_per_node=2, ray_actor_options={"num_cpus": 0})
class Spread:
    def __call__(self) -> str:
        return "here"


def main() -> object:
    target = serve.RunTarget(Spread.bind(), route_prefix=None)
    (handle,) = serve.run_many([target], wait_for_applications_running=False)
    said = handle.remote().result()
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        states = serve.status().applications["default"].deployments["Spread"].replica_states
        found = {getattr(state, "value", state): count for state, count in states.items()}
        if found == {"RUNNING": 2, "STARTING": 1}:
            break
        time.sleep(0.1)
    return [said, found]


EXPECTED = ["here", {"RUNNING": 2, "STARTING": 1}]
