"""What the checker demands of a world, asked of worlds that are wrong on purpose."""

from array import array

import attrs
import pytest
from msgspec.structs import replace

from rankcore import core
from rankcore.commands import InitializeReplica, StartReplica
from rankcore.events import ClockAdvanced
from rankcore.invariants import Violation
from rankcore.rules import news
from rankcore.testing.explore import Allowance, Fingerprints, Search, explored
from rankcore.testing.model import Bounds, Coverage, RankSystem, RankWorld, replay, root
from rankcore.testing.model.coverage import NOTE_NAMES, REPLICA_ROW_NAMES, STATUS_NAMES
from rankcore.testing.model.moves import _is_awaited
from rankcore.testing.model.promises import broken_by, unsettled
from rankcore.testing.model.steps import Steps
from rankcore.testing.model.systems import SMALL
from rankcore.testing.model.world import LOST, begin
from rankcore.testing.paths import FAIR_MOVES_MAX, as_test, settle
from rankcore.values import DeploymentStatus, ReplicaRank

pytestmark = pytest.mark.traced

HEALTHY = root(Bounds(replicas=2, healthy=True))


def rules(found: list[Violation]) -> list[str]:
    return [violation.rule for violation in found]


def with_state(world: RankWorld, **changes: object) -> RankWorld:
    return replace(world, state=attrs.evolve(world.state, **changes))


def test_the_newest_announcement_has_to_be_the_target():
    wrong = with_state(replace(HEALTHY, announced=replace_announced(HEALTHY, 3)))
    assert rules(broken_by(HEALTHY, wrong, ())) == ["R9"]


def replace_announced(world: RankWorld, world_size: int):
    return attrs.evolve(world.announced, world_size=world_size)


def test_nothing_newer_than_the_announcement_may_say_another_world_size():
    command = InitializeReplica("llm#1.0", ReplicaRank(0, 0, 0), 3, None, None, HEALTHY.announced.revision + 1, 1)
    wrong = with_state(replace(HEALTHY, commands=(command,)))
    assert rules(broken_by(HEALTHY, wrong, ())) == ["R9"]


def test_that_there_is_no_room_is_awaited_of_those_alone_that_have_no_place():
    beginning, _ = begin(Bounds(replicas=2, scarcity_after_s=2.0))
    start = next(each for each in beginning.commands if isinstance(each, StartReplica))
    assert _is_awaited(beginning, start)
    assert not _is_awaited(HEALTHY, start)  # it runs by then


def test_two_nodes_may_not_believe_one_node_rank_and_one_node_may_have_two():
    one, other = HEALTHY.replicas
    elsewhere = replace(HEALTHY, replicas=(one, replace(other, node_id="b")))
    assert [violation.rule for violation in broken_by(HEALTHY, elsewhere, ())] == ["R3"]
    moved = replace(HEALTHY, replicas=(one, replace(other, rank=ReplicaRank(1, 1, 1))))
    assert not broken_by(HEALTHY, moved, ())


def test_at_rest_the_book_and_the_replicas_have_to_agree():
    one, other = HEALTHY.replicas
    assert not unsettled(HEALTHY)
    lost = replace(HEALTHY, replicas=(one,))
    assert rules(unsettled(lost)) == ["R1"]
    confused = replace(HEALTHY, replicas=(one, replace(other, rank=ReplicaRank(2, 0, 1))))
    assert rules(unsettled(confused)) == ["liveness", "R1"]
    outdated = replace(HEALTHY, replicas=(one, replace(other, version="0")))
    assert rules(unsettled(outdated)) == ["liveness"]


def test_at_rest_nobody_lives_on_in_a_deleted_deployment():
    deleted = with_state(HEALTHY, status=DeploymentStatus.DELETED)
    assert rules(unsettled(deleted)) == ["liveness"]
    assert not unsettled(replace(deleted, replicas=()))


def test_a_circle_without_faults_is_not_at_rest(monkeypatch):
    """A core that never hears of a placement asks for ever, and each of its states looks sound."""
    monkeypatch.setitem(core._HANDLERS, core.ReplicaPlaced, core._about_live(news.late))
    search = Search(RankSystem(Bounds(replicas=1)))
    search.expand(1000)
    assert search.done
    assert search.broken is None
    search.longest_rest()
    assert search.broken is not None
    assert search.broken.settles
    assert f"not at rest after {FAIR_MOVES_MAX} moves" in str(search.broken.violations[0])
    assert "settles=True" in as_test(search.system, search.broken)
    sampled = Search(RankSystem(Bounds(replicas=1)))
    assert sampled.sample(1) == 1
    assert sampled.broken is not None


def test_a_core_that_raises_has_broken_its_promise(monkeypatch):
    def broken(draft, event, replica):
        raise AssertionError("no such thing")

    monkeypatch.setitem(core._HANDLERS, core.ReplicaReady, core._about_live(broken))
    search = Search(RankSystem(Bounds(replicas=1)))
    search.expand(1000)
    assert search.broken is not None
    assert str(search.broken.violations[0]) == "2: the core raised AssertionError: no such thing"
    assert search.broken.moves[-1].startswith("tell ReplicaReady")
    _, violations, _ = settle(RankSystem(Bounds(replicas=1)), root(Bounds(replicas=1)))
    assert rules(violations) == ["2"]


def test_fingerprints_find_each_of_many_at_its_index():

    fingerprints = Fingerprints(array("Q"))
    values = [number * 0x9E3779B97F4A7C15 % 2**64 for number in range(1, 6001)]
    assert [fingerprints.add(value) for value in values] == [(index, True) for index in range(6000)]
    assert [fingerprints.add(value) for value in values] == [(index, False) for index in range(6000)]


