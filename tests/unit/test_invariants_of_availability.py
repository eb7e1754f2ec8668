"""V6 to V8: what is planted in a state or a step is reported by `rankcore.invariants`."""

from typing import Any

import attrs
import pytest
from msgspec.structs import replace

from rankcore import DeploymentState, DeploymentStatus, Step, step
from rankcore.commands import StartReplica
from rankcore.events import ClockAdvanced, ReplicaDied, SpecChanged
from rankcore.frozen import EMPTY
from rankcore.invariants import check, check_step
from rankcore.timers import Queue
from tests.scripted import Deployment


def with_tables(state: DeploymentState, **changes: Any) -> DeploymentState:
    return attrs.evolve(state, tables=replace(state.tables, **changes))


def reported(before: DeploymentState, event: Any, result: Step) -> list[str]:
    return [str(each) for each in check_step(before, event, result)]


def test_a_healthy_deployment_that_owes_an_acknowledgement_is_reported() -> None:
    d = Deployment.running(1)
    d.change(user_config={"a": 1})
    assert d.status is DeploymentStatus.UPDATING
    forged = attrs.evolve(d.state, status=DeploymentStatus.HEALTHY)
    assert [str(each) for each in check(forged)] == ["V6: HEALTHY, and ['llm#1.0'] have not acknowledged the user_config"]


def test_who_owes_a_user_config_and_is_not_noted_is_reported() -> None:
    d = Deployment.running(1)
    d.change(user_config={"a": 1})
    found = check(with_tables(d.state, configuring=EMPTY))
    assert "configuring is {}, expected {'llm#1.0': 0}" in [each.detail for each in found]


def test_who_matures_and_is_not_noted_is_reported() -> None:
    d = Deployment.running(1, min_ready_s=10.0)
    found = check(with_tables(d.state, maturing=Queue()))
    assert [each.rule for each in found] == ["index"]
    assert found[0].detail.startswith("maturing is {}")


def test_a_build_that_is_proven_too_early_is_reported() -> None:
    d = Deployment.running(1, min_ready_s=10.0)
    d.wait(10.0)
    d.change(version="2")
    d.settle()
    event = ClockAdvanced(at=d.now + 1.0)
    honest = step(d.state, event)
    assert reported(d.state, event, honest) == []
    state = with_tables(honest.state, proven=d.state.spec)
    found = reported(d.state, event, honest._replace(state=state))
    assert found == [f"V7: {d.state.spec.build} is proven, and nobody was ready on it for 10 s"]
    state = with_tables(honest.state, previous=d.state.spec)
    found = reported(d.state, event, honest._replace(state=state))
    assert found == [f"V7: {d.state.spec.build} is taken for healthy, and 0 of 1 are available"]


def with_served(state: DeploymentState, rank: int, served_s: float) -> DeploymentState:
    slot = replace(state.tables.slots[rank], failed_build=state.spec.build, served_s=served_s)
    return with_tables(state, slots=state.tables.slots.set(rank, slot))


def test_a_build_that_is_proven_by_too_short_a_sum_is_reported() -> None:
    d = Deployment.running(1, min_ready_s=10.0)
    event = ClockAdvanced(at=1.0)
    for served_s, proves in ((9.0, False), (10.0, True)):
        before = with_served(d.state, 0, served_s)
        honest = step(before, event)
        proven = with_tables(honest.state, proven=d.state.spec)
        found = reported(before, event, honest._replace(state=proven))
        assert (found == []) == proves, found


@pytest.mark.parametrize("target", [1, 0])
def test_ready_time_that_nobody_served_is_reported(target: int) -> None:
    d = Deployment.running(1, min_ready_s=10.0)
    before = with_served(d.state, 0, 2.0)
    event = SpecChanged(spec=attrs.evolve(d.state.spec, target_replicas=target), at=3.0)
    honest = step(before, event)
    assert reported(before, event, honest) == []
    tables, most_s = honest.state.tables, 2.0 if target else 5.0
    longer = replace(tables.slots.get(0) or tables.former[0], served_s=most_s + 1.0)
    forged = {"slots": tables.slots.set(0, longer)} if target else {"former": tables.former.set(0, longer)}
    found = reported(before, event, honest._replace(state=with_tables(honest.state, **forged)))
    said = f"V7: {d.state.spec.build} was ready in one slot for {most_s + 1:g} s, of {most_s:g} s that anybody was"
    assert said in found


def test_one_ready_time_that_two_slots_have_is_reported() -> None:
    d = Deployment.running(2, min_ready_s=10.0)
    before = with_served(d.state, 0, 2.0)
    event = SpecChanged(spec=attrs.evolve(d.state.spec, victims="newest"), at=3.0)
    honest = step(before, event)
    moved = with_served(with_served(honest.state, 0, 0.0), 1, 2.0)
    assert reported(before, event, honest._replace(state=moved)) == []
    (found,) = reported(before, event, honest._replace(state=with_served(honest.state, 1, 2.0)))
    assert "was ready in one slot for 2 s, of 0 s" in found


def test_a_failure_that_leaves_what_was_served_is_reported() -> None:
    d = Deployment.running(1, min_ready_s=10.0)
    before = with_served(d.state, 0, 2.0)
    event = ReplicaDied(replica_id="llm#1.0", at=d.now)
    honest = step(before, event)
    assert reported(before, event, honest) == []
    (found,) = reported(before, event, honest._replace(state=with_served(honest.state, 0, 2.0)))
    assert ", and 2 s that were served before, expected 1 of " in found


def test_a_failure_that_is_not_counted_is_reported() -> None:
    d = Deployment.running(2)
    event = ReplicaDied(replica_id="llm#1.0", at=d.now)
    honest = step(d.state, event)
    assert reported(d.state, event, honest) == []
    slots = honest.state.tables.slots
    forged = with_tables(honest.state, slots=slots.set(0, replace(slots[0], failures=0, failed_build=None)))
    (found,) = reported(d.state, event, honest._replace(state=forged))
    assert found.startswith("2.3: llm#1.0 failed: 0 failures of None until 0, expected 1 of ")


def test_a_start_before_its_wait_is_over_is_reported() -> None:
    d = Deployment.running(1)
    d.die("llm#1.0")
    d.die("llm#1.1")
    assert d.state.holder_of(0) is None
    event = ClockAdvanced(at=2.0)
    honest = step(d.state, event)
    assert [type(each) for each in honest.commands if isinstance(each, StartReplica)] == [StartReplica]
    assert reported(d.state, event, honest) == []
    slots = d.state.tables.slots
    later = with_tables(d.state, slots=slots.set(0, replace(slots[0], retry_at=3.0)))
    assert "2.3: rank 0 is started at 2, and rests until 3" in reported(later, event, honest)
