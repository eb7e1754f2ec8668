"""What outlives the controller of a fleet, in the cluster's key-value store: its epoch, its options, its models, its state.

Every function blocks for a round trip to the store.
"""

import time

import attrs
from ray.experimental import internal_kv

from executors.ray_gpu.names import KV_NAMESPACE


@attrs.frozen
class FleetStore:
    """The store of one namespace."""

    namespace: str

    def raise_epoch(self) -> int:
        """Claim the next epoch."""
        epoch = int(self.get("epoch") or 0) + 1
        self.put("epoch", str(epoch).encode())
        return epoch

    def origin(self) -> float:
        """When the clock of all its controllers stood at 0, in seconds since 1970."""
        if self.get("origin") is None:
            self.put("origin", repr(time.time()).encode())
        return float(self.get("origin") or 0.0)

    def get(self, key: str) -> bytes | None:
        """What is kept under a key; None: nothing."""
        found: bytes | None = internal_kv._internal_kv_get(self._full(key), namespace=KV_NAMESPACE)
        return found

    def put(self, key: str, value: bytes) -> None:
        """Keep it, in place of what was kept."""
        internal_kv._internal_kv_put(self._full(key), value, overwrite=True, namespace=KV_NAMESPACE)

    def models(self) -> dict[str, bytes]:
        """The models that were deployed, as they were packed, by name."""
        prefix = self._full("model/")
        keys: list[bytes] = internal_kv._internal_kv_list(prefix, namespace=KV_NAMESPACE)
        found = {key[len(prefix) :].decode(): self.get(f"model/{key[len(prefix) :].decode()}") for key in keys}
        return {name: packed for name, packed in found.items() if packed is not None}

    def forget(self) -> None:
        """Remove everything."""
        for key in internal_kv._internal_kv_list(self._full(""), namespace=KV_NAMESPACE):
            internal_kv._internal_kv_del(key, namespace=KV_NAMESPACE)

    def _full(self, key: str) -> bytes:
        return f"{self.namespace}/fleet/{key}".encode()
