"""A user's own request routers, under the names that they have in `ray.serve.request_router`.

    class Uniform(RequestRouter):
        async def choose_replicas(self, candidate_replicas, pending_request=None):
            return [[random.choice(candidate_replicas)]]

    @serve.deployment(request_router_config=RequestRouterConfig(request_router_class=Uniform))

One of each deployment lives in each process that calls it, on the thread of the routers: it says who may have a request, and
the routing core gives it to the first of these that has room (docs/routing.md). What it is asked must not block.
"""

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any

import attrs

from executors.ray_gpu.context import DeploymentID, ReplicaID

__all__ = [
    "FIFOMixin",
    "LocalityMixin",
    "MultiplexMixin",
    "PendingRequest",
    "ReplicaID",
    "RequestRouter",
    "RunningReplica",
]

INITIAL_BACKOFF_S, BACKOFF_MULTIPLIER, MAX_BACKOFF_S = 0.025, 2.0, 0.5


@attrs.define(kw_only=True)
class RequestMetadata:
    """What is known of a request besides its arguments.

    Attributes:
        request_id: As whoever calls has called it, or made up; may be that of several.
        internal_request_id: Of this call alone, in this process.
        call_method: Of the user's class.
        route: Of an HTTP request; "": it is none.
        app_name: Of the application that is called.
        multiplexed_model_id: The model that is asked for; "": none.
        session_id: Of the session, or the key; "": none.
        is_streaming: Whether the items of the answer are wanted one by one.
    """

    request_id: str = ""
    internal_request_id: str = ""
    call_method: str = "__call__"
    route: str = ""
    app_name: str = ""
    multiplexed_model_id: str = ""
    session_id: str = ""
    is_streaming: bool = False

    @property
    def is_http_request(self) -> bool:
        """Whether it has come by HTTP."""
        return bool(self.route)


@attrs.define
class RoutingContext:
    """How far a request has been proposed for, by the mixins.

    Attributes:
        tried_same_node, tried_same_az: Whether those of the node, and of its zone, were proposed.
        tried_first_multiplexed_models, tried_fewest_multiplexed_models: Whether those that have its model were, and those that
            have the fewest.
        should_backoff: Whether the next ones are to be proposed after a while, and not at once.
    """

    tried_same_node: bool = False
    tried_same_az: bool = False
    tried_first_multiplexed_models: bool = False
    tried_fewest_multiplexed_models: bool = False
    should_backoff: bool = False


class PendingRequest:
    """A request for which a replica is wanted.

    Attributes:
        metadata: What is known of it.
        created_at: When it came, in seconds since 1970.
        routing_context: Of the mixins.
    """

    def __init__(
        self,
        args: Any = (),
        kwargs: Mapping[Any, Any] | None = None,
        metadata: RequestMetadata | None = None,
        created_at: float | None = None,
        unpack: Callable[[], tuple[Any, Any]] | None = None,
    ) -> None:
        self.metadata = metadata if metadata is not None else RequestMetadata()
        self.created_at = time.time() if created_at is None else created_at
        self.routing_context = RoutingContext()
        self._unpack = unpack
        self._arguments: tuple[Any, Any] | None = None if unpack is not None else (list(args), dict(kwargs or {}))

    @property
    def args(self) -> list[Any]:
        """Its arguments, by position: a copy of them, which is made when it is asked for."""
        return self._both[0]  # type: ignore[no-any-return]

    @property
    def kwargs(self) -> dict[Any, Any]:
        """Likewise by name."""
        return self._both[1]  # type: ignore[no-any-return]

    @property
    def _both(self) -> tuple[Any, Any]:
        if self._arguments is None:
            assert self._unpack is not None
            args, kwargs = self._unpack()
            self._arguments = (list(args), dict(kwargs))
        return self._arguments


