"""The rendezvous handler as torchrun calls it, in this process: what it gives, and which of torchrun's errors it raises."""

import threading

import pytest

pytest.importorskip("torch", reason="torch is not installed: pip install 'rankcore[torch]'")

from torch.distributed.elastic.rendezvous import (
    RendezvousClosedError,
    RendezvousGracefulExitError,
    RendezvousHandler,
    RendezvousParameters,
    RendezvousStateError,
    RendezvousTimeoutError,
)

from executors.torchrun.entry import rankcore
from executors.torchrun.server import open_store
from rankcore.gang import Gang
from tests.torchrun_served import PATIENCE_S, Served

LEASE_S = 600.0
"""Longer than any test: a handler whose lease lapses ends its process."""


@pytest.fixture
def serve():
    stores, served = [], []

    def start(low, high, **settings):
        store, port = open_store("127.0.0.1", 0)
        stores.append(store)
        served.append(Served(Gang(low, high, **settings), lease_s=LEASE_S, store_port=port))
        return served[-1]

    yield start
    for each in served:
        each.crash()


def handler(served, node, max_nodes, **config) -> RendezvousHandler:
    where = f"127.0.0.1:{served.port}"
    config = {"node_id": node, "nproc": "8", **config}
    return rankcore()(RendezvousParameters("rankcore", where, "job", 1, max_nodes, "127.0.0.1", **config))


def met(*handlers):
    """The next round of some, each of which waits for the others."""
    found = {}
    threads = [
        threading.Thread(target=lambda each=each: found.update({each: each.next_rendezvous()}), daemon=True)
        for each in handlers
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    return [found[each] for each in handlers]


def trips_over_a_missing_result(spare):
    """As torchrun does after it has caught `RendezvousGracefulExitError`."""
    try:
        None.is_failed()
    finally:
        spare.shutdown()


def test_agents_meet_with_a_store_of_their_round_and_a_spare_ends_well(serve):
    served = serve(2, 2)
    a, b, spare = (handler(served, node, 2) for node in "abs")
    rounds = met(a, b)
    assert [(each.rank, each.world_size) for each in rounds] == [(0, 2), (1, 2)]
    assert len({each.bootstrap_store_info.master_port for each in rounds}) == 1
    assert {each.bootstrap_store_info.master_addr for each in rounds} == {"127.0.0.1"}
    rounds[0].store.set("key", "of round 1")
    assert rounds[1].store.get("key") == b"of round 1"
    assert [each.num_nodes_waiting() for each in (a, b, spare)] == [0, 0, 0]
    again = met(a, b)
    assert [each.rank for each in again] == [0, 1]
    assert not again[0].store.check(["key"])
    assert (a.get_backend(), a.get_run_id(), a.is_closed()) == ("rankcore", "job", False)
    assert a.shutdown()
    with pytest.raises(RendezvousGracefulExitError):
        spare.next_rendezvous()
    with pytest.raises(SystemExit) as ended:
        trips_over_a_missing_result(spare)
    assert ended.value.code == 0
    with pytest.raises(RendezvousClosedError):
        b.next_rendezvous()
    assert b.is_closed()
    assert b.shutdown()
    assert served.ends() == 0


def test_a_job_that_is_done_while_its_coordinator_is_away_is_done_for_the_next_one_and_for_its_spares(serve, monkeypatch):
    monkeypatch.setattr("executors.torchrun.handler.LAST_WORD_S", 0.0)
    first = serve(1, 1)
    a, spare = handler(first, "a", 1), handler(first, "s", 1)
    met(a)
    first.crash()
    ends = threading.Thread(target=a.shutdown, daemon=True)
    ends.start()
    second = Served(Gang(1, 1, restarted=True, recover_s=5.0), first.port, LEASE_S)
    ends.join(PATIENCE_S)
    with pytest.raises(RendezvousGracefulExitError):
        spare.next_rendezvous()
    assert spare.shutdown()
    assert second.ends() == 0


def test_too_few_agents_are_a_time_out_of_torchruns_own(serve):
    served = serve(2, 2, join_timeout_s=0.2)
    a = handler(served, "a", 2)
    with pytest.raises(RendezvousTimeoutError, match=r"1 agents are there after .*, expected 2"):
        a.next_rendezvous()
    assert a.shutdown()
    assert served.ends() == 1


def test_what_goes_wrong_inside_is_an_error_of_torchruns_own(serve, monkeypatch):
    served = serve(1, 1)
    a = handler(served, "a", 1)
    monkeypatch.setattr(a, "_met", lambda standing: 1 / 0)
    with pytest.raises(RendezvousStateError, match="ZeroDivisionError"):
        a.next_rendezvous()
    assert a.shutdown()


@pytest.mark.parametrize(
    ("max_nodes", "config", "said"),
    [
        (1, {"colour": "red"}, "--rdzv-conf has colour, expected some of node_id, nproc, connect_timeout_s"),
        (2, {}, "refuses this agent: MAX is 2, expected 1"),
        (1, {"nproc": "4"}, "refuses this agent: nproc is 4, expected 8"),
    ],
)
def test_an_agent_that_cannot_be_of_the_gang_exits_with_2_and_one_line(serve, capsys, max_nodes, config, said):
    served = serve(1, 1)
    a = handler(served, "a", 1)
    with pytest.raises(SystemExit) as ended:
        handler(served, "b", max_nodes, **config)
    (line,) = capsys.readouterr().err.splitlines()
    assert (ended.value.code, line.startswith("rankcore: error: "), line.endswith(said)) == (2, True, True)
    a.shutdown()


def test_no_coordinator_is_said_in_one_line(serve, capsys):
    served = serve(1, 1)
    served.crash()
    with pytest.raises(SystemExit):
        handler(served, "a", 1, connect_timeout_s="0.1")
    assert f"no coordinator answers at 127.0.0.1:{served.port} within 0.1 s" in capsys.readouterr().err
