"""A new `user_config` reaches the replica that runs, without another `__init__`."""

from ray import serve


@serve.deployment(user_config={"limit": 1})
class Limit:
    def __init__(self) -> None:
        self.seen = []

    def reconfigure(self, config: dict) -> None:
        self.seen.append(config["limit"])

    def __call__(self) -> list:
        return self.seen


def main() -> object:
    serve.run(Limit.bind(), route_prefix=None)
    handle = serve.run(Limit.options(user_config={"limit": 2}).bind(), route_prefix=None)
    seen = handle.remote().result()
    return [1 in seen, seen[-1]]


EXPECTED = [True, 2]
IN_RAY_SERVE = [False, 2]
WHY = "another `run` replaces the replicas there, whatever has changed; here what needs no other replica keeps them"
