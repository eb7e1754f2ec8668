"""The figures of a run that say who served meanwhile: fewest at once, time below N - U, time of updates."""

import pytest

from executors.simulator.record.availability import Availability
from rankcore import DeploymentStatus
from tests.scripted import Deployment
from tests.unit.test_simulated_faults import WORLD, one_fault, result_of


def test_who_comes_up_for_the_first_time_is_not_missed():
    seen = Availability()
    seen.want(0.0, 4, 3)
    for at, running in ((1.0, 1), (2.0, 2), (3.0, 3), (5.0, 4)):
        seen.runs(at, running)
    seen.finish(9.0)
    assert (seen.least, seen.below.total_s) == (4, 0.0)


def test_time_below_the_floor_counts_from_when_it_was_reached_to_when_it_is_again():
    seen = Availability()
    seen.want(0.0, 4, 3)
    for at, running in ((1.0, 4), (4.0, 2), (5.0, 1), (7.0, 3), (8.0, 2)):
        seen.runs(at, running)
    seen.finish(10.0)
    assert (seen.least, seen.below.total_s) == (1, 3.0 + 2.0)


def test_a_higher_floor_has_to_be_reached_and_a_lower_one_is():
    seen = Availability()
    seen.want(0.0, 3, 2)
    seen.runs(1.0, 3)
    seen.want(2.0, 6, 5)
    seen.runs(4.0, 5)
    seen.want(6.0, 2, 1)
    seen.runs(7.0, 0)
    seen.finish(9.0)
    assert (seen.least, seen.below.total_s) == (0, 2.0)


def test_where_nobody_ever_came_up_there_is_no_fewest():
    seen = Availability()
    seen.want(0.0, 3, 2)
    seen.runs(1.0, 1)
    seen.finish(9.0)
    assert (seen.least, seen.below.total_s) == (None, 0.0)


def test_fewer_than_all_count_for_the_floor_and_not_for_the_fewest_until_all_were_up():
    seen = Availability()
    seen.want(0.0, 4, 3)
    for at, running in ((1.0, 3), (2.0, 2), (3.0, 4), (5.0, 3)):
        seen.runs(at, running)
    seen.finish(9.0)
    assert (seen.least, seen.below.total_s) == (3, 1.0)


def test_a_crash_is_time_below_the_floor_and_no_update():
    figures = result_of(one_fault("replica_crash", 100, deployment="llm", rank=0)).deployments[0]
    assert (figures.least_running, figures.below_floor_s, figures.update_s) == (2, 0.0, 0.0), "N - U is 2 of 3"
    both = one_fault("replica_crash", 100, deployment="llm", rank=0) + (
        "  - {kind: replica_crash, at: 100, deployment: llm, rank: 1}\n"
    )
    both = both.replace("[{", "\n  - {", 1).replace("}]", "}", 1)
    figures = result_of(both).deployments[0]
    assert (figures.least_running, figures.below_floor_s) == (1, 4.5)


@pytest.mark.parametrize("change", ["version: '2'", "user_config: {a: 1}", "restart_token: again"])
def test_an_update_takes_until_everybody_has_it(change):
    result = result_of(f"changes: [{{at: 100, deployment: llm, {change}}}]\n", world=WORLD)
    figures = result.deployments[0]
    assert 0.0 < figures.update_s < 60.0
    assert figures.below_floor_s == 0.0


def test_a_replacement_that_finds_no_place_is_no_part_of_an_update():
    seen, d = Availability(), Deployment.running(2, max_unavailable=1)
    seen.follow(0.0, d.state)
    d.change(version="2")
    seen.follow(10.0, d.state)
    for replica_id in ("llm#1.0", "llm#1.2", "llm#1.2"):
        d.answer(replica_id)
    d.replace("llm#1.2")
    waits = next(iter(each.successor for _, each in d.state.tables.slots.items() if each.successor))
    seen.follow(13.0, d.state)
    d.settle(except_for=[waits])
    assert {each.version for each in d.state.replicas.values()} == {"2"}
    assert d.status is DeploymentStatus.UPDATING
    seen.follow(14.0, d.state)
    seen.finish(100.0)
    assert seen.updating.total_s == 4.0


def test_a_change_of_the_target_is_no_update():
    figures = result_of("changes: [{at: 100, deployment: llm, target_replicas: 2}]\n").deployments[0]
    assert figures.update_s == 0.0
