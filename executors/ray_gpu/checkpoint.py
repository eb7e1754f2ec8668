"""What outlives a controller, in the cluster's key-value store: specs, user code, and the counter of epochs. Never ranks.

Every function blocks for a round trip to the store; the controller calls them from threads.
"""

import json
import logging
import pickle
import time

import attrs
from ray.experimental import internal_kv

from executors.deployment_ids import as_application
from executors.ray_gpu import names
from executors.ray_gpu.declaration import ROUTING_DEFAULTS
from executors.ray_gpu.proxies.options import ProxyOptions
from executors.ray_gpu.replica import newest_epoch
from executors.ray_gpu.scaling_policy import PolicySource
from executors.ray_gpu.user_code import Code
from rankcore import DeploymentSpec
from rankcore.autoscaling import AutoscalingSpec
from rankcore.codec import from_json, to_json
from rankcore.errors import RankcoreError
from rankcore.routing import RoutingSpec
from rankcore.upgrade import upgraded

LOG = logging.getLogger(__name__)


@attrs.frozen(kw_only=True)
class Record:
    """One deployment's checkpoint.

    Attributes:
        spec: In force.
        previous: The last spec that was ever healthy.
        deleting: Whether it is to go.
        failed: Whether it was DEPLOY_FAILED.
        trouble: Why it was; "": it was not.
        class_name: Module and qualified name of what was deployed.
        app_name: Of its application; one of before such names were bounded is read as one that they allow.
        spares: How many started processes stand by.
        routing: How its calls are routed.
        route_prefix: Under which path HTTP requests reach it; None: none do.
        autoscaling: How the target follows the load; None: it does not.
        scaling_policy: What of the user's decides how many replicas a load calls for; None: the usual policy does.
        is_ingress: Whether it is the one of its application that requests from outside go to.
    """

    __stored__ = True

    spec: DeploymentSpec
    previous: DeploymentSpec | None = None
    deleting: bool = False
    failed: bool = False
    trouble: str = ""
    class_name: str
    app_name: str = attrs.field(converter=as_application)
    spares: int = 0
    routing: RoutingSpec = attrs.field(
        default=attrs.Factory(lambda self: RoutingSpec(name=self.spec.name, **ROUTING_DEFAULTS), takes_self=True)
    )
    route_prefix: str | None = None
    is_ingress: bool = False
    autoscaling: AutoscalingSpec | None = None
    scaling_policy: PolicySource | None = None


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

    def records(self) -> dict[str, Record | str]:
        """All deployments, by name; text: why what is stored cannot be read, and its replicas are to be left alone."""
        prefix = names.record_prefix(self.namespace)
        found: dict[str, Record | str] = {}
        for key in _list(prefix):
            text, name = _get(key), key[len(prefix) :].decode()
            if text is None:
                continue  # deleted since
            try:
                found[name] = from_json(upgraded(text.decode()), Record)
            except (RankcoreError, UnicodeDecodeError) as error:
                found[name] = f"its record cannot be read: {error}"
        return found

    def put_record(self, record: Record) -> None:
        """Store one deployment."""
        _put(names.record_key(self.namespace, record.spec.name), to_json(record).encode(), overwrite=True)

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

    def put_proxies(self, options: ProxyOptions | None) -> None:
        """Store what proxies are to serve; None: there are to be none."""
        if options is None:
            _delete(names.proxies_key(self.namespace))
        else:
            _put(names.proxies_key(self.namespace), json.dumps(attrs.asdict(options)).encode(), overwrite=True)

    def proxies(self) -> ProxyOptions | None:
        """What proxies are to serve; None: there are to be none, or what is stored cannot be read."""
        kept = _get(names.proxies_key(self.namespace))
        try:
            return ProxyOptions.of(json.loads(kept)) if kept is not None else None
        except (ValueError, KeyError, TypeError, RankcoreError):
            LOG.exception("what proxies are to serve cannot be read, so there are none: start(http_options=...) says it anew")
            return None

    def drop_code(self, deployment: str, keep: frozenset[str]) -> None:
        """Forget the versions that nobody will start again."""
        prefix = names.code_prefix(self.namespace, deployment)
        for key in _list(prefix):
            if key[len(prefix) :].decode() not in keep:
                _delete(key)

    def forget(self, deployment: str) -> None:
        """Forget a deployment that is deleted."""
        self.drop_code(deployment, frozenset())
        _delete(names.meeting_key(self.namespace, deployment))
        _delete(names.record_key(self.namespace, deployment))


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
