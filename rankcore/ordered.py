"""A persistent sorted set: what an index of room and a table of due times are made of."""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar

from msgspec import Struct

T = TypeVar("T")

_position: Callable[[Any, Any], int] = bisect_left

CHUNK_MAX = 256
"""A change copies one chunk and the list of chunks: with as many as 65,000 members, each of them is that long."""


class Ordered(Struct, Generic[T], frozen=True, gc=False):
    """Members that can be compared, ascending, each of them once.

    Attributes:
        chunks: The members, cut into pieces; none of them is empty.
        lasts: The last member of each piece.
        size: How many members.
    """

    chunks: tuple[tuple[T, ...], ...] = ()
    lasts: tuple[T, ...] = ()
    size: int = 0

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> Iterator[T]:
        for chunk in self.chunks:
            yield from chunk

    def add(self, member: T) -> "Ordered[T]":
        """With this member."""
        if not self.chunks:
            return Ordered(((member,),), (member,), 1)
        place = min(_position(self.lasts, member), len(self.chunks) - 1)
        chunk = self.chunks[place]
        inside = _position(chunk, member)
        if inside < len(chunk) and chunk[inside] == member:
            return self
        return self._with(place, (*chunk[:inside], member, *chunk[inside:]), 1)

    def discard(self, member: T) -> "Ordered[T]":
        """Without this member."""
        place = _position(self.lasts, member)
        if place == len(self.lasts):
            return self
        chunk = self.chunks[place]
        inside = _position(chunk, member)
        if chunk[inside] != member:
            return self
        return self._with(place, chunk[:inside] + chunk[inside + 1 :], -1)

    def since(self, bound: Any) -> Iterator[T]:
        """The members that are not below a bound, which may be a shorter tuple than they are."""
        place = _position(self.lasts, bound)
        if place < len(self.chunks):
            chunk = self.chunks[place]
            yield from chunk[_position(chunk, bound) :]
            for chunk in self.chunks[place + 1 :]:
                yield from chunk

    def first(self) -> T:
        """The least member. Ask only a set that has one."""
        return self.chunks[0][0]

    def _with(self, place: int, chunk: tuple[T, ...], more: int) -> "Ordered[T]":
        if chunk and chunk[-1] == self.lasts[place] and len(chunk) <= CHUNK_MAX:  # as nearly always: the rest stays as it is
            return Ordered((*self.chunks[:place], chunk, *self.chunks[place + 1 :]), self.lasts, self.size + more)
        if not chunk:
            pieces: tuple[tuple[T, ...], ...] = ()
        elif len(chunk) > CHUNK_MAX:
            pieces = (chunk[: CHUNK_MAX // 2], chunk[CHUNK_MAX // 2 :])
        else:
            pieces = (chunk,)
        chunks = self.chunks[:place] + pieces + self.chunks[place + 1 :]
        lasts = self.lasts[:place] + tuple([piece[-1] for piece in pieces]) + self.lasts[place + 1 :]
        return Ordered(chunks, lasts, self.size + more)


def ordered(members: Iterable[T]) -> Ordered[T]:
    """A set of these members; cheaper than to add them one by one."""
    ascending: list[Any] = sorted(set(members))
    half = CHUNK_MAX // 2
    chunks = tuple(tuple(ascending[begin : begin + half]) for begin in range(0, len(ascending), half))
    return Ordered(chunks, tuple(chunk[-1] for chunk in chunks), len(ascending))
