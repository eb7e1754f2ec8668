"""Breadth-first exploration of every world within some bounds: each once, by a shortest path.

What is kept of a world is its fingerprint, from which world it was first reached, by which of that one's moves, and where its
fair move leads: 18 bytes in arrays that only grow. But for the first few thousand that wait, the world itself is made again
when it is its turn. Worlds have their turn in the order of their paths, so nearly all of a path is still there from before.
"""

from array import array
from bisect import bisect_left
from itertools import islice

from rankcore.testing.model.bounds import Bounds
from rankcore.testing.model.canonical import fingerprint
from rankcore.testing.model.coverage import Coverage
from rankcore.testing.model.moves import Move, make, moves
from rankcore.testing.model.paths import Broken, root, settle, tried
from rankcore.testing.model.promises import unsettled
from rankcore.testing.model.words import describe
from rankcore.testing.model.world import World

AT_HAND_MAX = 10_000
"""So many worlds are kept whole until it is their turn, which saves making them again."""
NOBODY = 0xFFFFFFFF
"""No index: at four bytes each, an exploration ends at four billion worlds."""


class Fingerprints:
    """A growing list of fingerprints that finds the index of one in O(1): open addressing, four bytes an entry."""

    def __init__(self, known: "array[int]") -> None:
        self.all = known
        self._size = 1 << 12
        self._rebuild()

    def _rebuild(self) -> None:
        while self._size < 2 * len(self.all) + 2:
            self._size *= 2
        self._table = array("I", [NOBODY]) * self._size
        for index, value in enumerate(self.all):
            self._table[self._place(value)] = index

    def _place(self, value: int) -> int:
        place = value & self._size - 1
        while (index := self._table[place]) != NOBODY and self.all[index] != value:
            place = place + 1 & self._size - 1
        return place

    def add(self, value: int) -> tuple[int, bool]:
        """The index of this fingerprint, and whether it is new."""
        place = self._place(value)
        if self._table[place] != NOBODY:
            return self._table[place], False
        index = len(self.all)
        self._table[place] = index
        self.all.append(value)
        if 2 * len(self.all) > self._size:
            self._rebuild()
        return index, True


