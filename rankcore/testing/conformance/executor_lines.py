"""The executor's half of section 2.4, a case for each thing that a line asks for."""

import math
from collections import Counter

from msgspec.structs import replace

from rankcore.commands import AnnounceWorldSize, KillReplica, QueryReplica, StopReplica, WakeAt
from rankcore.events import (
    BundleLost,
    BundleRestored,
    ClockAdvanced,
    ReplicaMissing,
    ReplicaPlaced,
    ReplicaReady,
    ReplicaReported,
    ReplicaStartFailed,
    ReplicaStopped,
    ReplicaUnhealthy,
    ReplicaUnready,
)
from rankcore.testing.conformance.contract import FIRST_EPOCH, LONG_S, ContractCase, Line, Seat
from rankcore.values import ReplicaId

OLD = FIRST_EPOCH - 1
UNKNOWN = "conformance#1.99"
NO_NODE = "f" * 56
"""Of no cluster; the ids that Ray gives its nodes are as long."""
WAVE = 10
REPLACED_S = 3.0
"""For so long a case looks whether a controller that was replaced ends somebody after all."""


# -- the fence


def a_start_of_an_older_epoch_comes_to_nothing(seat: Seat) -> None:
    """Who is started after it is there, and it is not."""
    seat.placed(0)
    old = seat.start_of(1, epoch=OLD)
    seat.do(old)
    seat.placed(2)
    seat.deny(f"no {old.replica_id}, which epoch {OLD} started", old.replica_id in seat.alive())


def a_stop_and_a_kill_of_an_older_epoch_end_nobody(seat: Seat) -> None:
    """The replica goes on."""
    one = seat.running(0)
    seat.do(StopReplica(one, 0.0, OLD))
    seat.do(KillReplica(one, OLD))
    seat.placed(1)
    seat.deny(f"{one} to live on", one not in seat.alive() or bool(seat.ends(one)))


def a_replaced_controller_ends_nobody(seat: Seat) -> None:
    """Whether or not the replicas have heard of the newer one: not at once, nor when a stop would be cut short."""
    ids = seat.placed_all(range(6))
    newer = seat.successor()
    for one, two, three in (ids[:3], ids[3:]):
        seat.do(KillReplica(one, seat.epoch))
        seat.do(StopReplica(two, LONG_S, seat.epoch))
        seat.do(StopReplica(three, 0.2, seat.epoch))
        for each in ids[3:]:
            newer.ask_for(ReplicaReported, QueryReplica(each, newer.epoch))
    until = seat.bench.now() + REPLACED_S

    def over() -> bool:
        seat.look()
        return seat.bench.now() > until

    newer.expect(f"{REPLACED_S:g} s to be over", over)
    there = newer.alive()
    gone = [each for each in ids if each not in there or there[each].draining or newer.ends(each)]
    newer.deny(f"nobody to end for epoch {seat.epoch}, which was replaced, found {gone}", bool(gone))


def a_world_size_of_an_older_epoch_is_not_kept(seat: Seat) -> None:
    """Who comes later hears the newest one."""
    seat.do(seat.announcement(5))
    seat.do(AnnounceWorldSize(9, seat.next_revision(), OLD))
    one = seat.placed(0)
    seat.expect(f"{one} to know the world size 5", lambda: seat.knows(one, 5))


def an_alarm_of_an_older_epoch_is_not_set(seat: Seat) -> None:
    """The one that was set before still rings."""
    seat.do(WakeAt(seat.bench.now() + 0.2, seat.epoch))
    seat.do(WakeAt(seat.bench.now() + LONG_S, OLD))
    seat.expect("ClockAdvanced", lambda: _rung(seat))


def what_a_replaced_controller_starts_does_not_come_up(seat: Seat) -> None:
    """Not even where its executor has not heard of the new epoch."""
    seat.running(0)
    newer = seat.successor()
    late = seat.start_of(1)
    seat.do(late)
    newer.placed(2)
    newer.deny(f"no {late.replica_id}: epoch {newer.epoch} had begun", late.replica_id in newer.alive())


