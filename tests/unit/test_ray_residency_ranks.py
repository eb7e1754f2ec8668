"""The rank of a replica of a fleet, without a cluster: what user code sees and is told, and what the controller makes of it."""

import asyncio
from types import SimpleNamespace

import pytest

pytest.importorskip("ray", reason="Ray is not installed: pip install 'rankcore[ray]'")
pytest.importorskip("torch", reason="torch is not installed: pip install 'rankcore[torch]'")

from executors.ray_gpu.context import get_replica_context
from executors.ray_gpu.requests.threads import SyncThreads
from executors.ray_gpu.residency import ranks as ranks_module
from executors.ray_gpu.residency.options import FleetOptions
from executors.ray_gpu.residency.ranked import Ranked
from executors.ray_gpu.residency.ranks import Ranks
from executors.ray_gpu.residency.words import SaidOfRank
from executors.ray_gpu.worker.places import NodeMemory, Places
from rankcore.commands import (
    AnnounceWorldSize,
    InitializeReplica,
    KillReplica,
    QueryReplica,
    ReconfigureReplica,
    StartReplica,
)
from rankcore.dispatching import ReplicaSaid, TellReplica
from rankcore.events import (
    ReplicaMissing,
    ReplicaReady,
    ReplicaReconfigured,
    ReplicaReconfigureFailed,
    ReplicaReported,
    ReplicaStartFailed,
)
from rankcore.spec import config_id_of
from rankcore.values import ReplicaRank

PLACES = Places(FleetOptions(device="cpu"), "test", "n1", NodeMemory((100,), 100))
SEAT = "m#1.0"


class Wants:
    """Both what it was told, and what it saw then."""

    def __init__(self):
        self.told = []

    def reconfigure(self, user_config, rank):
        self.told.append((user_config, rank.rank, get_replica_context().world_size))


class WantsConfigOnly:
    def __init__(self):
        self.told = []

    async def reconfigure(self, user_config):
        self.told.append(user_config)


class Refuses:
    def reconfigure(self, user_config, rank):
        raise ValueError(f"not as rank {rank.rank}")


def start(seat=SEAT, epoch=1):
    return StartReplica(seat, 0, "1", None, (), epoch)


def initialize(rank=0, *, config=None, revision=1, seat=SEAT, epoch=1):
    return InitializeReplica(seat, ReplicaRank(rank, 0, rank), 2, config, config_id_of(config), revision, epoch)


def reconfigure(rank, *, config=None, revision=2, seat=SEAT, epoch=1):
    return ReconfigureReplica(seat, ReplicaRank(rank, 0, rank), 2, config, config_id_of(config), revision, epoch)


def told(user, *commands, after=lambda ranked: None):
    """What a process answers to commands, one after the other."""

    async def tell_all():
        threads = SyncThreads(asyncio.get_running_loop())
        ranked = Ranked("m", "m#0", PLACES, lambda: user, lambda: threads)
        found = []
        for command in commands:
            found.append(after(ranked) if command is None else await asyncio.wait_for(ranked.tell(command), 60.0))
        return found

    return asyncio.run(tell_all())


def kinds(said):
    return [type(news) for each in said for news in each.news]


def test_user_code_is_told_its_rank_at_first_and_whenever_it_changes_and_sees_it_then():
    user = Wants()
    said = told(user, start(), initialize(0, config={"a": 1}), reconfigure(1, config={"a": 1}))
    assert kinds(said) == [ReplicaReady, ReplicaReconfigured]
    assert user.told == [({"a": 1}, 0, 2), ({"a": 1}, 1, 2)]
    assert (get_replica_context().rank, get_replica_context().replica_id) == (ReplicaRank(1, 0, 1), "m#0")


def test_who_takes_no_rank_is_told_another_user_config_only():
    user = WantsConfigOnly()
    said = told(
        user,
        start(),
        initialize(0, config={"a": 1}),
        reconfigure(1, config={"a": 1}),
        reconfigure(1, config={"a": 2}, revision=3),
    )
    assert kinds(said) == [ReplicaReady, ReplicaReconfigured, ReplicaReconfigured]
    assert user.told == [{"a": 1}, {"a": 2}]


@pytest.mark.parametrize("user", [Wants(), object()])
def test_without_a_user_config_or_a_method_nothing_is_called_and_the_context_shows_the_rank(user):
    config = None if isinstance(user, Wants) else {"a": 1}
    assert kinds(told(user, start(), initialize(3, config=config))) == [ReplicaReady]
    assert getattr(user, "told", []) == []
    assert get_replica_context().rank.rank == 3


def test_a_world_size_is_seen_at_once_and_user_code_is_not_called():
    user = Wants()
    told(user, start(), initialize(0, config={}), AnnounceWorldSize(5, 2, 1))
    assert get_replica_context().world_size == 5
    assert len(user.told) == 1


