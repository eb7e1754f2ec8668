"""Breadth first through all worlds of models within some bounds, each once, with a shortest path to what is broken."""

from collections.abc import Hashable, Iterator

import attrs
from msgspec.structs import replace

from rankcore.kernel import Violation
from rankcore.residency import Phase, Resident
from rankcore.testing.model_residency.bounds import Bounds
from rankcore.testing.model_residency.world import Move, World, fair, make, moves, root, until_waking

AT_REST = (Phase.RESTING, Phase.WAITING, Phase.SERVING)


@attrs.frozen(kw_only=True)
class Found:
    """What a search has come to.

    Attributes:
        bounds: Of the worlds.
        worlds: How many different ones there are.
        edges: How many moves were tried.
        depth: How many moves the longest of all shortest paths has.
        rest: How many moves without a fault the slowest world takes until nothing is left to do.
        broken: The promises that do not hold; empty when all do.
        path: A shortest path to there.
        complete: Whether all worlds were explored; else `worlds_max` was reached.
    """

    bounds: Bounds
    worlds: int
    edges: int
    depth: int
    rest: int = 0
    broken: tuple[Violation, ...] = ()
    path: tuple[Move, ...] = ()
    complete: bool = True


class _Search:
    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self.parents: dict[Hashable, tuple[Hashable, Move] | None] = {}
        self.leads: dict[Hashable, Hashable] = {}
        self.edges = 0
        self.depth = 0

    def explored(self, worlds_max: int) -> Found:
        begin = root(self.bounds)
        self.parents[canonical(begin)] = None
        level = [begin]
        while level and len(self.parents) <= worlds_max:
            following: list[World] = []
            for world in level:
                key = canonical(world)
                broken, path = self._expand(key, world, following)
                if broken:
                    return self._found(broken=broken, path=path)
            level = following
            self.depth += bool(level)
        rest, circle = self._longest_rest()
        if circle is not None:
            return self._found(broken=(Violation("T10", "nothing comes to rest"),), path=self._path(circle))
        return self._found(rest=rest, complete=not level)

    def _expand(self, key: Hashable, world: World, following: list[World]) -> tuple[tuple[Violation, ...], tuple[Move, ...]]:
        first = next(fair(world), None)
        if first is None and (unwell := tuple(at_rest(world))):
            return unwell, self._path(key)
        for move in moves(world):
            after, broken = make(world, move)
            self.edges += 1
            if broken:
                return broken, (*self._path(key), move)
            found = canonical(after)
            if found not in self.parents:
                self.parents[found] = (key, move)
                following.append(after)
            if move == first:
                self.leads[key] = found
        return (), ()

    def _longest_rest(self) -> tuple[int, Hashable | None]:
        """Following what has to happen: the longest way to rest, or a world from which there is none."""
        lengths: dict[Hashable, int] = {}
        for begin in self.leads:
            chain: dict[Hashable, None] = {}
            key = begin
            while key in self.leads and key not in lengths:
                if key in chain:
                    return 0, key
                chain[key] = None
                key = self.leads[key]
            length = lengths.get(key, 0)
            for each in reversed(chain):
                length += 1
                lengths[each] = length
        return max(lengths.values(), default=0), None

    def _found(
        self, *, rest: int = 0, broken: tuple[Violation, ...] = (), path: tuple[Move, ...] = (), complete: bool = True
    ) -> Found:
        worlds = len(self.parents)
        return Found(
            bounds=self.bounds,
            worlds=worlds,
            edges=self.edges,
            depth=self.depth,
            rest=rest,
            broken=broken,
            path=path,
            complete=complete,
        )

    def _path(self, key: Hashable) -> tuple[Move, ...]:
        path: list[Move] = []
        while (before := self.parents[key]) is not None:
            key, move = before
            path.append(move)
        return tuple(reversed(path))


def search(bounds: Bounds, worlds_max: int = 1_000_000) -> Found:
    """Explore every world; demand the promises of each, and of what has to happen that it leads to rest (T10)."""
    return _Search(bounds).explored(worlds_max)


def at_rest(world: World) -> Iterator[Violation]:
    """What is wrong with a world in which nothing is left to do but faults: somebody is on the way, or waits beside room."""
    state = world.state
    for replica_id in sorted(state.replicas):
        resident = state.replicas[replica_id]
        if resident.phase not in AT_REST:
            yield Violation("T10", f"{replica_id} stays {resident.phase} for ever")
        if resident.phase is Phase.WAITING:
            if not resident.because:
                yield Violation("T10", f"{replica_id} waits without a reason")
            if _has_room(world, resident):
                yield Violation("T7", f"{replica_id} waits beside room for it")


def _has_room(world: World, resident: Resident) -> bool:
    """Whether so many GPUs of one node have room, free as they are; one that has failed too often is not tried again."""
    spec, state = world.state.models[resident.model], world.state
    if resident.failures >= state.policy.max_load_failures or (spec.gpus is None and spec.weight_bytes > 8):
        return False
    parts = spec.gpus or 1
    need = -(-(spec.weight_bytes + spec.working_bytes) // parts)
    return any(sum(gpu.free_bytes >= need for gpu in node.gpus) >= parts for node in state.nodes.values())


def canonical(world: World) -> Hashable:
    """Equal for worlds that differ only in the numbers of commands and requests, and in when they are."""
    state = world.state
    asked = sorted(set(state.asked.values()))
    return (
        tuple(_plain(world, state.replicas[each]) for each in sorted(state.replicas)),
        tuple(replace(state.nodes[each], joined_at=0.0) for each in sorted(state.nodes)),
        tuple((model, asked.index(state.asked[model])) for model in sorted(state.asked)),
        tuple(replace(each, move=0) for each in world.given),
        until_waking(state),
        state.removed,
        state.serial,
        world.memory,
        world.spent,
    )


def _plain(world: World, resident: Resident) -> Resident:
    """Without the number of its newest command, but for whether it is still to be answered; with times as they are now."""
    now = world.state.clock
    owed = any(each.replica_id == resident.replica_id and each.move == resident.move for each in world.given)
    return replace(
        resident,
        move=(resident.move > 0) + owed,
        since=resident.since - now,
        last_used=resident.last_used - now,
        hot_since=None if resident.hot_since is None else resident.hot_since - now,
        retry_at=None if resident.retry_at is None else resident.retry_at - now,
        because="because" if resident.because else "",
    )
