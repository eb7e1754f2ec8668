"""The checker can fail: bugs planted in the core, one at a time, and each is found with a short path that is a test."""

import subprocess
import sys
from itertools import count
from pathlib import Path

import attrs
import pytest
from msgspec.structs import replace

from rankcore import core
from rankcore.book import bundles, replicas, slots
from rankcore.events import NodeLost, ReplicaUnready, TrialRequested
from rankcore.frozen import PMap
from rankcore.invariants import indexes
from rankcore.notes import NoteKind
from rankcore.rules import (
    bind,
    compact,
    conclude,
    endings,
    fill,
    machines,
    messages,
    news,
    prepare,
    recovery,
    scarcity,
    static,
    timeouts,
    unready,
)
from rankcore.state import BundleNews, Node
from rankcore.testing.explore import Search
from rankcore.testing.model import Bounds, RankSystem, replay
from rankcore.testing.model.systems import SMALL
from rankcore.testing.paths import BrokenPromiseError, NoSuchMoveError, as_test
from rankcore.values import Leaving

pytestmark = pytest.mark.traced


def a_rank_is_released_before_its_replica_has_stopped(monkeypatch):
    honest = replicas.outside_slot

    def outside_slot(replica):
        return () if replica.leaving is Leaving.RELEASE else honest(replica)

    monkeypatch.setattr(replicas, "outside_slot", outside_slot)
    monkeypatch.setattr(indexes, "outside_slot", outside_slot)


def the_rank_of_the_dead_is_not_kept(monkeypatch):
    def pass_on(draft, rank, gone):
        slots.close_slot(draft, rank)

    monkeypatch.setattr(endings, "_pass_on", pass_on)


def a_kept_rank_counts_as_free(monkeypatch):
    honest = slots.unseat

    def unseat(draft, rank, holder):
        honest(draft, rank, holder)
        draft.taken = draft.taken.discard(rank)

    monkeypatch.setattr(slots, "unseat", unseat)


def what_a_replica_may_still_believe_is_forgotten(monkeypatch):
    def forgetful(draft, replica, rank, config_id):
        told = messages.reconfigure(draft, replica, rank, config_id)
        new = replicas.write(draft, replace(told, believed=()))
        replicas.believe(draft, told, new)
        return new

    for module in (compact, fill, recovery):
        monkeypatch.setattr(module, "reconfigure", forgetful)


def any_acknowledgement_counts_for_the_latest_command(monkeypatch):
    honest = news.on_reconfigured

    def credulous(draft, event, replica):
        honest(draft, attrs.evolve(event, revision=replica.revision), replica)

    monkeypatch.setitem(core._HANDLERS, core.ReplicaReconfigured, core._about_live(credulous))


def ranks_are_given_out_once_reports_are_overdue(monkeypatch):
    def expire_reports(draft):
        if draft.recovery.reports_due_at is not None and draft.clock >= draft.recovery.reports_due_at:
            draft.recovery = replace(draft.recovery, reports_due_at=None, unreported=PMap())

    monkeypatch.setattr(timeouts, "_expire_reports", expire_reports)


def nobody_asks_to_be_woken(monkeypatch):
    monkeypatch.setattr(conclude, "_ask_to_be_woken", lambda draft: None)


def a_lost_node_takes_along_who_came_after_the_loss(monkeypatch):
    def on_node_lost(draft, event):
        machines.on_node_lost(draft, attrs.evolve(event, at=draft.clock + 0.5))

    monkeypatch.setitem(core._HANDLERS, NodeLost, on_node_lost)


def both_of_two_duplicates_keep_their_rank(monkeypatch):
    def lose(draft, replica):
        return replicas.write(draft, replica)

    monkeypatch.setattr(recovery, "_lose", lose)


def a_failed_start_is_never_tried_again(monkeypatch):
    monkeypatch.setattr(timeouts, "_expire_retries", lambda draft: None)


def a_suspect_is_replaced_before_it_is_gone(monkeypatch):
    def on_unhealthy(draft, event, replica):
        endings.ended(draft, replica, "unhealthy")

    monkeypatch.setitem(core._HANDLERS, core.ReplicaUnhealthy, core._about_live(on_unhealthy))


def compaction_takes_what_somebody_may_still_believe(monkeypatch):
    honest = compact.close_gaps

    def close_gaps(ranks, *others):
        return honest(replace(ranks, free=count()), *others)

    monkeypatch.setattr(compact, "close_gaps", close_gaps)


def what_is_not_acknowledged_is_never_repeated(monkeypatch):
    def repeat_one(draft, replica):
        return replicas.write(draft, replace(replica, sent_at=draft.clock))

    monkeypatch.setattr(timeouts, "_repeat_one", repeat_one)


def who_stands_on_a_lost_bundle_lives_on(monkeypatch):
    monkeypatch.setattr(static, "_strike", lambda draft, bundle: None)


def the_failed_are_forgotten_when_their_bundle_is_back(monkeypatch):
    monkeypatch.setattr(static, "_revive", lambda draft, rank, because: None)