class RunningReplica:
    """A replica that takes requests, as a router sees it.

    Attributes:
        replica_id: Its id.
        node_id: Where it is, as Ray names the node.
        availability_zone: None: nobody says.
        max_ongoing_requests: How many requests it takes at once, from all callers.
        multiplexed_model_ids: The models that it has, as it has said last.
        routing_stats: What its `record_routing_stats` has returned last.
        replica_metadata: What its `record_replica_metadata` has returned, once.
        is_cross_language: No.
    """

    availability_zone: str | None = None
    is_cross_language = False

    def __init__(self, replica_id: str, node_id: str = "", find_actor: Callable[[], Any] | None = None) -> None:
        self.replica_id = ReplicaID(replica_id)
        self.node_id = node_id
        self.max_ongoing_requests = 1
        self.multiplexed_model_ids: set[str] = set()
        self.routing_stats: dict[str, Any] = {}
        self.replica_metadata: dict[str, Any] = {}
        self._find_actor = find_actor
        self._load: Callable[[str], int] = _nothing
        self._has_room: Callable[[str], bool] = _always

    @property
    def actor_id(self) -> Any:
        """Of its process, as Ray names it."""
        assert self._find_actor is not None, "it was made without"
        return self._find_actor()._actor_id

    async def get_queue_len(self, *, deadline_s: float | None = None) -> int:
        """How many requests of this process it has; nobody has to be asked."""
        return self._load(self.replica_id)

    def says(self, said: Mapping[str, Any]) -> None:
        """It has said what it has."""
        self.multiplexed_model_ids = set(said.get("models", ()))
        self.routing_stats = dict(said.get("stats", {}))
        self.replica_metadata = dict(said.get("metadata") or {})

    def __repr__(self) -> str:
        return f"RunningReplica({str(self.replica_id)!r})"


def _nothing(_: str) -> int:
    return 0


def _always(_: str) -> bool:
    return True


class QueueLengths:
    """How many requests of this process each replica has. Nothing of it is a cache: the router counts them."""

    def __init__(self, replicas: Mapping[str, RunningReplica]) -> None:
        self._replicas = replicas

    def get(self, replica_id: str) -> int | None:
        """Of one; None: it is not known."""
        replica = self._replicas.get(replica_id)
        return None if replica is None else replica._load(replica_id)

    def update(self, replica_id: str, queue_len: int) -> None:
        """It is counted, whatever is said."""

    def invalidate_key(self, replica_id: str) -> None:
        """Likewise."""


