"""What outlives a controller, in the cluster's key-value store: records, user code, and the counter of epochs. Never ranks.

Each number of a record has a key of its own, so that a put which comes late stands beside what is newer and never in its place
(`rankcore.cluster.records`). Releases before had one key for each deployment; what such a key has counts until the record has
been stored anew.

Every function blocks for a round trip to the store; the controller calls them from threads.
"""

import json
import logging
import pickle
import time
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

import attrs
from ray.experimental import internal_kv

from executors.maintenance import KINDS
from executors.ray_gpu import names
from executors.ray_gpu.extras import extras_of
from executors.ray_gpu.fence import newest_epoch
from executors.ray_gpu.user_code import Code
from executors.ray_gpu.worker.options import MemoryOptions
from rankcore.cluster.records import Record
from rankcore.codec import from_json, to_json
from rankcore.errors import RankcoreError
from rankcore.upgrade import upgraded

if TYPE_CHECKING:
    from executors.ray_gpu.proxies.options import ProxyOptions

LOG = logging.getLogger(__name__)


@attrs.frozen
class Found:
    """What a store has of one deployment.

    Attributes:
        id_on_ray: What its code, its replicas and what stands beside its record are called.
        record: The newest; None: it cannot be read.
        problem: Why; "": it can.
    """

    id_on_ray: str
    record: Record | None
    problem: str = ""


