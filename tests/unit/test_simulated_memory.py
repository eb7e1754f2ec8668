"""Parts of the world of models: links that loads share, real memory, fragments, and what is written down."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from executors.simulator.clock import EventLoop
from executors.simulator.record.series import Gauge
from executors.simulator.residency.fragments import Fragments, Need, gpus_needed
from executors.simulator.residency.links import Links
from executors.simulator.residency.memory import NodeMemory
from executors.simulator.residency.record import LevelClock, PartGauge, SpanBook, SpanPhase
from executors.simulator.scenario.gpu_nodes import NodeShape

GB = 10**9


def shape(*gpu_gb: int, really: tuple[int, ...] | None = None) -> NodeShape:
    told = tuple(size * GB for size in gpu_gb)
    there = told if really is None else tuple(size * GB for size in really)
    return NodeShape(node_id="n", kind="x", gpu_bytes=told, really_gpu_bytes=there, cpu_bytes=100 * GB)


def moved(transfers: list[tuple[float, tuple[str, ...], int]], **rates: float) -> list[float]:
    """When each (begin, links, bytes) is there."""
    loop = EventLoop()
    links = Links(loop, rates)
    ends = [-1.0] * len(transfers)

    def end(index: int) -> None:
        ends[index] = loop.now

    for index, (begin, uses, size) in enumerate(transfers):
        loop.at(begin, links.begin, uses, size, end, index)
    loop.run(1e9, 1_000_000)
    return ends


def test_one_transfer_has_its_links_to_itself_and_the_scarcest_sets_its_pace():
    assert moved([(5, ("disk", "gpu"), 1000)], disk=100, gpu=500) == pytest.approx([15])


def test_two_at_once_have_half_each():
    assert moved([(0, ("disk",), 1000), (0, ("disk",), 1000)], disk=100) == pytest.approx([20, 20])


def test_who_is_left_over_has_the_link_to_itself_again():
    # Both have 50/s; the second is done at 10 + 500/50 = 20, having left the first with 1000 - 10 x 100 + ... = 500 at 20.
    assert moved([(0, ("disk",), 2000), (10, ("disk",), 500)], disk=100) == pytest.approx([25, 20])


def test_other_links_are_not_in_the_way():
    assert moved([(0, ("disk",), 1000), (0, ("gpu",), 1000)], disk=100, gpu=200) == pytest.approx([10, 5])


def test_what_is_broken_off_has_moved_what_it_had_and_makes_room():
    loop = EventLoop()
    links = Links(loop, {"disk": 100.0})
    ends: list[float] = []
    links.begin(("disk",), 1000, lambda: ends.append(loop.now))
    broken = links.begin(("disk",), 1000, lambda: ends.append(-1.0))
    loop.at(4, links.cancel, broken)
    loop.run(1e9, 1000)
    assert broken.moved_bytes == 200
    assert ends == pytest.approx([12])
    links.cancel(broken)
    assert broken.moved_bytes == 200


@given(
    st.lists(
        st.tuples(st.floats(0, 100), st.sampled_from([("disk",), ("gpu",), ("disk", "gpu")]), st.integers(1, 10**12)),
        max_size=8,
    )
)
def test_links_carry_no_more_than_they_can_and_everything_arrives(transfers):
    disk, gpu = 2e9, 12e9
    ends = moved(transfers, disk=disk, gpu=gpu)
    for (begin, uses, size), end in zip(transfers, ends, strict=True):
        alone = size / min({"disk": disk, "gpu": gpu}[link] for link in uses)
        assert end >= begin + alone - 1e-3
    for link, rate in (("disk", disk), ("gpu", gpu)):
        using = [(begin, size, end) for (begin, uses, size), end in zip(transfers, ends, strict=True) if link in uses]
        if using:
            lasted = max(end for _, _, end in using) - min(begin for begin, _, _ in using)
            assert sum(size for _, size, _ in using) <= lasted * rate * (1 + 1e-9) + rate * 1e-3


@given(st.permutations([(0.0, ("disk",), 5 * GB), (0.0, ("disk", "gpu"), 7 * GB), (1.0, ("gpu",), 3 * GB)]))
def test_the_order_of_what_begins_at_once_does_not_matter(transfers):
    found = dict(zip(transfers, moved(transfers, disk=2e9, gpu=12e9), strict=True))
    assert found[0.0, ("disk",), 5 * GB] == pytest.approx(5)
    assert found[1.0, ("gpu",), 3 * GB] < 2


# -- memory


def test_nobody_gets_more_than_there_is():
    memory = NodeMemory(shape(80, 80))
    assert memory.take("a", (0, 1), (50 * GB, 50 * GB)) is None
    assert memory.take("b", (0, 1), (20 * GB, 40 * GB)) == 1
    assert memory.used == [70 * GB, 80 * GB]
    assert memory.held("b") == {0: 20 * GB, 1: 30 * GB}
    memory.leave_gpu("a")
    assert memory.used == [20 * GB, 30 * GB]
    assert memory.on_gpu == ("b",)


def test_taking_again_is_in_place_of_what_was_held():
    memory = NodeMemory(shape(80))
    memory.take("a", (0,), (50 * GB,))
    assert memory.take("a", (0,), (60 * GB,)) is None
    assert memory.used == [60 * GB]
    memory.take_cpu("a", 10)
    memory.take_cpu("a", 20)
    assert (memory.cpu_used, memory.cached("a"), memory.cached("b")) == (20, 20, 0)
    memory.clear()
    assert (memory.used, memory.cpu_used, memory.on_gpu) == ([0], 0, ())


def test_a_node_that_says_too_much_has_what_it_has():
    memory = NodeMemory(shape(80, really=(40,)))
    assert memory.take("a", (0,), (50 * GB,)) == 0
    assert memory.used == [40 * GB]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans(), st.integers(0, 50), st.integers(0, 50))))
def test_what_is_held_is_what_all_hold_together_and_fits(moves):
    memory = NodeMemory(shape(80, 60))
    for name, takes, first, second in moves:
        if takes:
            memory.take(name, (0, 1), (first * GB, second * GB))
        else:
            memory.leave_gpu(name)
        for gpu, capacity in enumerate(memory.capacity):
            assert 0 <= memory.used[gpu] <= capacity
            assert memory.used[gpu] == sum(memory.held(each).get(gpu, 0) for each in "abc")


# -- fragments


@pytest.mark.parametrize(
    ("size", "gpus", "expected"), [(80, None, 1), (81, None, 2), (160, None, 2), (161, None, None), (10, 2, 2), (10, 3, None)]
)
def test_a_replica_is_split_over_the_fewest_gpus_that_hold_it(size, gpus, expected):
    assert gpus_needed(Need(size * GB, gpus, 1.0), (80 * GB, 80 * GB)) == expected


def test_free_memory_is_fragmented_for_whom_it_is_of_no_use():
    needs = {"small": Need(10 * GB, None, 3.0), "large": Need(70 * GB, None, 1.0), "never": Need(900 * GB, None, 9.0)}
    fragments = Fragments([shape(80, 80)], needs)
    assert fragments.of("n", (80 * GB, 80 * GB)) == 0
    assert fragments.of("n", (60 * GB, 60 * GB)) == pytest.approx(120 * GB / 4)  # no use to the large one
    assert fragments.of("n", (5 * GB, 5 * GB)) == pytest.approx(10 * GB)  # to nobody
    assert fragments.of("n", (75 * GB, 0)) == 0


def test_where_nothing_ever_fits_nothing_is_fragmented():
    assert Fragments([shape(80)], {"never": Need(900 * GB, None, 1.0)}).of("n", (80 * GB,)) == 0


# -- what is written down


def test_a_span_ends_when_phase_or_size_change_and_not_otherwise():
    book = SpanBook()
    book.hold(0, "n", 0, "m#1", "m", SpanPhase.LOADING, 10)
    book.hold(5, "n", 0, "m#1", "m", SpanPhase.LOADING, 10)
    book.hold(8, "n", 0, "m#1", "m", SpanPhase.HOT, 10)
    book.hold(8, "n", 0, "m#1", "m", SpanPhase.HOT, 12)  # it lasted for no time at all
    book.leave(20, "n", 0, "m#1")
    book.leave(20, "n", 0, "m#1")
    book.hold(25, "n", 0, "m#2", "m", SpanPhase.LOADING, 10)
    found = [(span.worker_id, str(span.phase), span.size_bytes, span.since, span.until) for span in book.until(30)]
    assert found == [("m#1", "loading", 10, 0, 8), ("m#1", "hot", 12, 8, 20), ("m#2", "loading", 10, 25, 30)]


@given(st.lists(st.tuples(st.floats(0, 10), st.sampled_from("ab"), st.sampled_from(["HOT", "WARM", "COLD"]))))
def test_a_model_is_at_one_level_at_any_time(changes):
    clock, now = LevelClock(), 0.0
    for after, replica, level in changes:
        now += after
        clock.set(now, replica, level)
        assert clock.of(replica) == level
    clock.finish(now)
    assert sum(clock.seconds.values()) == pytest.approx(now)


def test_a_model_is_as_hot_as_its_hottest_replica():
    clock = LevelClock()
    clock.set(10, "a", "HOT")
    clock.set(20, "b", "HOT")
    clock.set(30, "a", "WARM")
    clock.set(50, "b", "COLD")
    clock.finish(60)
    assert clock.seconds == {"COLD": 10, "HOT": 40, "WARM": 10}


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 9))))
def test_a_sum_is_what_its_parts_are_together(changes):
    whole = Gauge()
    parts = [PartGauge(whole) for _ in range(3)]
    for now, (index, value) in enumerate(changes):
        parts[index].set(float(now), value)
        assert whole.value == sum(part.value for part in parts)
