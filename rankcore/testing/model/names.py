"""The names that a world gives to its replicas, nodes, revisions and moments: numbers that count only relative to others."""

from bisect import bisect_left
from collections.abc import Iterable
from typing import Any

from rankcore.commands import Command
from rankcore.events import (
    BundleLost,
    BundleRestored,
    Event,
    NodeChanged,
    NodeCordoned,
    NodeDrainRequested,
    NodeLost,
    ReplicaPlaced,
    ReplicaReported,
)
from rankcore.replica.beliefs import NEVER
from rankcore.testing.model.book import Book, age, instant_of
from rankcore.testing.model.world import RankWorld, is_of_readiness
from rankcore.values import NodeId

MARKS = (NodeLost, NodeChanged, NodeCordoned, NodeDrainRequested, BundleLost, BundleRestored)
TIMED = (*MARKS, ReplicaPlaced, ReplicaReported)
"""News of which it counts when it happened, before or after the marks; each of those has an instant of its own."""


class Names:
    """The names in one world.

    Attributes:
        book: Of the world's state.
        ids: Of replicas, by age. Those of the gone count while somebody mentions them.
        revisions, epochs: By order; the newest epoch is 0.
        nodes: In the order in which the controller came to know them, then the others; as they are, where more is on them than
            replicas.
        marks: Instants that news under way is before, at or after.
        hears: Whether it counts when a replica said that it is ready, or is not.
        losses: Of nodes, under way, the oldest first.
    """

    def __init__(self, world: RankWorld, book: Book) -> None:
        self.book = book
        mentioned, revisions, epochs = set(book.ids), {NEVER[1], 0, *book.revisions}, {book.state.epoch}
        for replica in world.replicas:
            mentioned.add(replica.replica_id)
            revisions.add(replica.stamp[1])
            if replica.waiting is not None and replica.running is not None:
                revisions.add(replica.running.revision)
            epochs.add(replica.epoch)
        for message in (*world.commands, *world.events):
            self._mention(message, mentioned, revisions, epochs)
        self.ids = numbered(sorted(mentioned, key=age))
        self.revisions = numbered(sorted(revisions))
        self.epochs = numbered(sorted(epochs, reverse=True))
        self.nodes = self._name_nodes(world, book)
        heard = [each for each in world.events if is_of_readiness(world, each)]
        timed = [*heard, *(each for each in world.events if isinstance(each, TIMED))]
        marks = {instant_of(each.at) for each in timed if isinstance(each, MARKS)}
        marks.update(instant_of(each.at) for each in heard)
        known = book.marks | book.heard if world.bounds.unreadies else book.marks
        if timed and known:
            first = min(instant_of(each.at) for each in timed)
            marks.update(instant for instant in known if instant >= first)
        self.marks = tuple(sorted(marks))
        self.hears = world.bounds.unreadies > 0
        losses = (event for event in timed if isinstance(event, NodeLost))
        self.losses = tuple((event.node_id, event.at) for event in sorted(losses, key=lambda event: event.at))

    def _name_nodes(self, world: RankWorld, book: Book) -> dict[NodeId, int]:
        if world.bundles or world.rooms or world.cordons:
            return numbered(world.bounds.node_ids)  # each is known by what is on it, also before the controller knows it
        nodes = numbered(book.nodes)
        others = [each.node_id for each in sorted(world.replicas, key=lambda each: self.ids[each.replica_id])]
        others += sorted(node_id for each in world.events if (node_id := getattr(each, "node_id", None)) is not None)
        for node_id in others:
            nodes.setdefault(node_id, len(nodes))
        return nodes

    def _mention(self, message: Command | Event, ids: set[str], revisions: set[int], epochs: set[int]) -> None:
        about, revision, epoch = (getattr(message, name, None) for name in ("replica_id", "revision", "epoch"))
        if about is not None:
            ids.add(about)
        if revision is not None:
            revisions.add(revision)
        if epoch is not None:
            epochs.add(epoch)

    def matter(self) -> tuple[object, ...]:
        """Those of the names that change how the state reads."""
        ids, revisions, book, named = self.ids, self.revisions, self.book, self.book.state.tables.named
        return (
            tuple([ids[each] for each in book.ids]),
            tuple([revisions[each] for each in book.revisions]),
            tuple([ids.get(each) for each in named]) if named else (),
            self.marks,
            self.losses,
        )

    def moment(self, at: float) -> int:
        """Where a moment is among the marks: odd, if it is one."""
        if at < 0.0 or not self.marks:
            return 0
        instant = instant_of(at)
        before = bisect_left(self.marks, instant)
        return 2 * before + (before < len(self.marks) and self.marks[before] == instant)


def numbered(names: Iterable[Any]) -> dict[Any, int]:
    """Each name's number, from 0."""
    return {name: number for number, name in enumerate(names)}
