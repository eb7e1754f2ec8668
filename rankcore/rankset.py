"""Persistent sets of small non-negative integers, and multisets of them, with the lowest free one at hand.

Words of 1,024 bits: the first is a field of its own, since nearly all sets are small, the others are in a persistent map,
with two big ints that summarise which of them are full and which hold anything. At a million members the summaries are
under a thousand bits, so every operation here costs about the same at any size, where one big int would copy 125 kB at
each change.

These are structs of msgspec rather than attrs classes: one is built at nearly every change, and theirs cost a quarter.
"""

from collections.abc import Iterable, Iterator

from msgspec import Struct

from rankcore.frozen import EMPTY, PMap

WORD_BITS = 1024
SHIFT = 10
LOW = WORD_BITS - 1
FULL = (1 << WORD_BITS) - 1


class RankSet(Struct, frozen=True, gc=False):
    """A set of integers >= 0. Every change returns a new set; the old one stays valid.

    Attributes:
        low: Bits of the members below 1,024.
        words: Bits of the others, 1,024 to a word, from word 1 on; words without a member are left out.
        full: Bit w is set when word w, of those in `words`, has all of its members.
        some: Bit w is set when word w, of those in `words`, has any.
        size: How many members there are.
    """

    low: int = 0
    words: PMap[int, int] = EMPTY
    full: int = 0
    some: int = 0
    size: int = 0

    @classmethod
    def of(cls, members: Iterable[int]) -> "RankSet":
        """Build a set in one go: O(members), each word stored once."""
        words: dict[int, int] = {}
        for member in members:
            index = member >> SHIFT
            words[index] = words.get(index, 0) | 1 << (member & LOW)
        return cls._of_words(words)

    @classmethod
    def _of_words(cls, words: dict[int, int]) -> "RankSet":
        low = words.pop(0, 0)
        full, some, size = 0, 0, low.bit_count()
        for index, word in words.items():
            some |= 1 << index
            if word == FULL:
                full |= 1 << index
            size += word.bit_count()
        return cls(low, PMap(words) if words else EMPTY, full, some, size)

    @classmethod
    def below(cls, bound: int) -> "RankSet":
        """All of 0..bound-1."""
        return cls.of(range(bound))

    def __contains__(self, member: int) -> bool:
        if 0 <= member < WORD_BITS:
            return self.low >> member & 1 == 1
        return self.words.get(member >> SHIFT, 0) >> (member & LOW) & 1 == 1

    def __len__(self) -> int:
        return self.size

    def __bool__(self) -> bool:
        return self.size > 0

    def __repr__(self) -> str:
        return f"RankSet.of({list(self)!r})"

    def add(self, member: int) -> "RankSet":
        """With this member; the very same object when it is one already."""
        if member < WORD_BITS:
            low = self.low | 1 << member
            return self if low == self.low else RankSet(low, self.words, self.full, self.some, self.size + 1)
        index = member >> SHIFT
        word = self.words.get(index, 0)
        new = word | 1 << (member & LOW)
        if new == word:
            return self
        full = self.full | 1 << index if new == FULL else self.full
        some = self.some if word else self.some | 1 << index
        return RankSet(self.low, self.words.set(index, new), full, some, self.size + 1)

    def discard(self, member: int) -> "RankSet":
        """Without this member; the very same object when it is none."""
        if member < WORD_BITS:
            low = self.low & ~(1 << member)
            if low == self.low:
                return self
            return RankSet(low, self.words, self.full, self.some, self.size - 1) if self.size > 1 else NOTHING
        index = member >> SHIFT
        word = self.words.get(index, 0)
        bit = 1 << (member & LOW)
        if not word & bit:
            return self
        if self.size == 1:
            return NOTHING
        new = word ^ bit
        full = self.full ^ 1 << index if word == FULL else self.full
        if new:
            return RankSet(self.low, self.words.set(index, new), full, self.some, self.size - 1)
        return RankSet(self.low, self.words.delete(index), full, self.some ^ 1 << index, self.size - 1)

    def lowest(self) -> int:
        """The smallest member. Ask only a set that has one."""
        low = self.low
        if low:
            return (low & -low).bit_length() - 1
        index = _lowest_bit(self.some)
        return index << SHIFT | _lowest_bit(self.words[index])

    def pop_lowest(self) -> tuple[int, "RankSet"]:
        """The smallest member, and the set without it. Ask only a set that has one."""
        low = self.low
        if low:
            rest = low & low - 1
            number = (low ^ rest).bit_length() - 1
            return number, RankSet(rest, self.words, self.full, self.some, self.size - 1) if self.size > 1 else NOTHING
        index = _lowest_bit(self.some)
        word = self.words[index]
        if self.size == 1:
            return index << SHIFT | word.bit_length() - 1, NOTHING
        new = word & word - 1
        number = index << SHIFT | (word ^ new).bit_length() - 1
        full = self.full ^ 1 << index if word == FULL else self.full
        if new:
            return number, RankSet(self.low, self.words.set(index, new), full, self.some, self.size - 1)
        return number, RankSet(self.low, self.words.delete(index), full, self.some ^ 1 << index, self.size - 1)

    def highest(self) -> int:
        """The greatest member, or -1 when there is none."""
        if not self.some:
            return self.low.bit_length() - 1
        index = self.some.bit_length() - 1
        return index << SHIFT | self.words[index].bit_length() - 1

    def lowest_free(self) -> int:
        """The smallest integer >= 0 that is not a member."""
        low = self.low
        if low != FULL:
            return (~low & low + 1).bit_length() - 1
        index = _lowest_bit(~(self.full | 1))
        return index << SHIFT | _lowest_bit(~self.words.get(index, 0))

    def _word(self, index: int) -> int:
        return self.words.get(index, 0) if index else self.low

    def free_below(self, bound: int, start: int = 0) -> Iterator[int]:
        """The non-members in start..bound-1, ascending. Costs what is taken from it: full words are passed over."""
        first = start >> SHIFT
        full = self.full | (self.low == FULL) | (1 << first) - 1
        while True:
            index = _lowest_bit(~full)
            base = index << SHIFT
            if base >= bound:
                return
            gaps = ~(self.words.get(index, 0) if index else self.low) & (1 << min(bound - base, WORD_BITS)) - 1
            if index == first:
                gaps = gaps >> (start & LOW) << (start & LOW)
            while gaps:
                low = gaps & -gaps
                yield base | low.bit_length() - 1
                gaps ^= low
            full |= 1 << index

    def gaps(self) -> "RankSet":
        """The non-members below the greatest member, word by word: a gap of a million costs a thousand words."""
        bound = self.highest() + 1
        words: dict[int, int] = {}
        for index in range(bound + LOW >> SHIFT):
            free = ~self._word(index) & (1 << min(bound - (index << SHIFT), WORD_BITS)) - 1
            if free:
                words[index] = free
        return RankSet._of_words(words)

    def with_range(self, start: int, stop: int) -> "RankSet":
        """With all of start..stop-1, word by word. Ask only for numbers that are no members yet."""
        if stop <= start:
            return self
        low, words, full, some = self.low, self.words.mutate(), self.full, self.some
        for index in range(start >> SHIFT, stop + LOW >> SHIFT):
            base = index << SHIFT
            word = self._word(index) | (1 << min(stop - base, WORD_BITS)) - (1 << max(start - base, 0))
            if not index:
                low = word
                continue
            words[index] = word
            some |= 1 << index
            if word == FULL:
                full |= 1 << index
        return RankSet(low, words.finish(), full, some, self.size + stop - start)

    def trimmed(self, bound: int) -> "RankSet":
        """Without the members >= bound, and without the run of members that ends at bound-1, word by word."""
        low, words, full, some, size = self.low, self.words.mutate(), self.full, self.some, self.size
        while some:
            index = some.bit_length() - 1
            base = index << SHIFT
            word = words[index]
            bound, kept = _trimmed(word, base, bound)
            size -= (word ^ kept).bit_count()
            if word == FULL and kept != FULL:
                full ^= 1 << index
            if kept:
                words[index] = kept
                break
            del words[index]
            some ^= 1 << index
        else:
            _, low = _trimmed(low, 0, bound)
            size -= (self.low ^ low).bit_count()
        return RankSet(low, words.finish(), full, some, size)

    def members_from(self, bound: int = 0) -> Iterator[int]:
        """The members >= bound, ascending."""
        word, start = self.low, bound >> SHIFT
        if word and not start:
            word = word >> bound << bound
            while word:
                low = word & -word
                yield low.bit_length() - 1
                word ^= low
        some = self.some >> start << start
        while some:
            index = _lowest_bit(some)
            word = self.words[index]
            if index == start:
                word = word >> (bound & LOW) << (bound & LOW)
            while word:
                low = word & -word
                yield index << SHIFT | low.bit_length() - 1
                word ^= low
            some &= some - 1

    __iter__ = members_from

    def descending(self) -> Iterator[int]:
        """All members, the greatest first."""
        some = self.some
        while some:
            index = some.bit_length() - 1
            word = self.words[index]
            while word:
                top = word.bit_length() - 1
                yield index << SHIFT | top
                word ^= 1 << top
            some ^= 1 << index
        word = self.low
        while word:
            top = word.bit_length() - 1
            yield top
            word ^= 1 << top


