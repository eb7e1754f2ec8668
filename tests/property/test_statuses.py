"""Q12, D5, D9: what a call is shown of its deployment has growing numbers, differs each time, and ends with the answer."""

from itertools import count, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankcore.routing.statuses import (
    NEVER,
    TELL_EVERY_S,
    Numbered,
    Pace,
    StatusesShown,
    end,
    is_due,
    is_lifted_by,
    left_s,
    numbered,
    show,
)

pytestmark = pytest.mark.traced

contents = st.sampled_from(("QUEUED", "LOADING 5 %", "LOADING 50 %", "READY"))


@st.composite
def histories(draw):
    """What controllers of up to three epochs have published, in order."""
    published = []
    for epoch in range(1, draw(st.integers(1, 3)) + 1):
        last, numbers = Numbered(), count(1)
        for content in draw(st.lists(contents, max_size=8)):
            last = numbered(last, content, numbers)
            if not published or published[-1] != ((epoch, last.number), content):
                published.append(((epoch, last.number), content))
    return published


@given(histories(), st.data())
def test_whatever_is_lost_repeated_or_overtaken_each_call_is_shown_growing_numbers_that_differ_and_nothing_after_its_end(
    published, data
):
    arriving = data.draw(st.lists(st.sampled_from(published), max_size=20)) if published else []
    ends_before = data.draw(st.integers(0, len(arriving)))
    shown, seen = StatusesShown(), []
    for index, (number, content) in enumerate(arriving):
        if index == ends_before:
            shown = end(shown)
        shown, is_shown = show(shown, number, content)
        if is_shown:
            assert index < ends_before, "the answer was there"
            seen.append((number, content))
    assert all(before[0] < after[0] and before[1] != after[1] for before, after in pairwise(seen))
    come = arriving[:ends_before]
    assert not come or seen[-1][1] == max(come)[1], "the newest that came is what is shown last"


@given(histories())
def test_who_hears_all_of_it_in_order_is_shown_every_change(published):
    shown, seen = StatusesShown(), []
    for number, content in published:
        shown, is_shown = show(shown, number, content)
        if is_shown:
            seen.append(content)
    differing = [content for index, (_, content) in enumerate(published) if not index or content != published[index - 1][1]]
    assert seen == differing


def test_a_number_is_given_to_what_differs_and_to_nothing_else():
    numbers = count(5)
    first = numbered(Numbered(), "QUEUED", numbers)
    assert (first.number, numbered(first, "QUEUED", numbers)) == (5, first)
    assert numbered(first, "READY", numbers).number == 6


@given(st.booleans(), st.booleans(), st.booleans(), st.floats(0, 10), st.floats(0, 10))
def test_a_process_is_told_of_what_waits_there_four_times_a_second_and_routes_take_all_with_them(
    waits, refuses, has_routes, told_at, at
):
    due_at = is_due(waits, refuses, has_routes, told_at, at)
    if has_routes:
        assert due_at == at
    elif waits or refuses:
        assert due_at >= told_at + TELL_EVERY_S
        assert due_at <= max(at, told_at + TELL_EVERY_S), "and no later"
    else:
        assert due_at == NEVER


@given(st.tuples(st.integers(-1, 3), st.integers(0, 9)), st.tuples(st.integers(0, 3), st.integers(0, 9)))
def test_routes_of_the_next_controller_alone_lift_what_one_has_said_of_nobody_serving(refusal, routes):
    assert is_lifted_by(refusal, routes) == (routes[0] > refusal[0])
    assert not is_lifted_by(refusal, (refusal[0], routes[1])), "of the same controller the number says nothing"


def test_a_load_takes_as_long_as_its_pace_so_far_says():
    assert left_s(Pace(10.0, 20), 60, 18.0) == 8.0
    assert left_s(Pace(10.0, 0), 100, 18.0) == 0.0
    assert left_s(Pace(10.0, 20), 20, 18.0) is None, "nothing has come"
    assert left_s(Pace(10.0, 20), 30, 10.0) is None, "no time has passed"
