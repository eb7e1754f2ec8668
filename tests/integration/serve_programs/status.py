"""`serve.status()` says how applications, their deployments and replicas are."""

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
    return [application.status == "RUNNING", application.message, healthy, states]


EXPECTED = [True, "", True, {"RUNNING": 2}]