def everybody_who_lives_is_found(seat: Seat) -> None:
    """Whether or not it was initialised; and each answers the one who found it."""
    known = {seat.running(0), seat.placed(1)}
    newer = seat.successor()
    found = set(seat.bench.survivors())
    newer.deny(f"survivors {sorted(known)}, found {sorted(found)}", not known <= found)
    for each in sorted(known):
        newer.ask_for(ReplicaReported, QueryReplica(each, newer.epoch))


# -- ends


def the_death_of_a_running_replica_is_told(seat: Seat) -> None:
    """Killed from outside."""
    one = seat.running(0)
    seat.bench.kill(one)
    seat.expect(f"final news of {one}", lambda: bool(seat.ends(one)))


def the_death_of_a_placed_replica_is_told(seat: Seat) -> None:
    """Before it was initialised."""
    one = seat.placed(0)
    seat.bench.kill(one)
    seat.expect(f"final news of {one}", lambda: bool(seat.ends(one)))


def the_death_of_a_survivor_is_told_to_who_took_it_over(seat: Seat) -> None:
    """It is not the process that started it who has to notice."""
    one = seat.running(0)
    newer = seat.successor()
    newer.ask_for(ReplicaReported, QueryReplica(one, newer.epoch))
    newer.bench.kill(one)
    newer.expect(f"final news of {one}", lambda: bool(newer.ends(one)))


def a_failed_start_is_told(seat: Seat) -> None:
    """Once its process is gone."""
    one = seat.placed(0)
    seat.bench.fail_starts(1)
    seat.ask_for(ReplicaStartFailed, seat.initialization(one, 0))


def a_stop_is_answered(seat: Seat) -> None:
    """With ReplicaStopped."""
    one = seat.running(0)
    seat.ask_for(ReplicaStopped, StopReplica(one, LONG_S, seat.epoch))


def a_kill_is_answered_even_while_user_code_runs(seat: Seat) -> None:
    """With ReplicaStopped."""
    one = seat.placed(0)
    seat.bench.slow(LONG_S)
    seat.do(seat.initialization(one, 0))
    seat.ask_for(ReplicaStopped, KillReplica(one, seat.epoch))


def the_loss_of_a_node_is_told(seat: Seat) -> None:
    """As NodeLost, or of each that was there."""
    ids = [seat.placed(serial) for serial in range(4)]
    there = {report.replica_id: report.node_id for report in seat.bench.replicas()}
    ((lost, _),) = Counter(there[each] for each in ids).most_common(1)
    seat.bench.lose_node(lost)

    def known() -> bool:
        return seat.has_lost(lost) or all(seat.ends(each) for each in ids if there[each] == lost)

    seat.expect(f"NodeLost of {lost}, or an end of each replica there", known)


def forty_ends_are_all_told(seat: Seat) -> None:
    """By one executor, ten of each kind, of replicas that are there at the same time; none is told of who lives."""
    (lives,) = seat.placed_all((40,))

    def wave(number: int) -> list[ReplicaId]:
        return seat.placed_all(range(number * WAVE, (number + 1) * WAVE))

    killed = wave(0)
    for each in killed:
        seat.bench.kill(each)
    seat.expect(f"final news of {killed}", lambda: all(seat.ends(each) for each in killed))
    stopped = wave(1)
    stops = [StopReplica(each, LONG_S, seat.epoch) for each in stopped]
    seat.ask_all(stops, f"final news of {stopped}", lambda: all(seat.ends(each) for each in stopped))
    ended = wave(2)
    kills = [KillReplica(each, seat.epoch) for each in ended]
    seat.ask_all(kills, f"final news of {ended}", lambda: all(seat.ends(each) for each in ended))
    failed = wave(3)
    seat.bench.fail_starts(WAVE)
    starts = [seat.initialization(each, rank) for rank, each in enumerate(failed)]
    seat.ask_all(starts, f"ReplicaStartFailed of {failed}", lambda: all(seat.told(ReplicaStartFailed, each) for each in failed))
    seat.deny(f"no end of {lives}", bool(seat.ends(lives)) or lives not in seat.alive())