NOTHING = RankSet()
"""Most sets of what a step is about hold one member for a moment: taking it out builds nothing."""


class RankCounts(Struct, frozen=True, gc=False):
    """A multiset of integers >= 0: a rank that is both held by one replica and still believed by another counts twice.

    Attributes:
        taken: The integers that occur at least once.
        extra: For those that occur more than once: how many times more. Nearly always empty.
    """

    taken: RankSet = RankSet()
    extra: PMap[int, int] = EMPTY

    def __contains__(self, member: int) -> bool:
        return member in self.taken

    def count(self, member: int) -> int:
        """How many times it occurs."""
        more = self.extra.get(member, 0) if self.extra else 0
        return more + 1 if more or member in self.taken else 0

    def add(self, member: int) -> "RankCounts":
        """With one more of it."""
        taken = self.taken.add(member)
        if taken is not self.taken:
            return RankCounts(taken, self.extra)
        return RankCounts(taken, self.extra.set(member, self.extra.get(member, 0) + 1))

    def discard(self, member: int) -> "RankCounts":
        """With one less of it. Ask only for one that occurs."""
        more = self.extra.get(member, 0) if self.extra else 0
        if not more:
            return RankCounts(self.taken.discard(member), self.extra)
        extra = self.extra.set(member, more - 1) if more > 1 else self.extra.delete(member)
        return RankCounts(self.taken, extra)

    def lowest_free(self) -> int:
        """The smallest integer >= 0 that does not occur."""
        return self.taken.lowest_free()


def _lowest_bit(word: int) -> int:
    return (word & -word).bit_length() - 1


def _trimmed(word: int, base: int, bound: int) -> tuple[int, int]:
    """The bound without the run of members of this word that ends below it, and the word without what is above that."""
    bound = min(bound, base + (~word & (1 << max(bound - base, 0)) - 1).bit_length())
    return bound, word & (1 << max(bound - base, 0)) - 1