def a_rank_is_started_where_another_still_stands(monkeypatch):
    def obstacle(draft, rank):
        lost = [bundle for bundle in draft.spec.place_of(rank)[1] if bundles.is_lost(draft, bundle)]
        return f"bundle {lost[0]} is lost" if lost else None

    monkeypatch.setattr(bundles, "obstacle", obstacle)
    monkeypatch.setattr(indexes, "check_bundles", lambda state: [])


def who_stands_elsewhere_than_the_spec_says_is_overlooked(monkeypatch):
    monkeypatch.setattr(bundles, "notice_misfit", lambda draft, rank, holder: None)
    monkeypatch.setattr(indexes, "check_bundles", lambda state: [])


def news_from_before_a_group_was_named_counts(monkeypatch):
    honest = bundles.follow_spec

    def follow_spec(draft):
        honest(draft)
        draft.bundles = replace(draft.bundles, since=0.0)

    monkeypatch.setattr(bundles, "follow_spec", follow_spec)


def a_node_that_was_lost_before_a_group_was_named_takes_its_bundle_along(monkeypatch):
    def lose_with_node(draft, replica, node_id, at):
        if replica.bundles and replica.group_id == draft.bundles.group_id:
            static._lose(draft, replica.bundles[0], BundleNews(lost=True, at=at))

    monkeypatch.setattr(static, "lose_with_node", lose_with_node)


def a_node_takes_a_bundle_along_that_is_back_on_another(monkeypatch):
    def lose_with_node(draft, replica, node_id, at):
        if replica.bundles and replica.group_id == draft.bundles.group_id and at >= draft.bundles.since:
            static._lose(draft, replica.bundles[0], BundleNews(lost=True, at=at))

    monkeypatch.setattr(static, "lose_with_node", lose_with_node)


def a_bundle_that_is_back_is_lost_again_by_older_news(monkeypatch):
    def lose(draft, bundle, news):
        bundles.set_news(draft, bundle, news)
        return True

    monkeypatch.setattr(static, "_lose", lose)


def ranks_are_packed_without_a_look_at_the_room(monkeypatch):
    def choose_node(draft, rank):
        return draft.node_ids[0] if draft.spec.placement == "pack_ranks" else None

    monkeypatch.setattr(fill, "choose_node", choose_node)


def the_room_for_who_is_on_its_way_is_given_away(monkeypatch):
    def room(node):
        return max(0, (node.capacity or 0) - len(node.members))

    monkeypatch.setattr(Node, "room", property(room))


def successors_have_eyes_for_their_own_rank_only(monkeypatch):
    monkeypatch.setattr(core, "bind", lambda draft: None)


def predecessors_go_as_soon_as_their_successor_is_prepared(monkeypatch):
    def notice_ripe(draft, replica):
        if replica.slot is not None and slots.is_successor(draft, replica):
            slots.set_stoppable(draft, replica.slot)

    monkeypatch.setattr(prepare, "notice_ripe", notice_ripe)


def who_is_found_prepared_succeeds_whom_it_likes(monkeypatch):
    monkeypatch.setattr(prepare, "_unfilled", lambda draft, found: None)
    monkeypatch.setattr(prepare, "_to_be_succeeded", lambda draft, found: 0)


def starved_ranks_are_left_alone(monkeypatch):
    monkeypatch.setattr(scarcity, "_mover", lambda draft, places: None)


def ranks_above_those_that_have_no_place_are_initialised(monkeypatch):
    monkeypatch.setattr(bind, "_take_lowest_rank", lambda draft, placed: None)


def nobody_stops_by_itself(monkeypatch):
    def on_stopped(draft, event, replica):
        if replica.leaving is not None:
            endings.ended(draft, replica, "stopped")

    monkeypatch.setitem(core._HANDLERS, core.ReplicaStopped, core._about_live(on_stopped))


def what_was_given_up_is_tried_again_beside_others(monkeypatch):
    def on_trial_requested(draft, _event):
        replica = fill.start(draft, 0, draft.spec)
        seat = slots.seat if 0 in draft.slots else slots.open_held
        seat(draft, 0, replica)
        draft.note(NoteKind.RANK_CHOSEN, "2.3", replica.replica_id, "tried once more", rank=0)

    monkeypatch.setitem(core._HANDLERS, TrialRequested, on_trial_requested)


def who_takes_no_requests_is_not_heard(monkeypatch):
    monkeypatch.setitem(core._HANDLERS, ReplicaUnready, core._about_live(unready.late))


