"""`RankSet` is a set, and `RankCounts` a multiset, at and around the edges of their words too."""

from collections import Counter

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rankcore.compaction import Level, forced_moves
from rankcore.rankset import RankCounts, RankSet

pytestmark = pytest.mark.traced

EDGES = (0, 1, 1022, 1023, 1024, 1025, 2046, 2047, 2048, 2049, 3071, 3072)
NUMBERS = st.sampled_from(EDGES) | st.integers(0, 12) | st.integers(0, 3100)


@st.composite
def members(draw):
    """A few numbers; or nearly all of them, so that words are full."""
    some = draw(st.sets(NUMBERS, max_size=15))
    if draw(st.booleans()):
        return some
    return set(range(draw(st.sampled_from((1, 1024, 1025, 2048, 3000))))) - some


def check(found, expected):
    """The same members, and the same summaries as a set built in one go: equal sets are equal values."""
    assert list(found) == sorted(expected)
    assert found == RankSet.of(expected)
    assert len(found) == len(expected)
    assert bool(found) == bool(expected)


@given(start=members(), changes=st.lists(st.tuples(st.booleans(), NUMBERS), max_size=30))
@example(start={1024}, changes=[(False, 1024), (True, 5), (False, 5)])
def test_add_and_discard_as_a_set_does(start, changes):
    found, expected = RankSet.of(start), set(start)
    for adds, number in changes:
        before, had = found, number in expected
        assert (number in found) == had
        found = found.add(number) if adds else found.discard(number)
        (expected.add if adds else expected.discard)(number)
        assert (found is before) == (adds == had)
        assert (number in before) == had
    check(found, expected)


@given(start=members(), bound=NUMBERS, low=NUMBERS)
@example(start={2049, 3000}, bound=5, low=0)
def test_every_question_has_the_answer_of_a_set(start, bound, low):
    found = RankSet.of(start)
    assert found.highest() == max(start, default=-1)
    assert found.lowest_free() == next(number for number in range(4000) if number not in start)
    assert list(found.members_from(bound)) == sorted(number for number in start if number >= bound)
    assert list(found.descending()) == sorted(start, reverse=True)
    assert list(found.free_below(bound)) == [number for number in range(bound) if number not in start]
    assert list(found.free_below(bound, low)) == [number for number in range(low, bound) if number not in start]
    check(found.gaps(), set(range(max(start, default=-1) + 1)) - start)
    if start:
        assert found.lowest() == min(start)


@given(start=members(), other=members(), bound=NUMBERS)
def test_two_sets_are_compared_word_by_word(start, other, bound):
    found, others = RankSet.of(start), RankSet.of(other)
    check(found.common(others), start & other)
    assert list(found.members_from(bound, others)) == sorted(number for number in start - other if number >= bound)
    assert list(found.descending(others)) == sorted(start - other, reverse=True)


@given(start=members())
def test_taking_the_lowest_takes_one_after_the_other(start):
    found, expected = RankSet.of(start), sorted(start)
    for number in expected[:1100]:
        lowest, found = found.pop_lowest()
        assert lowest == number
    check(found, set(expected[1100:]))


@given(start=members(), gap=st.sampled_from((0, 1, 5, 1024)), length=st.sampled_from((0, 1, 3, 1023, 1024, 1025, 2050)))
def test_a_range_is_added_whole(start, gap, length):
    first = max(start, default=-1) + 1 + gap
    check(RankSet.of(start).with_range(first, first + length), start | set(range(first, first + length)))


@given(start=members(), first=NUMBERS, length=st.sampled_from((0, 1, 3, 1023, 1024, 1025)))
def test_a_range_is_added_between_others(start, first, length):
    new = set(range(first, first + length))
    check(RankSet.of(start - new).with_range(first, first + length), start | new)


@given(start=members(), bound=NUMBERS)
def test_trimming_drops_what_is_above_and_the_run_below_the_bound(start, bound):
    kept, end = {number for number in start if number < bound}, bound
    while end - 1 in kept:
        end -= 1
        kept.remove(end)
    check(RankSet.of(start).trimmed(bound), kept)


@given(bound=NUMBERS)
def test_below_is_a_range(bound):
    check(RankSet.below(bound), set(range(bound)))


def test_a_set_shows_its_members():
    assert repr(RankSet.of([3, 1])) == "RankSet.of([1, 3])"


@given(changes=st.lists(st.tuples(st.booleans(), st.sampled_from((0, 1, 2, 1023, 1024))), max_size=40))
def test_counts_count_as_a_counter_does(changes):
    found, expected = RankCounts(), Counter()
    for adds, number in changes:
        if adds:
            found = found.add(number)
            expected[number] += 1
        elif expected[number]:
            found = found.discard(number)
            expected[number] -= 1
        for each in (0, 1, 2, 1023, 1024):
            assert found.count(each) == expected[each]
            assert (each in found) == (expected[each] > 0)
    assert found.lowest_free() == next(number for number in range(2000) if not expected[number])
    check(found.taken, {number for number, times in expected.items() if times})


@given(held=st.sets(NUMBERS), also_taken=st.sets(NUMBERS), bound=NUMBERS)
def test_forced_moves_are_the_least(held, also_taken, bound):
    """Only what is >= bound moves, in order, to the lowest that nobody has; what finds no place stays."""
    above = sorted(number for number in held if number >= bound)
    free = [number for number in range(bound) if number not in held | also_taken]
    pairs = list(forced_moves(Level(above, RankSet.of(held | also_taken).free_below(bound), str)))
    assert [old for _, old in pairs] == above[: len(free)]
    assert [new for new, _ in pairs] == free[: len(above)]
