"""`serve.status()` says how applications, their deployments and replicas are."""

import time

from ray import serve


@serve.deployment(num_replicas=2)
class Model:
    pass


def main() -> object:
    serve.run(Model.bind(), name="llm", route_prefix=None)
    application = serve.status().applications["llm"]
    deployment = application.deployments["Model"]
    states = {getattr(state, "value", state): count for state, count in deployment.replica_states.items()}
    healthy = deployment.status == "HEALTHY"
    trigger = deployment.status_trigger == "CONFIG_UPDATE_COMPLETED"
    is_new = 0 <= time.time() - application.last_deployed_time_s < 600
    return [application.status == "RUNNING", application.message, healthy, states, trigger, deployment.message, is_new]


EXPECTED = [True, "", True, {"RUNNING": 2}, True, "", True]
