"""Several applications are deployed by one call, which returns their handles."""

from ray import serve


@serve.deployment
def one() -> int:
    return 1


@serve.deployment
def two() -> int:
    return 2


def main() -> object:
    targets = [
        serve.RunTarget(one.bind(), name="one", route_prefix=None),
        serve.RunTarget(two.bind(), name="two", route_prefix=None),
    ]
    handles = serve.run_many(targets, wait_for_ingress_deployment_creation=True, wait_for_applications_running=True)
    return [each.remote().result() for each in handles]


EXPECTED = [1, 2]