def test_a_start_that_user_code_refuses_and_a_change_that_it_refuses_are_told_with_the_traceback():
    (_, failed) = told(Refuses(), start(), initialize(1, config={}))
    (news,) = failed.news
    assert isinstance(news, ReplicaStartFailed)
    assert "not as rank 1" in news.reason
    assert not failed.ends
    said = told(Refuses(), start(), initialize(1), reconfigure(2, config={}))
    assert kinds(said) == [ReplicaReady, ReplicaReconfigureFailed]


def test_a_new_controller_learns_the_rank_and_the_one_before_is_refused():
    said = told(object(), start(), initialize(1), QueryReplica(SEAT, 2), reconfigure(0, epoch=1, revision=9))
    (report,) = said[2].news
    assert isinstance(report, ReplicaReported)
    assert (report.rank, report.epoch) == (ReplicaRank(1, 0, 1), 2)
    assert said[3].news == ()


def test_who_has_left_the_gpu_has_no_rank_and_is_not_meant_by_what_comes_late():
    said = told(object(), start(), initialize(1), None, reconfigure(0), start(), QueryReplica(SEAT, 1), after=Ranked.leave)
    assert kinds(each for each in said if each is not None) == [ReplicaReady, ReplicaMissing]


def test_who_is_told_to_end_says_that_it_is_to_be_ended():
    said = told(object(), start(), initialize(0), KillReplica(SEAT, 1))
    assert [each.ends for each in said] == [False, False, True]


class Fleet:
    """A controller's part for ranks, with one process that answers as a test says."""

    def __init__(self, answer, node_id="n1", ended_by_us=True):
        self.log = []

        async def tell_rank(epoch, command):
            if isinstance(answer, Exception):
                raise answer
            if answer is None:
                await asyncio.Event().wait()
            return answer

        async def end(replica_id, node_id, _):
            self.log.append(("ended", replica_id, node_id))
            return ended_by_us

        async def restart(replica_id, node_id, _, reason):
            self.log.append(("restarted", replica_id, node_id))

        process = SimpleNamespace(tell_rank=SimpleNamespace(remote=tell_rank))
        record = SimpleNamespace(node_id=node_id)
        state = SimpleNamespace(residency=SimpleNamespace(replicas={"m#0": record}))
        machine = SimpleNamespace(state=state, tell=self.log.append, now=lambda: 7.0)
        hosts = SimpleNamespace(get=lambda *_: process, end=end)
        self.ranks = Ranks(machine, hosts, SimpleNamespace(restart=restart), 1)

    def tell(self, command):
        asyncio.run(asyncio.wait_for(self.ranks.tell(TellReplica("m#0", command)), 60.0))
        return self.log


def test_what_a_process_says_of_its_rank_is_told_to_the_fleet():
    news = ReplicaReady(replica_id=SEAT, at=1.0)
    assert Fleet(SaidOfRank((news,))).tell(initialize()) == [ReplicaSaid(replica_id="m#0", news=news, at=7.0)]


def test_a_start_that_failed_is_told_when_the_process_has_ended():
    news = ReplicaStartFailed(replica_id=SEAT, reason="no", at=1.0)
    ended, said = Fleet(SaidOfRank((news,))).tell(initialize())
    assert ended == ("ended", "m#0", "n1")
    assert said.news == news


def test_a_start_that_failed_in_a_process_that_has_ended_is_not_told_a_second_time():
    news = ReplicaStartFailed(replica_id=SEAT, reason="no", at=1.0)
    assert Fleet(SaidOfRank((news,)), ended_by_us=False).tell(initialize()) == [("ended", "m#0", "n1")]


def test_a_process_that_is_told_to_end_is_ended_though_it_does_not_answer(monkeypatch):
    assert Fleet(SaidOfRank(ends=True)).tell(KillReplica(SEAT, 1)) == [("restarted", "m#0", "n1")]
    monkeypatch.setattr(ranks_module, "TOLD_S", 0.01)
    assert Fleet(None).tell(KillReplica(SEAT, 1)) == [("restarted", "m#0", "n1")]


def test_who_is_nowhere_is_told_nothing():
    assert Fleet(SaidOfRank(ends=True), node_id=None).tell(KillReplica(SEAT, 1)) == []


def test_a_start_that_failed_while_nobody_listened_is_told_to_whoever_asks_next():
    """The controller that gave the rank is gone, and its answer with it."""
    query = QueryReplica(SEAT, 2)
    _, lost, asked = told(Refuses(), start(), initialize(0, config={"a": 1}), query)
    assert kinds([lost]) == kinds([asked]) == [ReplicaStartFailed]


def test_a_start_that_failed_is_forgotten_with_the_rank():
    """Off the GPU and there again: it is another start."""
    again = (start("m#1.1"), initialize(0, seat="m#1.1"))
    said = told(Refuses(), start(), initialize(0, config={"a": 1}), None, *again, after=Ranked.leave)
    assert kinds([each for each in said if each is not None]) == [ReplicaStartFailed, ReplicaReady]


def test_a_process_says_where_it_believes_a_rank():
    seats = []
    told(object(), start(), None, initialize(3), None, after=lambda ranked: seats.append(ranked.seat))
    assert seats == [None, SEAT]
