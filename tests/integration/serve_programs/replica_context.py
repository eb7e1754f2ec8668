"""A replica asks who it is: application, deployment, rank among how many, and an id of its own."""

from ray import serve


@serve.deployment(num_replicas=2)
class Who:
    def __call__(self) -> list:
        context = serve.get_replica_context()
        of = context.replica_id.deployment_id
        same = context.replica_id.unique_id == context.replica_tag
        own = context.servable_object is self
        return [context.app_name, context.deployment, of.name, of.app_name, same, own, context.world_size, context.gang_context]

    def rank(self) -> int:
        return serve.get_replica_context().rank.rank


def main() -> object:
    handle = serve.run(Who.bind(), name="app", route_prefix=None)
    return [handle.remote().result(), sorted(handle.broadcast("rank").results())]


EXPECTED = [["app", "Who", "Who", "app", True, True, 2, None], [0, 1]]
