"""V14, V15: what cordons, drains and uncordons of one node mean together: each pair by a table, and any number in a row.

`SAID_OF` is the table of docs/rollouts.md, written out: rows are what a node is, columns what is said next.
"""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankcore import DeploymentStatus, NoteKind
from rankcore.commands import KillReplica, StopReplica
from tests.scripted import Deployment

N, GRACE_S = 4, 10.0
DEADLINES = {"by 60": 60.0, "by 120": 120.0, "gone by 60": 60.0, "gone by 120": 120.0}
Say = Callable[[Deployment, float], object]

NEWS: dict[str, Say] = {
    "cordon": lambda d, at: d.cordon("n0", at=at),
    "uncordon": lambda d, at: d.uncordon("n0", at=at),
    "drain": lambda d, at: d.drain("n0", at=at),
    "drain by 60": lambda d, at: d.drain("n0", 60.0, at=at),
    "drain by 120": lambda d, at: d.drain("n0", 120.0, at=at),
    "gone": lambda d, at: d.drain("n0", final=True, at=at),
    "gone by 60": lambda d, at: d.drain("n0", 60.0, final=True, at=at),
    "gone by 120": lambda d, at: d.drain("n0", 120.0, final=True, at=at),
}
SAID_OF: dict[str, dict[str, str]] = {
    row: dict(zip(NEWS, (cell.strip() for cell in cells.split("|")), strict=True))
    for row, cells in {
        #              cordon      | uncordon | drain | drain by 60 | drain by 120 | gone | gone by 60 | gone by 120
        "open": "       cordoned    | open | drained     | by 60      | by 120      | gone        | gone by 60 | gone by 120",
        "cordoned": "   cordoned    | open | drained     | by 60      | by 120      | gone        | gone by 60 | gone by 120",
        "drained": "    drained     | open | drained     | by 60      | by 120      | gone        | gone by 60 | gone by 120",
        "by 60": "      by 60       | open | drained     | by 60      | by 120      | gone by 60  | gone by 60 | gone by 60",
        "by 120": "     by 120      | open | drained     | by 60      | by 120      | gone by 120 | gone by 60 | gone by 120",
        "gone": "       gone        | open | gone        | gone by 60 | gone by 120 | gone        | gone by 60 | gone by 120",
        "gone by 60": " gone by 60  | open | gone by 60  | gone by 60 | gone by 60  | gone by 60  | gone by 60 | gone by 60",
        "gone by 120": "gone by 120 | open | gone by 120 | gone by 60 | gone by 120 | gone by 120 | gone by 60 | gone by 120",
    }.items()
}


def deployment(**spec: object) -> Deployment:
    """Ranks 0 and 2 on n0, 1 and 3 on n1; no time-out is in the way of what a test waits for."""
    d = Deployment.running(
        N, nodes=("n0", "n1"), graceful_shutdown_timeout_s=GRACE_S, surge_patience_s=1000.0, scarcity_after_s=None, **spec
    )
    d.forget()
    return d


def standing(d: Deployment) -> str:
    """What the node is, in the words of the table."""
    node = d.state.nodes["n0"]
    if node.drain is None:
        return "cordoned" if node.cordoned else "open"
    assert node.cordoned
    if node.drain.deadline_at is None:
        return "gone" if node.drain.final else "drained"
    return f"{'gone ' if node.drain.final else ''}by {node.drain.deadline_at:g}"


def there(d: Deployment) -> list[str]:
    return sorted(each.replica_id for each in d.state.replicas.values() if each.node_id == "n0")


@pytest.mark.parametrize("second", NEWS)
@pytest.mark.parametrize("first", NEWS)
def test_a_pair_means_what_the_table_says(first: str, second: str) -> None:
    d = deployment()
    NEWS[first](d, 1.0)
    once = SAID_OF["open"][first]
    assert standing(d) == once
    NEWS[second](d, 2.0)
    expected = SAID_OF[once][second]
    assert standing(d) == expected
    before = there(d)
    asked = {each for each in d.state.tables.evictions.asked if each in before}
    assert asked == (set() if expected in ("open", "cordoned") else set(before)), "nobody is left over from the first"

    d.wait(500.0)  # nobody has a place elsewhere: only a deadline ends anybody
    killed = [command.replica_id for command in d.sent(KillReplica) if command.replica_id in before]
    assert sorted(set(killed)) == (before if expected in DEADLINES else [])
    if expected in DEADLINES:
        stops = [stop for stop in d.sent(StopReplica) if stop.replica_id in before]
        assert {stop.timeout_s for stop in stops} == {GRACE_S}, "each is told to stop a grace before its deadline"
    d.settle()
    assert (there(d) == before) is (expected in ("open", "cordoned"))
    d.uncordon("n0")
    d.settle()
    assert d.status is DeploymentStatus.HEALTHY


@pytest.mark.parametrize("second", NEWS)
@pytest.mark.parametrize("first", NEWS)
def test_one_that_another_has_overtaken_counts_for_nothing(first: str, second: str) -> None:
    d = deployment()
    NEWS[second](d, 2.0)
    state = d.state
    NEWS[first](d, 1.0)
    assert d.state.tables == state.tables
    assert d.noted(NoteKind.LATE)


@given(
    said=st.lists(st.tuples(st.sampled_from(sorted(NEWS)), st.integers(0, 4), st.booleans()), min_size=2, max_size=7),
    hand_over=st.sampled_from(["none", "prepared", "overlap"]),
    updates=st.booleans(),
)
def test_any_number_in_a_row_folds_to_what_the_table_says(
    said: list[tuple[str, int, bool]], hand_over: str, updates: bool
) -> None:
    """Whatever has come of the one before: each step is checked, and in the end all N serve, and nobody on a drained node."""
    d = deployment(hand_over=hand_over, max_surge=1, max_unavailable=0 if hand_over == "overlap" else 1)
    if updates:
        d.change(version="2")
    node = "open"
    for news, answers, waits in said:
        NEWS[news](d, d.now)
        node = SAID_OF[node][news]
        assert standing(d) == node
        for _ in range(answers):
            if d.outstanding:
                d.answer(min(d.outstanding))
        if waits:
            d.wait(15.0)
    d.settle()
    d.wait(200.0)
    d.settle()
    assert d.status is DeploymentStatus.HEALTHY
    assert sorted(d.ranks.values()) == list(range(N))
    assert node in ("open", "cordoned") or not there(d)
