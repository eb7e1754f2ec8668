"""The timeline against a second one that looks at every moment between two happenings."""

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from executors.simulator.record.timeline import SERVING, Phase, Timeline, gaps, unserved, unserved_at_first_s

REPLICAS = ("a", "b", "c", "d")
PHASES = (Phase.WAITING, Phase.STARTING, Phase.RUNNING, Phase.DRAINING, Phase.HUNG)


@attrs.frozen
class Hold:
    replica: str
    rank: int
    phase: Phase


@attrs.frozen
class Release:
    replica: str


@attrs.frozen
class Resize:
    world_size: int


happenings = st.one_of(
    st.builds(Hold, st.sampled_from(REPLICAS), st.integers(0, 3), st.sampled_from(PHASES)),
    st.builds(Release, st.sampled_from(REPLICAS)),
    st.builds(Resize, st.integers(0, 4)),
)
runs = st.lists(st.tuples(st.integers(0, 5), happenings), min_size=1, max_size=40)


@attrs.define
class Naive:
    """What holds from one second to the next, by looking at everything again each second."""

    size: int | None = None
    held: dict[str, Hold] = attrs.Factory(dict)
    served_once: set[int] = attrs.Factory(set)
    unserved: dict[int, list[int]] = attrs.Factory(dict)
    at_first: int = 0
    incomplete: int = 0
    gap: int = 0
    running: list[int] = attrs.Factory(list)

    def apply(self, happening):
        match happening:
            case Hold(replica=replica):
                self.held[replica] = happening
            case Release(replica=replica):
                self.held.pop(replica, None)
            case Resize(world_size=size):
                self.size = size
        self._look()

    def _look(self):
        return [hold.rank for hold in self.held.values() if hold.phase in SERVING]

    def second(self, now):
        serving = self._look()
        self.running.append(len(serving))
        self.served_once |= set(serving)
        self.incomplete += self.size is not None and set(serving) != set(range(self.size))
        self.gap += set(serving) != set(range(len(set(serving))))
        for rank in range(self.size or 0):
            if rank in serving:
                continue
            if rank in self.served_once:
                self.unserved.setdefault(rank, []).append(now)
            else:
                self.at_first += 1


def both(run):
    timeline, naive, now = Timeline(), Naive(), 0
    for wait, happening in run:
        for _ in range(wait):
            naive.second(now)
            now += 1
        naive.apply(happening)
        match happening:
            case Hold(replica=replica, rank=rank, phase=phase):
                timeline.hold(float(now), replica, "n", rank, phase)
            case Release(replica=replica):
                timeline.release(float(now), replica)
            case Resize(world_size=size):
                timeline.resize(float(now), size)
    for _ in range(3):
        naive.second(now)
        now += 1
    timeline.finish(float(now))
    return timeline, naive, float(now)


@given(runs)
def test_gaps_are_the_seconds_in_which_a_wanted_rank_that_ran_before_has_no_running_holder(run):
    timeline, naive, end = both(run)
    found = gaps(timeline, end)
    seconds = {(gap.rank, second) for gap in found for second in range(int(gap.since), int(gap.until))}
    assert seconds == {(rank, second) for rank, those in naive.unserved.items() for second in those}
    assert sum(gap.length_s for gap in found) == len(seconds)  # none overlaps another


@given(runs)
def test_what_each_rank_missed_adds_up_and_its_longest_gap_is_the_longest(run):
    timeline, naive, end = both(run)
    found = gaps(timeline, end)
    by_rank = unserved(found)
    assert {rank.rank: rank.total_s for rank in by_rank} == {rank: len(those) for rank, those in naive.unserved.items()}
    for rank in by_rank:
        own = [gap for gap in found if gap.rank == rank.rank]
        assert (rank.gaps, rank.longest.length_s) == (len(own), max(gap.length_s for gap in own))


@given(runs)
def test_rank_seconds_before_a_rank_first_ran_are_counted_apart(run):
    timeline, naive, end = both(run)
    assert unserved_at_first_s(timeline, end) == naive.at_first


@given(runs)
def test_time_with_a_gap_and_time_that_is_incomplete_are_the_seconds_in_which_it_was_so(run):
    timeline, naive, _ = both(run)
    assert (timeline.rank_gap.total_s, timeline.incomplete.total_s) == (naive.gap, naive.incomplete)


@given(runs)
def test_holds_say_of_every_second_who_held_what(run):
    timeline, _, _ = both(run)
    held, now = {}, 0
    expected = set()
    for wait, happening in [*run, (3, None)]:
        for second in range(now, now + wait):
            expected |= {(second, *attrs.astuple(hold)) for hold in held.values()}
        now += wait
        match happening:
            case Hold(replica=replica):
                held[replica] = happening
            case Release(replica=replica):
                held.pop(replica, None)
    found = [
        (second, hold.replica_id, hold.rank, hold.phase)
        for hold in timeline.holds
        for second in range(int(hold.since), int(hold.until))
    ]
    assert len(found) == len(set(found))
    assert set(found) == expected


@given(runs)
def test_the_series_of_running_replicas_agrees_with_who_ran(run):
    timeline, naive, end = both(run)
    for second, count in enumerate(naive.running):
        inside = [bucket for bucket in timeline.running.buckets(end) if second <= bucket.since and bucket.until <= second + 1]
        assert [bucket.mean for bucket in inside] == pytest.approx([count] * len(inside))


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 5), st.integers(0, 3)), max_size=12))
def test_a_replica_is_moving_until_the_newest_change_is_acknowledged(news):
    timeline = Timeline()
    timeline.resize(0.0, 4)
    timeline.hold(0.0, "a", "n", 0, Phase.RUNNING)
    told, newest, now = None, 0, 0.0
    for is_told, revision, rank in news:
        now += 1.0
        if is_told:
            timeline.told(now, "a", rank, revision)
            if told is None or revision > newest:
                told, newest = (Phase.MOVING if rank or told is Phase.MOVING else Phase.RECONFIGURING), revision
        else:
            timeline.acknowledged(now, "a", revision)
            if told is not None and revision >= newest:
                told, newest = None, 0
    timeline.finish(now + 1.0)
    assert timeline.holds[-1].phase is (told or Phase.RUNNING)
    assert gaps(timeline, now + 1.0) == []  # it serves its rank all the while
