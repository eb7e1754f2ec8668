"""The replica's half of section 2.4, a case for each thing that a line asks for."""

from msgspec.structs import replace

from rankcore.commands import AnnounceWorldSize, PrepareReplica, QueryReplica, ReconfigureReplica, StopReplica
from rankcore.events import ReplicaPrepared, ReplicaReady, ReplicaReconfigured, ReplicaReported, ReplicaStartFailed
from rankcore.frozen import FrozenDict
from rankcore.spec import config_id_of
from rankcore.testing.conformance.contract import LONG_S, RESTART_TOKEN, USER_CONFIG, ContractCase, Line, Seat
from rankcore.values import ReplicaId


def a_query_is_answered_in_its_own_epoch(seat: Seat) -> None:
    """The replica has adopted it by then."""
    one = seat.running(0)
    newer = seat.successor()
    _reported(newer, one)
    epochs = {event.epoch for event in newer.told(ReplicaReported, one)}
    newer.deny(f"reports of epoch {newer.epoch}, found {sorted(epochs)}", epochs != {newer.epoch})


def a_change_of_a_replaced_controller_is_refused(seat: Seat) -> None:
    """Even if its executor knows of no newer epoch."""
    one = seat.running(0)
    newer = seat.successor()
    _reported(newer, one)
    seat.do(seat.reconfiguration(one, 3))
    seat.do(seat.announcement(9))
    seat.do(StopReplica(one, LONG_S, seat.epoch))
    _changed(newer, one, newer.reconfiguration(one, 1))
    newer.deny(f"{one} to have refused rank 3", newer.has_believed(one, 3))
    newer.deny(f"{one} to have refused the world size 9", not newer.knows(one, 2))
    newer.deny(f"{one} not to drain", newer.report_of(one).draining)


def an_overtaken_change_is_not_carried_out(seat: Seat) -> None:
    """A replica goes on with the newest."""
    one = seat.running(0)
    older, newest = seat.reconfiguration(one, 1), seat.reconfiguration(one, 2)
    _changed(seat, one, newest)
    seat.do(older)
    _reported(seat, one)
    seat.deny(f"{one} never to have believed rank 1", seat.has_believed(one, 1))


def an_overtaken_world_size_is_not_believed(seat: Seat) -> None:
    """Changes and announcements share one counter."""
    one = seat.running(0)
    older = seat.reconfiguration(one, 1)
    seat.do(seat.announcement(7))
    seat.expect(f"{one} to know the world size 7", lambda: seat.knows(one, 7))
    _changed(seat, one, older)
    seat.do(AnnounceWorldSize(5, older.revision, seat.epoch))
    _reported(seat, one)
    seat.deny(f"{one} to know the world size 7 still", not seat.knows(one, 7))


def a_starting_replica_believes_its_rank(seat: Seat) -> None:
    """Its user code has not ended by then."""
    one = seat.placed(0)
    seat.bench.slow(LONG_S)
    seat.ask(
        seat.initialization(one, 4),
        f"{one} to believe rank 4 before it is ready",
        lambda: seat.believes(one, 4) and not seat.report_of(one).ready,
    )
    seat.dismiss(one)


def a_moving_replica_believes_its_new_rank(seat: Seat) -> None:
    """Before its user code has acknowledged it."""
    one = seat.running(0)
    seat.bench.slow(LONG_S)
    seat.ask(seat.reconfiguration(one, 4), f"{one} to believe rank 4", lambda: seat.believes(one, 4))
    seat.deny("no acknowledgement before user code has ended", bool(seat.told(ReplicaReconfigured, one)))
    seat.dismiss(one)


def a_repeated_initialization_is_acknowledged_again(seat: Seat) -> None:
    """And carried out once."""
    one = seat.placed(0)
    first = seat.initialization(one, 0)
    seat.ask_for(ReplicaReady, first)
    seat.ask_again(ReplicaReady, first)
    seat.deny("user code to have been started once", seat.report_of(one).applied not in (None, 1))


def a_repeated_change_is_acknowledged_again(seat: Seat) -> None:
    """And carried out once."""
    one = seat.running(0)
    change = seat.reconfiguration(one, 1)
    _changed(seat, one, change)
    seat.ask_again(ReplicaReconfigured, change)
    seat.deny("user code to have been reconfigured once", seat.report_of(one).applied not in (None, 2))


def a_config_that_is_not_sent_is_kept(seat: Seat) -> None:
    """A controller that comes back may know its name only. That of None is brought by its name."""
    one = seat.running(0)
    _changed(seat, one, replace(seat.reconfiguration(one, 1), user_config=None))
    kept = seat.report_of(one).user_config
    seat.deny(f"{one} to keep {USER_CONFIG}, found {kept}", kept != USER_CONFIG)
    _changed(seat, one, replace(seat.reconfiguration(one, 2), user_config=None, config_id=config_id_of(None)))
    left = seat.report_of(one).user_config
    seat.deny(f"{one} to have no user_config, found {left}", left is not None)


def a_prepared_replica_has_no_rank(seat: Seat) -> None:
    """Its user code is up, and it says so."""
    one = seat.placed(0)
    _prepared(seat, one, seat.preparation(one))
    _reported(seat, one)
    found = {(event.rank, event.prepared, event.ready) for event in seat.told(ReplicaReported, one)}
    seat.deny(f"(rank, prepared, ready) (None, True, False), found {found}", found != {(None, True, False)})
    seat.deny(f"{one} never to have believed a rank", bool(seat.report_of(one).beliefs))


def a_prepared_replica_is_given_its_rank_and_not_started_again(seat: Seat) -> None:
    """A start of user code would fail."""
    one = seat.placed(0)
    _prepared(seat, one, seat.preparation(one))
    seat.bench.fail_starts(1)
    seat.ask_for(ReplicaReady, seat.initialization(one, 3))
    seat.deny(f"{one} to be ready with rank 3", not seat.believes(one, 3))
    seat.deny("user code to have been through two changes", seat.report_of(one).applied not in (None, 2))


def a_rank_during_the_preparation_is_believed_and_adopted_after_it(seat: Seat) -> None:
    """What runs in a process is not broken off."""
    one = seat.placed(0)
    seat.bench.slow(1.0)
    seat.do(seat.preparation(one))
    first = seat.initialization(one, 3)
    seat.do(first)
    seat.ask_for(ReplicaReady, first)
    seat.deny(f"{one} to be ready with rank 3", not seat.believes(one, 3))


def a_repeated_preparation_is_acknowledged_again(seat: Seat) -> None:
    """And carried out once."""
    one = seat.placed(0)
    preparation = seat.preparation(one)
    _prepared(seat, one, preparation)
    seat.ask_again(ReplicaPrepared, preparation)
    seat.deny("user code to have been started once", seat.report_of(one).applied not in (None, 1))


def a_second_preparation_brings_another_user_config(seat: Seat) -> None:
    """And is no second start of user code."""
    one = seat.placed(0)
    _prepared(seat, one, seat.preparation(one))
    seat.bench.fail_starts(1)
    config = FrozenDict({"temperature": 0.9})
    again = PrepareReplica(one, 1, config, config_id_of(config), seat.next_revision(), seat.epoch)
    _prepared(seat, one, again)
    _reported(seat, one)
    seat.deny(f"{one} to report the other user_config", seat.told(ReplicaReported, one)[-1].config_id != again.config_id)


def a_preparation_of_one_that_has_a_rank_is_refused(seat: Seat) -> None:
    """Whatever its revision: a rank that is believed is not forgotten."""
    one = seat.running(2)
    seat.do(seat.preparation(one))
    _changed(seat, one, seat.reconfiguration(one, 1))
    seat.deny(f"{one} to have refused it", bool(seat.told(ReplicaPrepared, one)))
    ranks = [belief.rank.rank for belief in seat.report_of(one).beliefs]
    seat.deny(f"{one} to have believed rank 2, then 1, found {ranks}", ranks != [2, 1])


def a_failed_preparation_is_a_failed_start(seat: Seat) -> None:
    """And final."""
    one = seat.placed(0)
    seat.bench.fail_starts(1)
    seat.ask_for(ReplicaStartFailed, seat.preparation(one))
    seat.deny(f"{one} not to have been prepared", bool(seat.told(ReplicaPrepared, one)))


def a_replica_that_is_being_prepared_answers(seat: Seat) -> None:
    """Without a rank, and that it is not prepared yet."""
    one = seat.placed(0)
    seat.bench.slow(LONG_S)
    seat.do(seat.preparation(one))
    _reported(seat, one)
    found = {(event.rank, event.prepared) for event in seat.told(ReplicaReported, one)}
    seat.deny(f"(rank, prepared) (None, False), found {found}", found != {(None, False)})
    seat.dismiss(one)


def a_prepared_replica_that_is_given_its_rank_says_that_it_was_prepared(seat: Seat) -> None:
    """While it is: its user code is up, so that it may go on taking requests (V3)."""
    one = seat.placed(0)
    _prepared(seat, one, seat.preparation(one))
    seat.bench.slow(LONG_S)
    seat.do(seat.initialization(one, 4))
    seat.ask(
        QueryReplica(one, seat.epoch),
        f"a report of {one} with rank 4, prepared and not ready",
        lambda: any(e.rank is not None and e.prepared and not e.ready for e in seat.told(ReplicaReported, one)),
    )
    seat.dismiss(one)


def a_report_says_what_is_believed(seat: Seat) -> None:
    """All of it."""
    one = seat.running(2)
    _reported(seat, one)
    node_id, config_id = seat.report_of(one).node_id, config_id_of(USER_CONFIG)
    wanted = (2, True, False, "1", RESTART_TOKEN, config_id, node_id)
    found = {
        (e.rank and e.rank.rank, e.ready, e.draining, e.version, e.restart_token, e.config_id, e.node_id)
        for e in seat.told(ReplicaReported, one)
    }
    seat.deny(f"(rank, ready, draining, version, restart token, config_id, node) {wanted}, found {found}", found != {wanted})


def a_starting_replica_answers(seat: Seat) -> None:
    """With its rank, and that it is not ready."""
    one = seat.placed(0)
    seat.bench.slow(LONG_S)
    seat.do(seat.initialization(one, 4))
    seat.ask(
        QueryReplica(one, seat.epoch),
        f"a report of {one} with rank 4, not ready",
        lambda: any(e.rank is not None and not e.ready for e in seat.told(ReplicaReported, one)),
    )
    seat.dismiss(one)


def a_draining_replica_answers(seat: Seat) -> None:
    """And says that it drains."""
    one = seat.running(0)
    seat.bench.slow(LONG_S)
    seat.ask(StopReplica(one, LONG_S, seat.epoch), f"{one} to drain", lambda: seat.report_of(one).draining)
    seat.ask(
        QueryReplica(one, seat.epoch),
        f"a report of {one} that it drains",
        lambda: any(event.draining for event in seat.told(ReplicaReported, one)),
    )
    seat.dismiss(one)


def a_moving_replica_answers_when_it_has_moved(seat: Seat) -> None:
    """And not before."""
    one = seat.running(0)
    seat.bench.slow(0.5)
    seat.do(seat.reconfiguration(one, 1))
    _reported(seat, one)
    seat.deny("no report before the change was over", seat.report_of(one).applied not in (None, 2))


def _prepared(seat: Seat, replica_id: ReplicaId, preparation: PrepareReplica) -> None:
    seat.ask(
        preparation,
        f"ReplicaPrepared of {replica_id} with revision {preparation.revision}",
        lambda: any(e.revision == preparation.revision for e in seat.told(ReplicaPrepared, replica_id)),
    )


def _reported(seat: Seat, replica_id: ReplicaId) -> None:
    seat.ask_for(ReplicaReported, QueryReplica(replica_id, seat.epoch))


def _changed(seat: Seat, replica_id: ReplicaId, change: ReconfigureReplica) -> None:
    seat.ask(
        change,
        f"ReplicaReconfigured of {replica_id} with revision {change.revision}",
        lambda: any(e.revision == change.revision for e in seat.told(ReplicaReconfigured, replica_id)),
    )


REPLICA_CASES: tuple[ContractCase, ...] = (
    ContractCase(Line.REPLICA_EPOCH, a_query_is_answered_in_its_own_epoch),
    ContractCase(Line.REPLICA_EPOCH, a_change_of_a_replaced_controller_is_refused),
    ContractCase(Line.REPLICA_ORDER, an_overtaken_change_is_not_carried_out),
    ContractCase(Line.REPLICA_ORDER, an_overtaken_world_size_is_not_believed),
    ContractCase(Line.REPLICA_BELIEF, a_starting_replica_believes_its_rank),
    ContractCase(Line.REPLICA_BELIEF, a_moving_replica_believes_its_new_rank),
    ContractCase(Line.REPLICA_ONCE, a_repeated_initialization_is_acknowledged_again),
    ContractCase(Line.REPLICA_ONCE, a_repeated_change_is_acknowledged_again),
    ContractCase(Line.REPLICA_CONFIG, a_config_that_is_not_sent_is_kept),
    ContractCase(Line.REPLICA_PREPARED, a_prepared_replica_has_no_rank),
    ContractCase(Line.REPLICA_PREPARED, a_prepared_replica_is_given_its_rank_and_not_started_again),
    ContractCase(Line.REPLICA_PREPARED, a_rank_during_the_preparation_is_believed_and_adopted_after_it),
    ContractCase(Line.REPLICA_PREPARED, a_repeated_preparation_is_acknowledged_again),
    ContractCase(Line.REPLICA_PREPARED, a_second_preparation_brings_another_user_config),
    ContractCase(Line.REPLICA_PREPARED, a_preparation_of_one_that_has_a_rank_is_refused),
    ContractCase(Line.REPLICA_PREPARED, a_failed_preparation_is_a_failed_start),
    ContractCase(Line.REPLICA_PREPARED, a_replica_that_is_being_prepared_answers),
    ContractCase(Line.REPLICA_PREPARED, a_prepared_replica_that_is_given_its_rank_says_that_it_was_prepared),
    ContractCase(Line.REPLICA_QUERY, a_report_says_what_is_believed),
    ContractCase(Line.REPLICA_QUERY, a_starting_replica_answers),
    ContractCase(Line.REPLICA_QUERY, a_draining_replica_answers),
    ContractCase(Line.REPLICA_QUERY, a_moving_replica_answers_when_it_has_moved),
)