def the_death_of_one_is_not_that_of_its_node(seat: Seat) -> None:
    """Another one lives on there."""
    one = seat.placed(0)
    node_id = seat.report_of(one).node_id
    others = [seat.placed(serial) for serial in (1, 2)]
    seat.bench.kill(one)
    seat.expect(f"final news of {one}", lambda: bool(seat.ends(one)) or seat.has_lost(node_id))
    seat.deny(f"no end of {others}", any(seat.ends(each) for each in others))


def an_end_is_told_when_clean_up_is_over(seat: Seat) -> None:
    """And not when it begins."""
    one = seat.running(0)
    seat.bench.slow(0.5)
    seat.ask_for(ReplicaStopped, StopReplica(one, LONG_S, seat.epoch))


def a_slow_start_is_no_end(seat: Seat) -> None:
    """It becomes ready."""
    one = seat.placed(0)
    seat.bench.slow(1.5)
    seat.ask_for(ReplicaReady, seat.initialization(one, 0))
    seat.deny(f"no end of {one}", bool(seat.ends(one)))


def who_was_never_initialised_is_not_missing(seat: Seat) -> None:
    """It reports that it has no rank."""
    one = seat.placed(0)
    seat.ask_for(ReplicaReported, QueryReplica(one, seat.epoch))
    seat.deny("a report without a rank", any(event.rank is not None for event in seat.told(ReplicaReported, one)))


# -- answers


def a_stop_of_something_unknown_is_answered(seat: Seat) -> None:
    """With ReplicaStopped."""
    seat.ask_for(ReplicaStopped, StopReplica(UNKNOWN, 1.0, seat.epoch))


def a_kill_of_something_unknown_is_answered(seat: Seat) -> None:
    """With ReplicaStopped."""
    seat.ask_for(ReplicaStopped, KillReplica(UNKNOWN, seat.epoch))


def a_query_of_something_unknown_is_answered(seat: Seat) -> None:
    """With ReplicaMissing."""
    seat.ask_for(ReplicaMissing, QueryReplica(UNKNOWN, seat.epoch))


def stop_and_query_of_one_that_has_ended_are_answered(seat: Seat) -> None:
    """As if it had never been."""
    one = seat.placed(0)
    seat.dismiss(one)
    seat.ask_again(ReplicaStopped, StopReplica(one, 1.0, seat.epoch))
    seat.ask_for(ReplicaMissing, QueryReplica(one, seat.epoch))


def a_repeated_start_is_answered_with_the_place(seat: Seat) -> None:
    """There is one replica, and it is the one that there was."""
    one = seat.running(0)
    seat.ask_again(ReplicaPlaced, seat.start_of(0))
    seat.deny(f"{one} to be the one that believes rank 0", not seat.believes(one, 0))


def a_repeated_start_of_one_that_has_ended_is_answered_with_its_end(seat: Seat) -> None:
    """It does not come back."""
    one = seat.running(0)
    seat.dismiss(one)
    ends = len(seat.ends(one))
    seat.ask(seat.start_of(0), f"an end of {one} again", lambda: len(seat.ends(one)) > ends)
    seat.placed(1)
    seat.deny(f"{one} to stay gone", one in seat.alive())


def a_named_node_is_where_it_goes(seat: Seat) -> None:
    """However many are there already. Where there is no such node it goes nowhere."""
    for first, node_id in zip((0, 4), sorted(seat.bench.nodes()), strict=False):
        ids = seat.placed_all(range(first, first + 4), node_id)
        told = {event.node_id for each in ids for event in seat.told(ReplicaPlaced, each)}
        found = {report.node_id for replica_id, report in seat.alive().items() if replica_id in ids}
        seat.deny(f"{ids} on {node_id}, told {sorted(told)}, found {sorted(found)}", told | found != {node_id})
    nowhere = seat.start_of(8, node_id=NO_NODE)
    seat.ask_for(ReplicaStartFailed, nowhere)
    there = nowhere.replica_id in seat.alive()
    seat.deny(f"{nowhere.replica_id} nowhere", there or bool(seat.told(ReplicaPlaced, nowhere.replica_id)))


