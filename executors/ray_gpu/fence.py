"""The fence: the epochs that controllers have claimed in the cluster's store. Who is of an older one does not come up."""

from ray.experimental import internal_kv

from executors.ray_gpu import names


def newest_epoch(namespace: str) -> int:
    """The epoch of the newest controller. Blocks for a round trip."""
    claimed = internal_kv._internal_kv_list(names.epoch_prefix(namespace), namespace=names.KV_NAMESPACE)
    return max((int(key.rpartition(b"/")[2]) for key in claimed), default=0)
