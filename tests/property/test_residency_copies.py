"""How far the copies that stay in CPU memory are from the best that could (T17): all sets, enumerated."""

from itertools import chain, combinations

from hypothesis import example, given
from hypothesis import strategies as st

from rankcore.residency import Level, ModelSpec, ResidencyPolicy, Wanted, open_residency
from rankcore.residency.copies import Copy, cheapest_to_drop
from rankcore.residency.events import DeployRequested, EvictRequested, NodeJoined
from tests.property.naive_residency import feed

ITEMS = st.lists(st.tuples(st.integers(1, 30), st.integers(1, 30)), max_size=7)
ROUNDING = 1.0 + 1e-9


def best_of(items, room):
    """The most that any set of (size, saving) saves that fits into so many bytes."""
    sets = chain.from_iterable(combinations(items, count) for count in range(len(items) + 1))
    return max(sum(saving for _, saving in each) for each in sets if sum(size for size, _ in each) <= room)


@given(ITEMS, st.tuples(st.integers(1, 60), st.integers(1, 60)), st.integers(1, 60))
@example([(30, 30), (1, 1)], (30, 31), 30)
def test_for_one_newcomer_at_least_half_of_the_best_is_saved_and_nobody_is_dropped_for_nothing(items, newcomer, missing):
    size, saving = newcomer
    missing = min(missing, size)
    copies = [Copy(str(number), *each) for number, each in enumerate(items)]
    dropped = cheapest_to_drop(copies, missing, saving)
    at_rest = sum(each.saving for each in copies)
    room = sum(each.size for each in copies) + size - missing
    best = best_of([*items, newcomer], room)
    if dropped is None:
        assert 2 * at_rest >= best
        return
    freed, lost = (sum(getattr(each, field) for each in dropped) for field in ("size", "saving"))
    assert freed >= missing
    assert all(freed - each.size < missing for each in dropped)
    assert lost <= saving
    assert 2 * (at_rest - lost + saving) >= best


def saved(state, at):
    policy = state.policy
    kept = [each for each in state.replicas.values() if each.level is Level.WARM]
    return sum(each.cpu_bytes * policy.reuse_horizon_s / (policy.reuse_horizon_s + at - each.last_used) for each in kept)


@given(
    st.lists(st.tuples(st.integers(1, 60), st.integers(0, 900)), min_size=1, max_size=4),
    st.lists(st.tuples(st.integers(5, 40), st.integers(0, 900)), min_size=2, max_size=4),
    st.integers(10, 90),
)
def test_those_that_arrive_together_save_more_than_if_all_had_become_cold(resting, leaving, cpu):
    """And not less than a third of the best set of all of them: more is not promised, and seen is much more."""
    state = feed(open_residency(ResidencyPolicy()), NodeJoined(node_id="n", gpu_bytes=(200,), cpu_bytes=cpu, at=0.0))
    for at, number in sorted((used, number) for number, (_, used) in enumerate(resting)):
        state = deployed(state, f"r{number}", resting[number][0], at)
        state = feed(state, EvictRequested(model=f"r{number}", at=float(at)))
    for at, number in sorted((900 + used, number) for number, (_, used) in enumerate(leaving)):
        state = deployed(state, f"v{number}", leaving[number][0], at)
    now = 2000.0
    before = saved(state, now)
    victims = [each for each in state.replicas.values() if each.level is Level.HOT]
    items = [(each.cpu_bytes, each.last_used) for each in state.replicas.values() if each.level is Level.WARM]
    items += [(state.models[each.model].weight_bytes, each.last_used) for each in victims]
    best = best_of([(size, size * 300.0 / (300.0 + now - used)) for size, used in items], cpu)
    newcomer = ModelSpec(model="new", weight_bytes=200, priority=1)
    after = feed(state, DeployRequested(wanted=(Wanted(spec=newcomer),), at=now))
    assert after.hot_replicas("new")
    assert saved(after, now) * ROUNDING >= before
    assert 3 * saved(after, now) * ROUNDING >= best


def deployed(state, model, size, at):
    return feed(state, DeployRequested(wanted=(Wanted(spec=ModelSpec(model=model, weight_bytes=size)),), at=float(at)))