def capacity_counts_who_is_there(seat: Seat) -> None:
    """Else a controller that comes back takes a node for full that holds what it should."""
    room = seat.bench_method("room")
    node_id = min(seat.bench.nodes())
    ids = seat.placed_all(range(3), node_id)
    newer = seat.successor()
    for each in ids:
        newer.ask_for(ReplicaReported, QueryReplica(each, newer.epoch))
    for teller in (seat, newer):
        teller.look()
        expected = {room(node_id), None} if teller.repeats else {room(node_id)}  # under faults it may be lost
        told = teller.capacity_of(node_id)
        teller.deny(f"NodeChanged of {node_id} with {room(node_id)}, found {told}", told not in expected)


def a_stop_that_takes_too_long_is_cut_short(seat: Seat) -> None:
    """By the executor."""
    one = seat.running(0)
    seat.bench.slow(LONG_S)
    seat.ask_for(ReplicaStopped, StopReplica(one, 0.2, seat.epoch))


# -- the world size, the clock


def a_world_size_reaches_who_is_there(seat: Seat) -> None:
    """Initialised or not."""
    ids = [seat.running(0), seat.placed(1)]
    seat.do(seat.announcement(7))
    seat.expect("everybody to know the world size 7", lambda: all(seat.knows(each, 7) for each in ids))


def a_world_size_reaches_who_comes_later(seat: Seat) -> None:
    """Without being told again."""
    seat.do(seat.announcement(7))
    one = seat.placed(0)
    seat.expect(f"{one} to know the world size 7", lambda: seat.knows(one, 7))


def an_overtaken_world_size_is_not_kept(seat: Seat) -> None:
    """The newest is the one with the highest revision."""
    older, newer = seat.announcement(3), seat.announcement(7)
    seat.do(newer)
    seat.do(older)
    one = seat.placed(0)
    seat.expect(f"{one} to know the world size 7", lambda: seat.knows(one, 7))


def an_alarm_rings(seat: Seat) -> None:
    """Not before its time."""
    at = seat.bench.now() + 0.2
    seat.do(WakeAt(at, seat.epoch))
    seat.expect("ClockAdvanced", lambda: _rung(seat))
    seat.deny(f"none before {at:.3f}", any(isinstance(event, ClockAdvanced) and event.at < at for event in seat.news))


def a_later_alarm_replaces_the_earlier(seat: Seat) -> None:
    """Whichever of them is due first."""
    now = seat.bench.now()
    seat.do(WakeAt(now + 1.0, seat.epoch))
    seat.do(WakeAt(now + 2.0, seat.epoch))
    seat.expect("ClockAdvanced", lambda: _rung(seat))
    seat.deny("none at the time of the first", any(isinstance(e, ClockAdvanced) and e.at < now + 2.0 for e in seat.news))


def _rung(seat: Seat) -> bool:
    return any(isinstance(event, ClockAdvanced) for event in seat.news)


# -- execute


def a_start_of_user_code_is_not_waited_for(seat: Seat) -> None:
    """It goes on when `execute` has returned."""
    one = seat.placed(0)
    seat.bench.slow(LONG_S)
    seat.do(seat.initialization(one, 0))
    seat.deny(f"{one} not to be ready yet", seat.report_of(one).ready)
    seat.dismiss(one)


def a_command_to_somebody_unknown_raises_nothing(seat: Seat) -> None:
    """What is wrong comes back as news, if at all."""
    seat.do(seat.initialization(UNKNOWN, 0))
    seat.do(seat.reconfiguration(UNKNOWN, 1))
    seat.placed(0)


# -- readiness


