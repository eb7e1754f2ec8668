"""`ReplicasLeave`: exactly these are stopped, and the target falls by as many in that step (R9)."""

from typing import Any

import pytest

from rankcore import DeploymentSpec, deploy, step
from rankcore.commands import AnnounceWorldSize, PublishRoutes, StopReplica
from rankcore.errors import InvalidEventError, UnknownDeploymentError
from rankcore.events import (
    DeleteRequested,
    ReplicaPlaced,
    ReplicaReady,
    ReplicaReported,
    ReplicasLeave,
    ReplicaStartFailed,
    ReplicaStopped,
    SpecChanged,
    StopRequested,
)
from rankcore.invariants import check, check_step
from rankcore.placement import StaticPlacement
from rankcore.values import ReplicaRank


class Ranks:
    """A deployment."""

    def __init__(self, replicas: int = 2, **options: Any) -> None:
        self.step = deploy(DeploymentSpec(name="llm", target_replicas=replicas, **options))

    def tell(self, *events: Any) -> Any:
        for event in events:
            before = self.state
            self.step = step(before, event)
            assert check(self.state) == []
            assert check_step(before, event, self.step) == []
        return self

    @property
    def state(self) -> Any:
        return self.step.state

    def ready(self, *serials: int) -> "Ranks":
        for each in serials:
            self.tell(ReplicaPlaced(replica_id=f"llm#1.{each}", node_id="n", at=1.0))
            self.tell(ReplicaReady(replica_id=f"llm#1.{each}", at=1.0))
        return self

    def leave(self, *replica_ids: str) -> Any:
        return self.tell(ReplicasLeave(replica_ids=replica_ids, at=2.0))

    def stopped(self) -> list[str]:
        return [each.replica_id for each in self.step.commands if type(each) is StopReplica]


def test_the_one_that_is_named_goes_though_a_slot_is_vacant() -> None:
    ranks = Ranks().ready(0).tell(ReplicaStartFailed(replica_id="llm#1.1", at=1.0))
    ranks.leave("llm#1.0")
    assert ranks.stopped() == ["llm#1.0"]
    assert ranks.state.world_size == 1
    assert [each.world_size for each in ranks.step.commands if type(each) is AnnounceWorldSize] == [1]
    assert [each.removed for each in ranks.step.commands if type(each) is PublishRoutes] == [("llm#1.0",)]


def test_several_leave_at_once_and_each_counts_once() -> None:
    ranks = Ranks(4).ready(0, 1, 2, 3)
    ranks.leave("llm#1.3", "llm#1.0", "llm#1.3")
    assert ranks.stopped() == ["llm#1.3", "llm#1.0"]
    assert ranks.state.world_size == 2


def test_one_that_was_to_be_replaced_is_not_any_more() -> None:
    ranks = Ranks().ready(0, 1).tell(StopRequested(replica_ids=("llm#1.0",), at=1.0))
    ranks.leave("llm#1.0")
    assert ranks.stopped() == []
    assert ranks.state.world_size == 1
    ranks.tell(ReplicaStopped(replica_id="llm#1.0", at=3.0))
    assert len(ranks.state.replicas) == 1


def test_one_that_goes_already_or_is_unknown_changes_nothing() -> None:
    ranks = Ranks().ready(0, 1).leave("llm#1.1")
    ranks.leave("llm#1.1", "llm#1.9")
    assert ranks.state.world_size == 1
    assert [each.kind for each in ranks.step.notes] == ["late", "unknown replica"]


def test_a_successor_that_leaves_was_counted_by_its_slot() -> None:
    ranks = Ranks(1, max_surge=1).ready(0)
    ranks.tell(SpecChanged(spec=DeploymentSpec(name="llm", target_replicas=1, version="2", max_surge=1), at=1.0))
    ranks.leave("llm#1.1")
    assert ranks.state.world_size == 1
    assert "llm#1.1" in ranks.stopped()


def test_nobody_leaves_what_is_being_deleted_or_stands_on_bundles() -> None:
    ranks = Ranks().ready(0, 1).tell(DeleteRequested(at=1.0)).leave("llm#1.0")
    assert ranks.state.world_size == 2
    static = Ranks(placement=StaticPlacement({0: (0,), 1: (1,)}, 2))
    with pytest.raises(InvalidEventError, match="not placed statically"):
        static.leave("llm#1.0")
    with pytest.raises(UnknownDeploymentError):
        ranks.leave("other#1.0")


def test_what_a_recovery_has_not_heard_stays_until_it_reports() -> None:
    from rankcore import recover

    ranks = Ranks()
    ranks.step = recover(DeploymentSpec(name="llm", target_replicas=2), ("llm#1.0", "llm#1.1"), at=1.0, epoch=2)
    ranks.leave("llm#1.0")
    assert ranks.state.world_size == 2
    assert ranks.stopped() == []
    said: Any = {"version": "1", "ready": True, "config_id": None, "epoch": 2, "at": 2.0}
    ranks.tell(ReplicaReported(replica_id="llm#1.0", node_id="n", rank=ReplicaRank(0, 0, 0), **said))
    ranks.leave("llm#1.0")
    assert ranks.state.world_size == 1, "it has reported, though the other has not"
    assert ranks.stopped() == ["llm#1.0"]


def test_a_share_for_the_surge_falls_with_the_target() -> None:
    ranks = Ranks(3, max_surge="50%").ready(0, 1, 2)
    ranks.tell(SpecChanged(spec=DeploymentSpec(name="llm", target_replicas=3, version="2", max_surge="50%"), at=1.0))
    ranks.leave("llm#1.2")
    assert "llm#1.4" in ranks.stopped(), "one of two successors, the younger, is one too many"


def test_where_the_target_is_0_already_nobody_is_told_that_it_is() -> None:
    from rankcore import recover

    ranks = Ranks()
    ranks.step = recover(DeploymentSpec(name="llm", target_replicas=0), ("llm#1.0", "llm#1.1"), at=1.0, epoch=2)
    said: Any = {"version": "1", "ready": True, "config_id": None, "epoch": 2, "at": 2.0}
    ranks.tell(ReplicaReported(replica_id="llm#1.0", node_id="n", rank=ReplicaRank(0, 0, 0), **said))
    ranks.leave("llm#1.0")
    assert ranks.stopped() == ["llm#1.0"]
    assert [each for each in ranks.step.commands if type(each) is AnnounceWorldSize] == []