@attrs.frozen
class Checkpoint:
    """The store of one namespace."""

    namespace: str

    def raise_fence(self) -> int:
        """Claim the next epoch. From now on no replica of an older one comes up, and none obeys an older controller."""
        epoch = newest_epoch(self.namespace) + 1
        while _put(names.epoch_key(self.namespace, epoch), b"", overwrite=False):
            epoch += 1  # another controller was faster
        for key in _list(names.epoch_prefix(self.namespace)):
            if key < names.epoch_key(self.namespace, epoch):
                _delete(key)
        return epoch

    def origin(self) -> float:
        """When the clock of all epochs stood at 0, in seconds since 1970."""
        _put(names.origin_key(self.namespace), repr(time.time()).encode(), overwrite=False)
        kept = _get(names.origin_key(self.namespace))
        assert kept is not None, "the origin has just been put"
        return float(kept)

    def records(self, before_epoch: int) -> list[Found]:
        """The newest of every deployment, those of deployments that are gone included.

        Args:
            before_epoch: Of the controller that reads: a record of that epoch or a later one is nobody's.
        """
        older = names.older_records_prefix(self.namespace)
        keys = {key[len(older) :].decode(): key for key in _list(older)}
        for key in _list(names.records_prefix(self.namespace)):  # in the order of their numbers
            keys[self._whose(key)] = key
        found = (self._found(name, key, before_epoch) for name, key in sorted(keys.items()))
        return [each for each in found if each.record is not None or each.problem]

    def _whose(self, key: bytes) -> str:
        return key.decode().removeprefix(names.records_prefix(self.namespace).decode()).rpartition("#")[0]

    def _found(self, name: str, key: bytes, before_epoch: int) -> Found:
        text = _get(key)
        if text is None:  # deleted since
            return Found(name, None)
        try:
            record = from_json(upgraded(text.decode()), Record)
            id_on_ray = extras_of(record.applied).id_on_ray or record.deployment
        except (RankcoreError, UnicodeDecodeError) as error:
            return Found(name, None, f"its record cannot be read: {error}")
        if name != id_on_ray:
            return Found(name, None, f"its record is one of {id_on_ray}")
        if record.epoch >= before_epoch:
            return Found(name, None, f"its record is of epoch {record.epoch}, and this is epoch {before_epoch}")
        return Found(name, record)

    def put_record(self, record: Record) -> None:
        """Store a record. Those of its deployment that have smaller numbers go, now that there is this one."""
        id_on_ray = extras_of(record.applied).id_on_ray or record.deployment
        key = names.record_key(self.namespace, id_on_ray, record.number)
        _put(key, to_json(record).encode(), overwrite=True)
        self._forget_records(id_on_ray, key)
        _delete(names.older_record_key(self.namespace, id_on_ray))

    def _forget_records(self, id_on_ray: str, before: bytes | None = None) -> None:
        for key in _list(names.record_prefix(self.namespace, id_on_ray)):
            if self._whose(key) == id_on_ray and (before is None or key < before):
                _delete(key)

    def put_code(self, code: Code) -> None:
        """Store one version of a deployment's code."""
        _put(names.code_key(self.namespace, code.deployment, code.version), pickle.dumps(code, 5), overwrite=True)

    def code(self, deployment: str, version: str) -> Code | None:
        """One version of a deployment's code; None: it is not there, or cannot be read: no replica of it comes up."""
        packed = _get(names.code_key(self.namespace, deployment, version))
        try:
            return pickle.loads(packed) if packed is not None else None
        except Exception:  # whatever unpickling raises; else the store were taken for one that does not answer
            LOG.exception("the code of version %s of %s cannot be read", version, deployment)
            return None

    def put_proxies(self, options: "ProxyOptions | None") -> None:
        """Store what proxies are to serve; None: there are to be none."""
        if options is None:
            _delete(names.proxies_key(self.namespace))
        else:
            _put(names.proxies_key(self.namespace), json.dumps(attrs.asdict(options)).encode(), overwrite=True)

    def proxies(self) -> "ProxyOptions | None":
        """What proxies are to serve; None: there are to be none, or what is stored cannot be read."""
        kept = _get(names.proxies_key(self.namespace))
        if kept is None:
            return None
        from executors.ray_gpu.proxies.options import ProxyOptions  # which nobody else wants where there are no proxies

        try:
            return ProxyOptions.of(json.loads(kept))
        except (ValueError, KeyError, TypeError, RankcoreError):
            LOG.exception("what proxies are to serve cannot be read, so there are none: start(http_options=...) says it anew")
            return None

    def put_deployed(self, times: Mapping[str, float]) -> None:
        """Store when applications were deployed last, in seconds since 1970."""
        _put(names.deployed_key(self.namespace), json.dumps(dict(times)).encode(), overwrite=True)

    def deployed(self) -> dict[str, float]:
        """When they were, by name; nothing where it cannot be read: it is only shown."""
        kept = _get(names.deployed_key(self.namespace))
        try:
            return {str(name): float(at) for name, at in json.loads(kept).items()} if kept is not None else {}
        except (ValueError, TypeError, AttributeError):
            LOG.exception("when applications were deployed cannot be read")
            return {}

    def forget_deployed(self) -> None:
        """Nobody has deployed anything."""
        _delete(names.deployed_key(self.namespace))

    def put_memory(self, options: MemoryOptions) -> None:
        """Store which memory of nodes weights may use."""
        _put(names.memory_key(self.namespace), json.dumps(attrs.asdict(options)).encode(), overwrite=True)

    def memory(self) -> MemoryOptions:
        """Which memory of nodes weights may use, by default where nobody has said so."""
        kept = _get(names.memory_key(self.namespace))
        try:
            return MemoryOptions(**json.loads(kept)) if kept is not None else MemoryOptions()
        except (ValueError, KeyError, TypeError, RankcoreError):
            LOG.exception("which memory weights may use cannot be read, so it is as by default: start(memory=...) says it anew")
            return MemoryOptions()

    def forget_memory(self) -> None:
        """Nobody has said which memory weights may use, and no planner has failed."""
        _delete(names.memory_key(self.namespace))
        self.planner_failures(since=float("inf"))

    def maintenance(self) -> list[tuple[str, str | None, bytes]]:
        """What users have asked of nodes and replicas: each with what it is stored as, its key, and its text."""
        found = ((key, _get(key)) for key in self._maintenance_keys())
        start = len(names.maintenance_key(self.namespace, ""))
        return [(f"what is stored as {key.decode()}", key[start:].decode(), text) for key, text in found if text is not None]

    def put_maintenance(self, texts: Mapping[str, str], changed: Collection[str]) -> None:
        """Store those that have changed; what has no text any more is deleted."""
        for each in changed:
            key = names.maintenance_key(self.namespace, each)
            if each in texts:
                _put(key, texts[each].encode(), overwrite=True)
            else:
                _delete(key)

    def forget_maintenance(self) -> None:
        """Nobody has asked anything of a node or a replica."""
        for key in self._maintenance_keys():
            _delete(key)

    def _maintenance_keys(self) -> list[bytes]:
        return [key for kind in KINDS for key in _list(names.maintenance_key(self.namespace, kind))]

    def put_planner_failure(self, at: float) -> None:
        """Store that a controller ends because the planner of weights has failed, at a time of all epochs' clock."""
        _put(names.planner_failure_key(self.namespace, at), b"", overwrite=True)

    def planner_failures(self, since: float) -> list[float]:
        """When that was; what is older than `since` is forgotten."""
        prefix = names.planner_failures_prefix(self.namespace)
        found = {key: float(key[len(prefix) :]) for key in _list(prefix)}
        for key, at in found.items():
            if at < since:
                _delete(key)
        return sorted(at for at in found.values() if at >= since)

    def versions(self, deployment: str) -> list[str]:
        """Those of which the code is stored: of all that may be started or run."""
        prefix = names.code_prefix(self.namespace, deployment)
        return [key[len(prefix) :].decode() for key in _list(prefix)]

    def drop_code(self, deployment: str, keep: frozenset[str]) -> None:
        """Forget the versions that nobody will start again."""
        for version in self.versions(deployment):
            if version not in keep:
                _delete(names.code_key(self.namespace, deployment, version))
                _delete(names.root_key(self.namespace, deployment, version))

    def forget(self, id_on_ray: str) -> None:
        """Forget all of a deployment that is deleted but its record, which says so to whoever finds an older one."""
        self.drop_code(id_on_ray, frozenset())
        _delete(names.meeting_key(self.namespace, id_on_ray))

    def forget_record(self, id_on_ray: str) -> None:
        """Forget also its record: there is nobody who could find an older one."""
        self._forget_records(id_on_ray)
        _delete(names.older_record_key(self.namespace, id_on_ray))


def _put(key: bytes, value: bytes, *, overwrite: bool) -> bool:
    """Returns whether the key was there already."""
    return bool(internal_kv._internal_kv_put(key, value, overwrite=overwrite, namespace=names.KV_NAMESPACE))


def _get(key: bytes) -> bytes | None:
    value: bytes | None = internal_kv._internal_kv_get(key, namespace=names.KV_NAMESPACE)
    return value


def _list(prefix: bytes) -> list[bytes]:
    return sorted(internal_kv._internal_kv_list(prefix, namespace=names.KV_NAMESPACE))


def _delete(key: bytes) -> None:
    internal_kv._internal_kv_del(key, namespace=names.KV_NAMESPACE)