def a_replica_that_takes_no_requests_is_told_and_lives_on(seat: Seat) -> None:
    """So is that it takes them again; in between it says so to whoever asks."""
    take_requests = seat.bench_method("take_requests")
    one = seat.running(0)
    take_requests(False)
    seat.expect(f"ReplicaUnready of {one}", lambda: bool(seat.told(ReplicaUnready, one)))
    unready = seat.told(ReplicaUnready, one)[0]
    seat.ask_for(ReplicaReported, QueryReplica(one, seat.epoch))
    reports = {(event.ready, event.unready is None) for event in seat.told(ReplicaReported, one)}
    seat.deny(f"(ready, takes requests) (True, False), found {reports}", reports != {(True, False)})
    take_requests(True)
    seat.expect(f"a later ReplicaReady of {one}", lambda: any(event.at > unready.at for event in seat.told(ReplicaReady, one)))
    seat.deny(f"no end of {one}", bool(seat.ends(one)) or one not in seat.alive())


# -- health, partitions


def a_replica_that_hangs_is_suspected_and_can_be_killed(seat: Seat) -> None:
    """It is not said to have ended before; and nothing waits for it."""
    hang = seat.bench_method("hang")
    one = seat.running(0)
    hang(one)
    seat.expect(f"ReplicaUnhealthy of {one}", lambda: bool(seat.told(ReplicaUnhealthy, one)))
    seat.deny(f"no end of {one}, which hangs", bool(seat.ends(one)))
    seat.ask_for(ReplicaStopped, KillReplica(one, seat.epoch))


def who_is_on_a_node_that_is_cut_off_has_ended_when_that_is_told(seat: Seat) -> None:
    """By itself: nobody reaches it. Who is elsewhere is not concerned."""
    partition = seat.bench_method("partition")
    cut, other = sorted(seat.bench.nodes())[:2]
    (lives,) = seat.placed_all((0,), other)
    ids = seat.placed_all((1, 2), cut)
    partition(cut)
    seat.expect(f"final news of {ids}", lambda: seat.has_lost(cut) or all(seat.ends(each) for each in ids))
    seat.deny(f"no end of {lives}", bool(seat.ends(lives)) or lives not in seat.alive())


# -- static placements


def a_replica_stands_on_the_bundles_that_are_named(seat: Seat) -> None:
    """It is where the first of them is, and its report names them all."""
    group_id, nodes = seat.bench_method("group")()
    for serial, bundles in ((0, (1, 0)), (1, (2,))):
        start = replace(seat.start_of(serial), bundles=bundles, group_id=group_id)
        one = start.replica_id
        seat.ask_for(ReplicaPlaced, start)
        told = {event.node_id for event in seat.told(ReplicaPlaced, one)}
        found = {seat.report_of(one).node_id}
        expected = nodes[bundles[0]]
        seat.deny(f"{one} on {expected}, told {sorted(told)}, found {sorted(found)}", told | found != {expected})
        seat.ask_for(ReplicaReported, QueryReplica(one, seat.epoch))
        said = {(event.bundles, event.group_id) for event in seat.told(ReplicaReported, one)}
        seat.deny(f"a report with {bundles} of {group_id}, found {said}", said != {(bundles, group_id)})


def what_becomes_of_a_bundle_is_told(seat: Seat) -> None:
    """That it is lost, also to who begins later; and that it is back. Who stands on others is not concerned."""
    group_id, _ = seat.bench_method("group")()
    start = replace(seat.start_of(0), bundles=(0,), group_id=group_id)
    seat.ask(start, f"{start.replica_id} there", lambda: start.replica_id in seat.alive())
    seat.bench_method("lose_bundle")(1)
    seat.expect(f"BundleLost of 1 of {group_id}", lambda: _bundle_news(seat, BundleLost, group_id))
    newer = seat.successor()
    newer.do(replace(start, epoch=newer.epoch))
    newer.expect(f"BundleLost of 1 of {group_id}, for who begins then", lambda: _bundle_news(newer, BundleLost, group_id))
    lost_at = max(event.at for event in newer.news if isinstance(event, BundleLost))
    newer.bench.advance()
    newer.bench_method("restore_bundle")(1)
    newer.expect(f"BundleRestored of 1 of {group_id}", lambda: _bundle_news(newer, BundleRestored, group_id, lost_at))
    wrong = [event for event in newer.news if isinstance(event, BundleLost) and 0 in event.bundles]
    newer.deny(f"no loss of bundle 0, found {wrong}", bool(wrong))


