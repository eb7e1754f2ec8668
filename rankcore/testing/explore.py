"""Every reachable world of a small system, each once, and a shortest path to whatever is wrong: the one exhaustive search.

    >>> from rankcore.testing.model import Bounds, RankSystem
    >>> search = explored(RankSystem(Bounds(replicas=1, crashes=1)))
    >>> search.done, search.broken
    (True, None)

What a world is, how it goes on, and what has to hold in it, is said by an `Explorable`; this module knows nothing else of it.

**Breadth first.** Worlds are found in the order of how many moves they are from the first one: all that are one move away,
then all that are two, and so on. A world that is found again is not followed again. So the path by which a world was *first*
found is a shortest one, and so is the path to the first broken promise that is met: no path with fewer moves breaks one (what
is broken only at rest is looked for after the moves of its world, so one with one move more may be met before it). Among
paths of one length, the one whose moves come earlier in `moves` is found. Which moves are tried, and in which order, depends
on nothing but the system, so two runs find the same in the same order, in steps of any size.

**Symmetry.** Two worlds that differ only in names (ids, revisions, the clock) go on alike, so one of them is enough. `key`
gives both the same bytes: what only compares is replaced by its place in the order. The law behind it is that renaming
commutes with every move, so equal keys have equal futures; it is for the system's tests to hold `key` to this. A key that
tells too much apart only costs time; one that tells too little apart hides worlds. Of a key only a fingerprint of 64 bits is
kept: two of n different worlds share one with a probability below n^2 / 2^65, which is one in 370,000 for ten million.

**Why it ends.** Every fault and every wish takes from a budget that `key` contains and nothing refills, messages under way
are finite, and names and clocks are relative: so there are finitely many keys, and each is explored once. Where they are too
many, the `Allowance` ends the search; `done` is False then, and all that was explored holds all the same.

**What "heals" means (liveness).** The first move of a world is its *fair* move where `is_fair` says so: something that has to
happen at some time and is no fault. From every world, following fair moves has to lead to one where nothing but faults is
left (or whose fair move leads back to itself: nothing changes any more), and that one has to be well: `unsettled` finds
nothing. Fair moves are among those explored, so where each leads is noted on the way, at four bytes a world. `longest_rest`
then follows these notes, each once: either everybody comes to rest, and the longest way there is the bound within which
everything heals; or some world runs into a circle, and the first such world, by its shortest path, is the counter-example.
This is weaker than all fair schedules, and enough: a machine that heals only under some orders of messages shows by
another world in which the fair move is made first. What an allowance left unexplored is followed to rest in samples.

**What it costs.** Time: one `make`, `violations` and `key` for each move of each world. Memory: 22 bytes a world in arrays
that only grow (fingerprint 8, parent 4, move 2, fair 4, a place in the hash table 4, which is at most half full: 26 to 30 in
all), and the worlds themselves only while they wait for their turn, `AT_HAND_MAX` at most. Others are made again by their
path when it is their turn; worlds have their turn in the order of their paths, so nearly all of a path is still there from
the one before, and that is about one more `make` a world. `resume` goes on from the arrays alone.

The steps, as numbered below: (1) take the next world in order; (2) try each of its moves, and stop at the first that breaks
a promise; (3) note where its fair move leads; (4) where that is nowhere else, it has to be well.
"""

from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable
from hashlib import blake2b
from itertools import islice
from typing import Any, Generic

import attrs

from rankcore.kernel import Violation
from rankcore.testing.explorable import Explorable, M, S, W
from rankcore.testing.paths import Broken, settle, tried

AT_HAND_MAX = 10_000
"""So many worlds are kept whole until it is their turn, which saves making them again."""
NOBODY = 0xFFFFFFFF
"""No index: at four bytes each, an exploration ends at four billion worlds."""
SHOWN_EVERY = 200
"""Worlds, between two times that progress is shown and the allowance is looked at."""
SAMPLE = 1000
"""So many of the worlds that an allowance has left unexplored are followed to rest."""