class RequestRouter(ABC):
    """Says who may have a request. To be derived from; `choose_replicas` has to be there, the rest may be.

    Attributes:
        initial_backoff_s, backoff_multiplier, max_backoff_s: After how long it is asked again about a request that nobody of
            those that it has named could take: at first, how many times as long each time, and at most.
        max_num_routing_tasks_cap: For how many requests it is asked at once, at most.
    """

    max_num_routing_tasks_cap = 50

    def __init__(
        self,
        deployment_id: DeploymentID,
        handle_source: Any = None,
        self_actor_id: str | None = None,
        self_actor_handle: Any = None,
        use_replica_queue_len_cache: bool = False,
        get_curr_time_s: Callable[[], float] | None = None,
        create_replica_wrapper_func: Any = None,
        initial_backoff_s: float = INITIAL_BACKOFF_S,
        backoff_multiplier: float = BACKOFF_MULTIPLIER,
        max_backoff_s: float = MAX_BACKOFF_S,
        *_: Any,
        **__: Any,
    ) -> None:
        self._deployment_id = deployment_id
        self._handle_source = handle_source
        self.initial_backoff_s = initial_backoff_s
        self.backoff_multiplier = backoff_multiplier
        self.max_backoff_s = max_backoff_s
        self._replicas: dict[ReplicaID, RunningReplica] = {}
        self._replicas_list: list[RunningReplica] = []
        self._replica_id_set: set[ReplicaID] = set()
        self._pending_count: Callable[[], int] = lambda: 0

    def initialize_state(self, **kwargs: Any) -> None:  # noqa: B027
        """Begin, with the deployment's `request_router_kwargs`."""

    @abstractmethod
    async def choose_replicas(
        self, candidate_replicas: list[RunningReplica], pending_request: PendingRequest | None = None
    ) -> list[list[RunningReplica]]:
        """Who may have a request: groups, the preferred ones first.

        Args:
            candidate_replicas: All that take requests, whether they have room or not.
            pending_request: The request.

        Returns:
            The first group in which anybody has room gets it, and of that who has fewest. If nobody has, whoever of them has
            room first; and this is asked again after a while. Nobody at all: only the latter.
        """

    def on_request_routed(self, pending_request: PendingRequest, replica_id: ReplicaID, result: Any) -> None:  # noqa: B027
        """A request was sent to a replica; `result` is what will have its answer."""

    def on_request_completed(self, replica_id: ReplicaID, internal_request_id: str) -> None:  # noqa: B027
        """It has ended there, well or not."""

    def on_replica_actor_died(self, replica_id: ReplicaID) -> None:
        """A replica is dead."""
        self.update_replicas([each for each in self._replicas_list if each.replica_id != replica_id])

    def on_replica_actor_unavailable(self, replica_id: ReplicaID) -> None:  # noqa: B027
        """A replica cannot be reached at the moment."""

    def on_new_queue_len_info(self, replica_id: ReplicaID, num_ongoing_requests: int) -> None:  # noqa: B027
        """What a replica has is known anew; here it is counted."""

    def on_send_request(self, replica_id: ReplicaID) -> None:  # noqa: B027
        """A request is about to be sent."""

    def decrement_queue_len_cache(self, replica_id: ReplicaID) -> None:  # noqa: B027
        """A replica has one fewer; here it is counted."""

    def update_replicas(self, replicas: list[RunningReplica]) -> None:
        """These take requests from now on, and no others; or they have said something."""
        self._replicas = {each.replica_id: each for each in replicas}
        self._replicas_list = list(self._replicas.values())
        self._replica_id_set = set(self._replicas)

    def update_backoff_params(
        self, initial_backoff_s: float | None, backoff_multiplier: float | None, max_backoff_s: float | None
    ) -> None:
        """Ask again after another while."""
        self.initial_backoff_s = self.initial_backoff_s if initial_backoff_s is None else initial_backoff_s
        self.backoff_multiplier = self.backoff_multiplier if backoff_multiplier is None else backoff_multiplier
        self.max_backoff_s = self.max_backoff_s if max_backoff_s is None else max_backoff_s

    def select_available_replicas(self, candidates: list[RunningReplica] | None = None) -> list[RunningReplica]:
        """Those that have room, for this process."""
        return [each for each in (self._replicas_list if candidates is None else candidates) if each._has_room(each.replica_id)]

    @property
    def curr_replicas(self) -> dict[ReplicaID, RunningReplica]:
        """Those that take requests."""
        return self._replicas

    @property
    def replica_queue_len_cache(self) -> QueueLengths:
        """How many requests of this process each of them has."""
        return QueueLengths({str(name): each for name, each in self._replicas.items()})

    @property
    def app_name(self) -> str:
        """Of the application of the deployment."""
        return self._deployment_id.app_name

    @property
    def num_pending_requests(self) -> int:
        """How many requests wait."""
        return self._pending_count()

    @property
    def max_num_routing_tasks(self) -> int:
        """For how many of them it is asked at once, at most."""
        return min(self.max_num_routing_tasks_cap, 2 * len(self._replicas))

    @property
    def target_num_routing_tasks(self) -> int:
        """For how many now."""
        return min(self.num_pending_requests, self.max_num_routing_tasks)

    @property
    def supports_rejection_protocol(self) -> bool:
        """Whether a replica may refuse what it is sent."""
        return True


class FIFOMixin:
    """Requests in their order. It is so in any case: of those that wait for one replica the oldest goes first."""


class LocalityScope(StrEnum):
    """How near a replica is."""

    NODE = "NODE"
    AVAILABILITY_ZONE = "AVAILABILITY_ZONE"