def test_coverage_names_rows_and_notes_and_what_is_missing():
    search = Search(RankSystem(Bounds(replicas=1, healthy=True, stops=1, restarts=1, total=2)))
    search.expand(10_000)
    counts = search.exercised
    for name in (
        "REQUESTED --ReplicaPlaced--> PLACED",
        "PLACED --InitializeReplica--> STARTING",
        "RUNNING --StopReplica--> DRAINING",
        "RECOVERING --ReportedReady--> RUNNING",
        "RECOVERING --ReportedDraining--> DRAINING",
        "HEALTHY --> UNHEALTHY",
        "recovery complete",
    ):
        assert counts[name] > 0, name
    assert set(counts) <= {*REPLICA_ROW_NAMES, *STATUS_NAMES, *NOTE_NAMES}
    assert "duplicate found" in Coverage(counts).missing(NOTE_NAMES)
    assert Coverage(counts).missing(NOTE_NAMES) == Coverage(counts.copy()).missing(NOTE_NAMES)


def test_a_lost_node_moves_all_who_were_on_it():
    search = Search(RankSystem(Bounds(replicas=2, healthy=True, node_losses=1, namings=1)))
    search.expand(60)
    assert search.exercised["RUNNING --NodeLost--> STOPPED"] > 0
    path = ["target 1 naming llm#1.0", "hand StopReplica llm#1.0 epoch=1"]
    assert replay(search.system.bounds, path, settles=True).state.ranks["llm#1.1"].rank == 0


PLACED = root(Bounds(replicas=2, bundles=3, healthy=True, bundle_losses=1))


def test_two_may_not_stand_on_one_bundle():
    one, other = PLACED.replicas
    assert rules(broken_by(PLACED, replace(PLACED, replicas=(one, replace(other, bundles=(0,)))), ())) == ["S4"]
    assert not broken_by(PLACED, replace(PLACED, replicas=(one, replace(other, group_id="h", bundles=(0,)))), ())


def test_at_rest_everybody_stands_where_the_spec_says():
    one, other = PLACED.replicas
    assert not unsettled(PLACED)
    assert rules(unsettled(replace(PLACED, replicas=(one, replace(other, bundles=(2,)))))) == ["S2"]


def test_where_only_what_is_lost_can_come_back_the_controller_knows_what_that_is():
    unheard = replace(PLACED, bundles=(LOST, *PLACED.bundles[1:]))
    assert rules(broken_by(PLACED, unheard, ())) == ["S5", "S5"], "it does not know, and somebody lives there"
    nobodys = replace(PLACED, bundles=(*PLACED.bundles[:2], LOST))
    assert not broken_by(PLACED, nobodys, ())
    assert not broken_by(PLACED, with_state(unheard, status=DeploymentStatus.DELETING), ())


def test_a_step_is_taken_and_checked_once():
    told = HEALTHY.steps.take(HEALTHY.state, ClockAdvanced(at=5.0))
    assert HEALTHY.steps.take(HEALTHY.state, ClockAdvanced(at=5.0)) is told
    again = Steps().take(HEALTHY.state, ClockAdvanced(at=5.0))
    assert again is not told
    assert again == told


def test_what_is_remembered_has_an_end(monkeypatch):
    bounds = Bounds(replicas=2, crashes=1)
    whole, forgetful = Search(RankSystem(bounds)), Search(RankSystem(bounds))
    whole.expand(10_000)
    monkeypatch.setattr("rankcore.testing.model.steps.KEPT_MAX", 5)
    forgetful.expand(10_000)
    assert forgetful.fingerprints.all == whole.fingerprints.all


def test_a_node_that_was_lost_before_its_replica_was_heard_of_is_how_that_ended():
    search = Search(RankSystem(Bounds(replicas=1, bundles=1, node_losses=1)))
    search.expand(10_000)
    assert search.exercised["PLACED --EndedWithoutBundle--> FAILED"] > 0
    assert search.exercised["FAILED --BundleRestored--> STOPPED"] > 0
    plain = Search(RankSystem(Bounds(replicas=1, node_losses=1)))
    plain.expand(10_000)
    assert plain.exercised["PLACED --NodeLost--> STOPPED"] > 0


def test_a_report_from_a_node_whose_loss_is_known_is_an_end_too():
    search = Search(RankSystem(Bounds(replicas=1, healthy=True, node_losses=1, restarts=1)))
    search.expand(10_000)
    assert search.exercised["RECOVERING --NodeLost--> STOPPED"] > 0


@pytest.mark.parametrize("name", SMALL)
def test_the_beginning_of_each_small_system_holds(name: str):
    assert explored(RankSystem(SMALL[name]), Allowance(states=60)).broken is None


def test_a_book_that_knows_another_restart_token_than_the_replica_has_is_found():
    one, other = HEALTHY.replicas
    wrong = replace(HEALTHY, replicas=(replace(one, restart_token="monday"), other))
    assert rules(broken_by(HEALTHY, with_state(wrong), ())) == ["V10"]


def test_an_update_that_stands_still_for_want_of_room_and_does_not_say_so_is_found():
    begun = root(SMALL["stalled-restarts"])
    assert rules(unsettled(begun)) == ["V18", "V9"]


def test_a_report_of_one_that_is_prepared_is_a_row_of_its_own():
    search = Search(RankSystem(SMALL["handover-restarts"]))
    search.expand(3_000)
    assert search.exercised["RECOVERING --ReportedPrepared--> PREPARED"]