@attrs.frozen(kw_only=True)
class Allowance:
    """How much may be explored.

    Attributes:
        states: Of so many worlds all moves are tried; None: of all.
        time_s: So long, as `clock` tells it, to within `SHOWN_EVERY` worlds; None: as long as it takes.
        clock: Tells the time in seconds, such as `time.monotonic`.
    """

    states: int | None = None
    time_s: float | None = None
    clock: Callable[[], float] = float


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


class Search(Generic[W, M, S]):
    """An exploration, as far as it has come.

    Attributes:
        system: Whose worlds these are.
        broken: A promise that does not hold, with a shortest path to where it does not; None: none is known. Nothing is
            explored any further once there is one.
        exercised: By name, what the machine's steps have exercised.
        edges: How many moves were tried.
        level_ends: How many worlds there are up to each depth, for the depths that are complete.
        parents, moves, fair: By the index of a world: whence, by which move, and where its fair move leads (to itself where
            nothing is left to do; known for what was explored).
        fingerprints: Of the worlds.
        rest: How many moves without a fault the slowest world takes to rest, once `explore` has looked.
        sampled: How many unexplored worlds it has followed there.
    """

    def __init__(self, system: Explorable[W, M, S]) -> None:
        self.system = system
        self.broken: Broken | None = None
        self.exercised: Counter[str] = Counter()
        self.edges = 0
        self.level_ends = [1]
        self.parents = array("I", [0])
        self.moves = array("H", [0])
        self.fair = array("I")
        self.rest = 0
        self.sampled = 0
        self._at_hand: dict[int, W] = {}
        self._path: list[tuple[int, W]] = []
        first = 0
        try:
            first = self._fingerprint(self._world(0))
        except Exception as error:  # whatever a broken machine may raise
            self.broken = Broken((), (Violation("2", f"the first world cannot be made: {type(error).__name__}: {error}"),))
        self.fingerprints = Fingerprints(array("Q", [first]))

    @property
    def worlds(self) -> int:
        """How many different worlds have been found."""
        return len(self.parents)

    @property
    def explored(self) -> int:
        """Of how many of them all moves have been tried."""
        return len(self.fair)

    @property
    def complete(self) -> bool:
        """Whether all moves of all worlds have been tried."""
        return self.explored == self.worlds

    @property
    def done(self) -> bool:
        """Whether there is nothing left to explore, or a promise is broken."""
        return self.broken is not None or self.complete

    @property
    def depth(self) -> int:
        """How many moves the longest of all shortest paths has so far."""
        return len(self.level_ends) - (self.level_ends[-1] == self.worlds)

    def _fingerprint(self, world: W) -> int:
        """64 bits that are equal for equal worlds, in every process, and different for different ones, nearly always."""
        return int.from_bytes(blake2b(self.system.key(world), digest_size=8).digest(), "big")

    def resume(self, parents: "array[int]", moves: "array[int]", fair: "array[int]", fingerprints: "array[int]") -> None:
        """Go on from arrays that an exploration with the same bounds had come to, with its `edges` and `exercised` set apart.

        Raises:
            ValueError: The arrays are not of one exploration with these bounds and this machine.
        """
        if not len(parents) == len(moves) == len(fingerprints) >= len(fair) or fingerprints[0] != self.fingerprints.all[0]:
            raise ValueError("the arrays are not of one exploration with these bounds")
        self.parents, self.moves, self.fair = parents, moves, fair
        self.fingerprints = Fingerprints(fingerprints)
        while self.level_ends[-1] < self.explored:
            self.level_ends.append(bisect_left(parents, self.level_ends[-1]))  # parents only grow
        try:
            agrees = self._fingerprint(self._world(self.worlds - 1)) == fingerprints[-1]
        except (StopIteration, AssertionError, IndexError):
            agrees = False
        if not agrees:
            raise ValueError("this core decides otherwise than the one that was explored")

    def expand(self, count: int) -> None:
        """Explore so many more worlds, or as many as there are, or until a promise is broken."""
        for _ in range(count):
            if self.done:
                break
            index = self.explored
            if index == self.level_ends[-1]:
                self.level_ends.append(self.worlds)
            world = self._at_hand.pop(index, None)
            self._explore(index, self._world(index) if world is None else world)  # 1
        if self.done:
            self._at_hand.clear()
            self._path.clear()

    def _explore(self, index: int, world: W) -> None:
        system, fair = self.system, index
        edges, exercised = 0, Counter[str]()
        for number, move in enumerate(system.moves(world)):
            made, violations = tried(system, world, move)  # 2
            edges += 1
            if made is None or violations:
                self.broken = Broken((*self.path_to(index), system.describe(world, move)), tuple(violations))
                break
            after, steps = made
            system.count(steps, exercised)
            found, is_new = self.fingerprints.add(self._fingerprint(after))
            if is_new:
                self.parents.append(index)
                self.moves.append(number)
                if len(self._at_hand) < AT_HAND_MAX:
                    self._at_hand[found] = after
            if number == 0 and system.is_fair(move):
                fair = found  # 3
        else:
            if fair == index and (violations := system.unsettled(world)):  # 4
                self.broken = Broken(self.path_to(index), tuple(violations), settles=True)
        # Together with its fair move: of a world that was interrupted, all moves are tried again, and counted then.
        self.edges += edges
        self.exercised.update(exercised)
        if self.broken is None:
            self.fair.append(fair)

    def _chain(self, index: int) -> list[int]:
        """From the first world to another."""
        chain = [index]
        while chain[-1]:
            chain.append(self.parents[chain[-1]])
        return chain[::-1]

    def _world(self, index: int) -> W:
        chain = self._chain(index)
        if not self._path:
            self._path = [(0, self.system.start())]
        shared = 0
        for (kept, _), wanted in zip(self._path, chain, strict=False):
            if kept != wanted:
                break
            shared += 1
        del self._path[shared:]
        for each in chain[shared:]:
            world = self._path[-1][1]
            self._path.append((each, self.system.make(world, self._move(world, each))[0]))
        return self._path[-1][1]

    def _move(self, world: W, index: int) -> M:
        return next(islice(self.system.moves(world), self.moves[index], None))

    def path_to(self, index: int) -> tuple[str, ...]:
        """A shortest path to a world, in words."""
        self._world(index)
        pairs = zip(self._path, self._path[1:], strict=False)
        return tuple(self.system.describe(world, self._move(world, after)) for (_, world), (after, _) in pairs)

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
                self._follow_to_rest(begin)
                return 0
            length = max(0, lengths[index]) if index < self.explored else 0
            if index < self.explored:
                lengths[index] = length
            for each in reversed(chain):
                length += 1
                lengths[each] = length
        return max(lengths, default=0)

    def _follow_to_rest(self, index: int) -> None:
        _, violations, _ = settle(self.system, self._world(index))
        if violations:
            self.broken = Broken(self.path_to(index), tuple(violations), settles=True)

    def sample(self, count: int) -> int:
        """Of the worlds that are not explored yet, follow so many, evenly spread, until nothing is left to do.

        Returns:
            How many were chosen.
        """
        waiting = range(self.explored, self.worlds)
        for index in (chosen := waiting[:: max(1, -(-len(waiting) // count))]):
            self._follow_to_rest(index)
            if self.broken is not None:
                break
        return len(chosen)


def explore(
    search: Search[W, M, S],
    allowance: Allowance | None = None,
    progress: Callable[[Search[Any, Any, Any]], object] = lambda search: None,
) -> None:
    """Go on with a search as far as it is allowed to go, and demand of every world that is found that it comes to rest.

    Args:
        search: A new one, or one that has stopped early.
        allowance: How much it may explore in all; None: everything.
        progress: Called with the search every `SHOWN_EVERY` worlds, and at the end.
    """
    allowance = allowance if allowance is not None else Allowance()
    states_max = allowance.states if allowance.states is not None else NOBODY
    end_s = allowance.clock() + allowance.time_s if allowance.time_s is not None else float("inf")
    while not search.done and search.explored < states_max and allowance.clock() < end_s:
        search.expand(min(SHOWN_EVERY, states_max - search.explored))
        progress(search)
    if search.broken is None:
        search.rest = search.longest_rest()
    if not search.done:
        search.sampled = search.sample(SAMPLE)


def explored(system: Explorable[W, M, S], allowance: Allowance | None = None) -> Search[W, M, S]:
    """A search of this system from its beginning, as far as it is allowed to go."""
    search = Search(system)
    explore(search, allowance)
    return search