class LocalityMixin:
    """Proposes those first that are near."""

    def __init__(
        self,
        self_node_id: str | None = None,
        prefer_local_node_routing: bool = False,
        prefer_local_az_routing: bool = False,
        self_availability_zone: str | None = None,
        *args: Any,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self._self_node_id = self_node_id
        self._self_availability_zone = self_availability_zone
        self._prefer_local_node_routing = prefer_local_node_routing
        self._prefer_local_az_routing = prefer_local_az_routing
        self._colocated_replica_ids: dict[LocalityScope, set[ReplicaID]] = {scope: set() for scope in LocalityScope}

    def update_replicas(self, replicas: list[RunningReplica]) -> None:
        """Likewise; and these of them are near."""
        super().update_replicas(replicas)  # type: ignore[misc] # of the router that it is mixed into
        node, zone = self._self_node_id, self._self_availability_zone
        self._colocated_replica_ids = {
            LocalityScope.NODE: {each.replica_id for each in replicas if node is not None and each.node_id == node},
            LocalityScope.AVAILABILITY_ZONE: {
                each.replica_id for each in replicas if zone is not None and each.availability_zone == zone
            },
        }

    def apply_locality_routing(self, pending_request: PendingRequest | None = None) -> set[ReplicaID]:
        """Those of the node at first, where that is preferred, then those of the zone, then all."""
        everybody: set[ReplicaID] = self._replica_id_set  # type: ignore[attr-defined]
        if pending_request is None:
            return everybody
        context = pending_request.routing_context
        context.should_backoff = False
        on_node, in_zone = (self._colocated_replica_ids[scope] for scope in LocalityScope)
        if self._prefer_local_node_routing and not context.tried_same_node and on_node:
            context.tried_same_node = True
            return on_node
        if self._prefer_local_az_routing and not context.tried_same_az and in_zone:
            context.tried_same_az = True
            return in_zone
        context.should_backoff = True
        return everybody

    def rank_replicas_via_locality(self, replicas: list[RunningReplica]) -> list[list[RunningReplica]]:
        """Those of the node, those of the zone, and the others."""
        on_node, in_zone = (self._colocated_replica_ids[scope] for scope in LocalityScope)
        ranked: list[list[RunningReplica]] = [[], [], []]
        for each in replicas:
            ranked[0 if each.replica_id in on_node else 1 if each.replica_id in in_zone else 2].append(each)
        return ranked


class MultiplexMixin:
    """Proposes those first that have the model which is asked for."""

    _replicas: dict[ReplicaID, RunningReplica]

    def apply_multiplex_routing(self, pending_request: PendingRequest | None = None) -> set[ReplicaID]:
        """Those that have the model at first, then those that have the fewest models, then all."""
        if pending_request is None:
            return set(self._replicas)
        context, model_id = pending_request.routing_context, pending_request.metadata.multiplexed_model_id
        context.should_backoff = False
        having_it = {name for name, each in self._replicas.items() if model_id in each.multiplexed_model_ids}
        if having_it and not context.tried_first_multiplexed_models:
            context.tried_first_multiplexed_models = True
            return having_it
        if not context.tried_fewest_multiplexed_models:
            context.tried_first_multiplexed_models = context.tried_fewest_multiplexed_models = True
            return self._with_fewest_models()
        context.should_backoff = True
        return set(self._replicas)

    def rank_replicas_via_multiplex(
        self, replicas: list[RunningReplica], multiplexed_model_id: str
    ) -> list[list[RunningReplica]]:
        """Those that have the model, those that have the fewest models, and the others."""
        fewest = self._with_fewest_models()
        ranked: list[list[RunningReplica]] = [[], [], []]
        for each in replicas:
            has_it = multiplexed_model_id in each.multiplexed_model_ids
            ranked[0 if has_it else 1 if each.replica_id in fewest else 2].append(each)
        return ranked

    def _with_fewest_models(self) -> set[ReplicaID]:
        least = min((len(each.multiplexed_model_ids) for each in self._replicas.values()), default=math.inf)
        return {name for name, each in self._replicas.items() if len(each.multiplexed_model_ids) == least}
