"""What falls due when: persistent first-in-first-out queues, one for each constant time-out.

All entries of a queue wait equally long, so they fall due in the order in which they came: adding one costs O(1), and the
next to fall due is the first. An entry is never taken out early; whoever takes the first one looks whether it still means
anything.
"""

from typing import Generic, TypeVar

from msgspec import Struct

from rankcore.frozen import EMPTY, PMap

T = TypeVar("T")


class Queue(Struct, Generic[T], frozen=True, gc=False):
    """A persistent queue.

    Attributes:
        items: The waiting entries, by a number that only grows.
        head: Number of the first one.
        tail: Number that the next one will get; equal to `head` when the queue is empty.
    """

    items: PMap[int, T] = EMPTY
    head: int = 0
    tail: int = 0

    def __len__(self) -> int:
        return self.tail - self.head

    def push(self, item: T) -> "Queue[T]":
        """With this entry at the end."""
        return Queue(self.items.set(self.tail, item), self.head, self.tail + 1)

    def first(self) -> T:
        """The entry that came first. Ask only a queue that has one."""
        return self.items[self.head]

    def pop(self) -> "Queue[T]":
        """Without its first entry."""
        return self.without(1)

    def without(self, count: int) -> "Queue[T]":
        """Without its first entries, so many. Ask only a queue that has them."""
        head = self.head + count
        if head == self.tail:
            return Queue(EMPTY, head, head)
        rest = self.items.mutate()
        for number in range(self.head, head):
            del rest[number]
        return Queue(rest.finish(), head, self.tail)


class Sent(Struct, frozen=True, gc=False):
    """A command was given to a replica, or a replica began to start, at this time."""

    replica_id: str
    at: float


class Retry(Struct, frozen=True, gc=False):
    """A slot may be started again at this time."""

    rank: int
    at: float