class Search:
    """An exploration, as far as it has come.

    Attributes:
        bounds: Of the worlds.
        broken: A promise that does not hold, with a shortest path to where it does not; None: none is known. Nothing is
            explored any further once there is one.
        coverage: What the controller's steps have exercised.
        edges: How many moves were tried.
        level_ends: How many worlds there are up to each depth, for the depths that are complete.
        parents, moves, fair: By the index of a world: whence, by which move, and where its fair move leads (to itself where
            nothing is left to do; known for what was explored).
        fingerprints: Of the worlds.
    """

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self.broken: Broken | None = None
        self.coverage = Coverage()
        self.edges = 0
        self.level_ends = [1]
        self.parents = array("I", [0])
        self.moves = array("H", [0])
        self.fair = array("I")
        self._at_hand: dict[int, World] = {}
        self._path = [(0, root(bounds))]
        self.fingerprints = Fingerprints(array("Q", [fingerprint(self._path[0][1])]))

    @property
    def worlds(self) -> int:
        """How many different worlds have been found."""
        return len(self.parents)

    @property
    def explored(self) -> int:
        """Of how many of them all moves have been tried."""
        return len(self.fair)

    @property
    def done(self) -> bool:
        """Whether there is nothing left to explore, or a promise is broken."""
        return self.broken is not None or self.explored == self.worlds

    @property
    def depth(self) -> int:
        """How many moves the longest of all shortest paths has so far."""
        return len(self.level_ends) - (self.level_ends[-1] == self.worlds)

    def resume(self, parents: "array[int]", moves: "array[int]", fair: "array[int]", fingerprints: "array[int]") -> None:
        """Go on from arrays that an exploration with the same bounds had come to, with its `edges` and `coverage` set apart.

        Raises:
            ValueError: The arrays are not of one exploration with these bounds and this core.
        """
        if not len(parents) == len(moves) == len(fingerprints) >= len(fair) or fingerprints[0] != self.fingerprints.all[0]:
            raise ValueError("the arrays are not of one exploration with these bounds")
        self.parents, self.moves, self.fair = parents, moves, fair
        self.fingerprints = Fingerprints(fingerprints)
        while self.level_ends[-1] < self.explored:
            self.level_ends.append(bisect_left(parents, self.level_ends[-1]))  # parents only grow
        try:
            agrees = fingerprint(self._world(self.worlds - 1)) == fingerprints[-1]
        except (StopIteration, AssertionError, IndexError):
            agrees = False
        if not agrees:
            raise ValueError("this core decides otherwise than the one that was explored")

    def expand(self, count: int) -> None:
        """Explore so many more worlds, or as many as there are, or until a promise is broken."""
        for _ in range(count):
            if self.done:
                self._path[0][1].steps.forget()
                return
            index = self.explored
            if index == self.level_ends[-1]:
                self.level_ends.append(self.worlds)
            world = self._at_hand.pop(index, None)
            self._explore(index, self._world(index) if world is None else world)

    def _explore(self, index: int, world: World) -> None:
        fair = index
        for number, move in enumerate(moves(world)):
            after, steps, violations = tried(world, move)
            self.edges += 1
            if violations:
                self.broken = Broken(self.bounds, (*self.path_to(index), describe(world, move)), tuple(violations))
                return
            for told in steps:
                self.coverage.add(told)
            found, is_new = self.fingerprints.add(fingerprint(after))
            if is_new:
                self.parents.append(index)
                self.moves.append(number)
                if len(self._at_hand) < AT_HAND_MAX:
                    self._at_hand[found] = after
            if number == 0 and move.costs is None:
                fair = found
        if fair == index and (violations := unsettled(world)):
            self.broken = Broken(self.bounds, self.path_to(index), tuple(violations), settles=True)
            return
        self.fair.append(fair)

    def _chain(self, index: int) -> list[int]:
        """From the root to a world."""
        chain = [index]
        while chain[-1]:
            chain.append(self.parents[chain[-1]])
        return chain[::-1]

    def _world(self, index: int) -> World:
        chain = self._chain(index)
        shared = 0
        for (kept, _), wanted in zip(self._path, chain, strict=False):
            if kept != wanted:
                break
            shared += 1
        del self._path[shared:]
        for each in chain[shared:]:
            world = self._path[-1][1]
            self._path.append((each, make(world, self._move(world, each))[0]))
        return self._path[-1][1]

    def _move(self, world: World, index: int) -> Move:
        return next(islice(moves(world), self.moves[index], None))

    def path_to(self, index: int) -> tuple[str, ...]:
        """A shortest path to a world, in words."""
        self._world(index)
        pairs = zip(self._path, self._path[1:], strict=False)
        return tuple(describe(world, self._move(world, after)) for (_, world), (after, _) in pairs)

    def longest_rest(self) -> int:
        """How many moves without a fault the slowest explored world takes until nothing is left to do.

        Every world has one fair move; where following them leads into a circle, that world would never be healthy, and
        `broken` says so. Paths that leave what is explored are followed by `sample`.
        """
        lengths = array("i", [-1]) * self.explored
        for begin in range(self.explored):
            chain, index = [], begin
            while index < self.explored and lengths[index] == -1 and self.fair[index] != index:
                lengths[index] = -2  # on the path
                chain.append(index)
                index = self.fair[index]
            if index < self.explored and lengths[index] == -2:
                self._report_circle(begin)
                return 0
            length = max(0, lengths[index]) if index < self.explored else 0
            if index < self.explored:
                lengths[index] = length
            for each in reversed(chain):
                length += 1
                lengths[each] = length
        return max(lengths, default=0)

    def _report_circle(self, index: int) -> None:
        _, violations, _ = settle(self._world(index))
        self.broken = Broken(self.bounds, self.path_to(index), tuple(violations), settles=True)

    def sample(self, count: int) -> int:
        """Of the worlds that are not explored yet, follow so many, evenly spread, until nothing is left to do.

        Returns:
            How many were followed.
        """
        waiting = range(self.explored, self.worlds)
        for index in (chosen := waiting[:: max(1, -(-len(waiting) // count))]):
            _, violations, _ = settle(self._world(index))
            if violations:
                self.broken = Broken(self.bounds, self.path_to(index), tuple(violations), settles=True)
                break
        return len(chosen)
