"""What all workers of a version agree on: the root of the weights that the first of them has read, in the cluster's store."""

from ray.experimental import internal_kv

from executors.ray_gpu import names


class AgreedRoot:
    """Of one version of a deployment. Every function blocks for a round trip, and raises while the store is away.

    It is forgotten with the code of the version (`checkpoint.Checkpoint.drop_code`).
    """

    def __init__(self, namespace: str, deployment: str, version: str) -> None:
        self._key = names.root_key(namespace, deployment, version)

    def root(self) -> str | None:
        """See `executors.torch_weights.roots.Agreement`."""
        found: bytes | None = internal_kv._internal_kv_get(self._key, namespace=names.KV_NAMESPACE)
        return None if found is None else found.decode()

    def settle(self, root: str) -> str:
        """The same."""
        internal_kv._internal_kv_put(self._key, root.encode(), overwrite=False, namespace=names.KV_NAMESPACE)
        return self.root() or root  # gone again: the version is, too