def _bundle_news(seat: Seat, kind: type[BundleLost | BundleRestored], group_id: str, after: float = -math.inf) -> bool:
    return any(isinstance(e, kind) and 1 in e.bundles and e.group_id == group_id and e.at > after for e in seat.news)


EXECUTOR_CASES: tuple[ContractCase, ...] = (
    ContractCase(Line.FENCE, a_start_of_an_older_epoch_comes_to_nothing),
    ContractCase(Line.FENCE, a_stop_and_a_kill_of_an_older_epoch_end_nobody),
    ContractCase(Line.FENCE, a_replaced_controller_ends_nobody),
    ContractCase(Line.FENCE, a_world_size_of_an_older_epoch_is_not_kept),
    ContractCase(Line.FENCE, an_alarm_of_an_older_epoch_is_not_set),
    ContractCase(Line.DISCOVERY, what_a_replaced_controller_starts_does_not_come_up),
    ContractCase(Line.DISCOVERY, everybody_who_lives_is_found),
    ContractCase(Line.FINAL, the_death_of_a_running_replica_is_told),
    ContractCase(Line.FINAL, the_death_of_a_placed_replica_is_told),
    ContractCase(Line.FINAL, the_death_of_a_survivor_is_told_to_who_took_it_over),
    ContractCase(Line.FINAL, a_failed_start_is_told),
    ContractCase(Line.FINAL, a_stop_is_answered),
    ContractCase(Line.FINAL, a_kill_is_answered_even_while_user_code_runs),
    ContractCase(Line.FINAL, the_loss_of_a_node_is_told),
    ContractCase(Line.FINAL, forty_ends_are_all_told),
    ContractCase(Line.TRUE, the_death_of_one_is_not_that_of_its_node),
    ContractCase(Line.TRUE, an_end_is_told_when_clean_up_is_over),
    ContractCase(Line.TRUE, a_slow_start_is_no_end),
    ContractCase(Line.TRUE, who_was_never_initialised_is_not_missing),
    ContractCase(Line.UNKNOWN, a_stop_of_something_unknown_is_answered),
    ContractCase(Line.UNKNOWN, a_kill_of_something_unknown_is_answered),
    ContractCase(Line.UNKNOWN, a_query_of_something_unknown_is_answered),
    ContractCase(Line.UNKNOWN, stop_and_query_of_one_that_has_ended_are_answered),
    ContractCase(Line.START, a_repeated_start_is_answered_with_the_place),
    ContractCase(Line.START, a_repeated_start_of_one_that_has_ended_is_answered_with_its_end),
    ContractCase(Line.PLACE, a_named_node_is_where_it_goes),
    ContractCase(Line.CAPACITY, capacity_counts_who_is_there),
    ContractCase(Line.STOP, a_stop_that_takes_too_long_is_cut_short),
    ContractCase(Line.WORLD_SIZE, a_world_size_reaches_who_is_there),
    ContractCase(Line.WORLD_SIZE, a_world_size_reaches_who_comes_later),
    ContractCase(Line.WORLD_SIZE, an_overtaken_world_size_is_not_kept),
    ContractCase(Line.CLOCK, an_alarm_rings),
    ContractCase(Line.CLOCK, a_later_alarm_replaces_the_earlier),
    ContractCase(Line.READINESS, a_replica_that_takes_no_requests_is_told_and_lives_on),
    ContractCase(Line.HEALTH, a_replica_that_hangs_is_suspected_and_can_be_killed),
    ContractCase(Line.LEASE, who_is_on_a_node_that_is_cut_off_has_ended_when_that_is_told),
    ContractCase(Line.BUNDLES, a_replica_stands_on_the_bundles_that_are_named),
    ContractCase(Line.BUNDLES, what_becomes_of_a_bundle_is_told),
    ContractCase(Line.EXECUTE, a_start_of_user_code_is_not_waited_for),
    ContractCase(Line.EXECUTE, a_command_to_somebody_unknown_raises_nothing),
)
