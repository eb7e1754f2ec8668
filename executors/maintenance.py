"""What operators have asked of nodes and replicas, kept across controllers: cordons, drains, and replacements by name.

The machine keeps none of it over a crash. So each request is stored before the machine is told, and the next controller tells
it again. There is one for each node and for each replica, the last one, with a key that says of whom it is. A store has a text
for each key: on Ray a key of the cluster's store, with local processes a line of one file. Those of an older release are
upgraded.

What cannot be read is left out, and the log says what to do: it must not end a controller, which would meet it again.
"""

import logging
from collections.abc import Collection, Iterable, Mapping
from threading import Lock
from typing import Protocol, TypeAlias, cast

import attrs

from rankcore.cluster.state import ClusterState
from rankcore.codec import from_json, to_json
from rankcore.errors import CodecError, RankcoreError, shown
from rankcore.events import NodeCordoned, NodeDrainRequested, ReplaceRequested
from rankcore.upgrade import upgraded
from rankcore.values import NodeId, ReplicaId

LOG = logging.getLogger(__name__)

Cordon: TypeAlias = NodeCordoned | NodeDrainRequested
Request: TypeAlias = NodeCordoned | NodeDrainRequested | ReplaceRequested

CORDON, REPLACEMENT = KINDS = "cordon/", "replacement/"
"""How the keys of each kind begin."""


class Store(Protocol):
    """Where the texts are. Both methods may block, and raise what their store raises."""

    def maintenance(self) -> Iterable[tuple[str, str | None, bytes]]:
        """All texts, each with where it was found, for people, and with its key; None: it is stored without."""

    def put_maintenance(self, texts: Mapping[str, str], changed: Collection[str]) -> None:
        """Store texts by their keys. What is not among `changed` is stored already; a changed one that has no text goes."""


class Maintenance:
    """The requests that count, by key. Threads may share it.

    Attributes:
        requests: Only this class sets it, to another dict.
    """

    def __init__(self, store: Store) -> None:
        self.requests: dict[str, Request] = {}
        self._store = store
        self._lock = Lock()

    @property
    def cordons(self) -> dict[NodeId, Cordon]:
        """By node; one that is not here is open."""
        return {each.node_id: each for each in self.requests.values() if not isinstance(each, ReplaceRequested)}

    @property
    def replacements(self) -> dict[ReplicaId, ReplaceRequested]:
        """By replica."""
        return {each.replica_ids[0]: each for each in self.requests.values() if isinstance(each, ReplaceRequested)}

    def read(self) -> None:
        """Learn what was asked of earlier controllers."""
        found = {}
        for where, key, text in self._store.maintenance():
            try:
                request = cast(Request, from_json(upgraded(text.decode()), Request))
                if key not in (None, key_of(request)):
                    raise CodecError(f"its key must be {shown(key_of(request))}, got {shown(key)}")
                found[key_of(request)] = request
            except (RankcoreError, UnicodeDecodeError) as error:
                LOG.error("%s cannot be read, so it is left out: %s; cordon, drain or replace that again", where, error)
        self.requests = found

    def ask(self, request: Request) -> None:
        """One more counts, for each replica of it by itself. It is stored when this returns, or nothing has changed.

        Raises:
            Exception: Whatever the store raises.
        """
        if isinstance(request, ReplaceRequested):
            each_alone = [attrs.evolve(request, replica_ids=(each,)) for each in request.replica_ids]
            self._change({key_of(each): each for each in each_alone}, ())
        else:
            self._change({key_of(request): request}, ())

    def forget(self, nodes: Iterable[NodeId] = (), replicas: Iterable[ReplicaId] = ()) -> None:
        """What was asked of these does not count any more.

        Raises:
            Exception: Whatever the store raises.
        """
        self._change({}, {*(CORDON + each for each in nodes), *(REPLACEMENT + each for each in replicas)})

    def gone(self, state: ClusterState) -> set[ReplicaId]:
        """The replicas that are to be replaced, and that a machine does not know, or cannot replace by name any more."""
        there = (each.ranks.replicas for each in state.deployments.values() if each.residency is None)
        return set(self.replacements).difference(*there)

    def _change(self, asked: dict[str, Request], over: Collection[str]) -> None:
        with self._lock:
            kept = {key: request for key, request in self.requests.items() if key not in over} | asked
            changed = [key for key in kept | self.requests if kept.get(key) != self.requests.get(key)]
            if changed:
                self._store.put_maintenance({key: to_json(request) for key, request in kept.items()}, changed)
            self.requests = kept


def key_of(request: Request) -> str:
    """Of whom it is.

    Raises:
        CodecError: It is not of one replica.
    """
    if not isinstance(request, ReplaceRequested):
        return CORDON + request.node_id
    if len(request.replica_ids) != 1:
        raise CodecError(f"replica_ids must be of one replica, got {shown(request.replica_ids)}")
    return REPLACEMENT + request.replica_ids[0]


def says_more(event: Cordon, known: Cordon | None) -> bool:
    """Whether this counts beside what was said before of its node: a cordon takes nothing of a drain back."""
    return isinstance(event, NodeDrainRequested) or not isinstance(known, NodeDrainRequested)