PLANTED = {
    who_takes_no_requests_is_not_heard: ("V16", Bounds(replicas=1, healthy=True, unreadies=1)),
    what_was_given_up_is_tried_again_beside_others: (
        "R3",
        Bounds(replicas=2, failures=1, trials=1, max_start_failures=1),
    ),
    a_rank_is_released_before_its_replica_has_stopped: ("R3", Bounds(replicas=2, healthy=True, changes=2)),
    the_rank_of_the_dead_is_not_kept: ("R6", Bounds(replicas=2, healthy=True, restarts=1, crashes=1)),
    a_kept_rank_counts_as_free: ("index", Bounds(replicas=2, crashes=1)),
    what_a_replica_may_still_believe_is_forgotten: ("R3", Bounds(replicas=2, healthy=True, namings=1, changes=1)),
    any_acknowledgement_counts_for_the_latest_command: ("liveness", Bounds(replicas=1, healthy=True, configs=2, losses=1)),
    ranks_are_given_out_once_reports_are_overdue: ("R3", Bounds(replicas=2, healthy=True, restarts=1, delays=2)),
    nobody_asks_to_be_woken: ("2.4", Bounds(replicas=1)),
    a_lost_node_takes_along_who_came_after_the_loss: ("liveness", Bounds(replicas=1, healthy=True, node_losses=1, changes=1)),
    both_of_two_duplicates_keep_their_rank: ("R3", Bounds(replicas=2, healthy=True, duplicates=1)),
    a_failed_start_is_never_tried_again: ("index", Bounds(replicas=1, failures=1)),
    a_suspect_is_replaced_before_it_is_gone: ("R3", Bounds(replicas=1, healthy=True, suspicions=1)),
    compaction_takes_what_somebody_may_still_believe: ("R3", Bounds(replicas=3, healthy=True, namings=1)),
    what_is_not_acknowledged_is_never_repeated: ("2.4", Bounds(replicas=1, healthy=True, losses=1, changes=1)),
    nobody_stops_by_itself: ("R1", Bounds(replicas=1, healthy=True, exits=1)),
    who_stands_on_a_lost_bundle_lives_on: ("S5", Bounds(replicas=1, bundles=1, bundle_losses=1)),
    the_failed_are_forgotten_when_their_bundle_is_back: ("S5", Bounds(replicas=1, bundles=1, healthy=True, bundle_losses=1)),
    a_rank_is_started_where_another_still_stands: ("S4", Bounds(replicas=2, bundles=2, healthy=True, mappings=1)),
    who_stands_elsewhere_than_the_spec_says_is_overlooked: ("S2", Bounds(replicas=1, bundles=2, healthy=True, mappings=1)),
    news_from_before_a_group_was_named_counts: (
        "liveness",
        Bounds(replicas=1, bundles=1, healthy=True, mappings=2, bundle_losses=1),
    ),
    a_node_that_was_lost_before_a_group_was_named_takes_its_bundle_along: (
        "S5",
        Bounds(replicas=1, bundles=1, healthy=True, mappings=2, node_losses=1),
    ),
    a_node_takes_a_bundle_along_that_is_back_on_another: (
        "liveness",
        Bounds(replicas=1, nodes=2, bundles=1, healthy=True, node_losses=1, bundle_losses=1),
    ),
    a_bundle_that_is_back_is_lost_again_by_older_news: ("liveness", Bounds(replicas=1, bundles=1, bundle_losses=1)),
    successors_have_eyes_for_their_own_rank_only: ("liveness", SMALL["surge-full"]),
    predecessors_go_as_soon_as_their_successor_is_prepared: ("V4", SMALL["handover"]),
    who_is_found_prepared_succeeds_whom_it_likes: ("V14", SMALL["handover-restarts"]),
    starved_ranks_are_left_alone: ("V18", SMALL["scarce"]),
    ranks_above_those_that_have_no_place_are_initialised: ("V18", Bounds(replicas=2, rooms=1, parking=True)),
    ranks_are_packed_without_a_look_at_the_room: ("liveness", Bounds(replicas=2, nodes=2, rooms=1)),
    the_room_for_who_is_on_its_way_is_given_away: ("liveness", Bounds(replicas=2, nodes=2, rooms=1)),
}


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_found_with_a_short_path_that_is_a_test(plant, monkeypatch):
    rule, bounds = PLANTED[plant]
    with monkeypatch.context() as planting:
        plant(planting)
        search = Search(RankSystem(bounds))
        search.expand(10_000)
        search.longest_rest()
        broken = search.broken
        assert broken is not None, f"not found in {search.worlds} worlds"
        assert rule in {violation.rule for violation in broken.violations}, broken.violations
        assert len(broken.moves) <= 16
        test = {}
        exec(as_test(search.system, broken), test)
        with pytest.raises(BrokenPromiseError):
            test["test_a_path_found_by_the_checker"]()
    assert not _breaks(bounds, broken), "the path breaks a promise of the honest core as well"


def _breaks(bounds, broken):
    try:
        replay(bounds, broken.moves, settles=broken.settles)
    except NoSuchMoveError:
        return False  # the honest core decides otherwise on the way
    except BrokenPromiseError:
        return True
    return False


def test_the_printed_test_is_one_that_pytest_runs(tmp_path: Path, monkeypatch):
    """And it passes once the bug is gone."""
    with monkeypatch.context() as planting:
        a_suspect_is_replaced_before_it_is_gone(planting)
        search = Search(RankSystem(PLANTED[a_suspect_is_replaced_before_it_is_gone][1]))
        search.expand(10_000)
    assert search.broken is not None
    kept = attrs.evolve(search.broken, moves=search.broken.moves[:2])  # as far as the honest core goes along
    (tmp_path / "test_found.py").write_text(as_test(search.system, kept))
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--no-cov",
        "--rootdir",
        str(tmp_path),
        str(tmp_path),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout
