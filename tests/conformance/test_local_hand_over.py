"""V4 with processes of this machine: user code is up without a rank, and is told it later."""

import pytest

from executors.local.bench import LocalBench
from rankcore.commands import PrepareReplica, QueryReplica
from rankcore.events import ReplicaPrepared, ReplicaReady, ReplicaReported
from rankcore.spec import config_id_of
from rankcore.testing.conformance.contract import USER_CONFIG, Line, Seat


@pytest.fixture
def seat(tmp_path):
    with LocalBench(tmp_path) as bench:
        yield Seat(bench, Line.REPLICA_ONCE)


def test_what_is_prepared_is_given_its_rank_and_not_started_again(seat):
    one = seat.placed(0)
    config_id = config_id_of(USER_CONFIG)
    preparation = PrepareReplica(one, 1, USER_CONFIG, config_id, seat.next_revision(), seat.epoch)
    seat.ask_for(ReplicaPrepared, preparation)
    seat.ask_for(ReplicaReported, QueryReplica(one, seat.epoch))
    (report,) = {(each.rank, each.prepared, each.ready) for each in seat.told(ReplicaReported, one)}
    assert report == (None, True, False)
    seat.ask_for(ReplicaReady, seat.initialization(one, 0))
    assert seat.believes(one, 0)
    assert seat.report_of(one).applied == 2
    seat.dismiss(one)
