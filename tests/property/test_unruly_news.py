"""Any event in any order, lawful or not: an executor that breaks its half of the contract cannot corrupt the books.

Here nothing models a world. The events are drawn from everything that can be said about the replicas that exist, that are
gone and that never were. Ranks that are reported may be nonsense, so only the tables and R2 are checked, not R3.
"""

import attrs
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from rankcore import DeploymentState, ReplicaRank, deploy, recover, step
from rankcore import events as news
from rankcore.invariants import check
from rankcore.testing.schedules import changed, placement_from, spec_from, static_spec_from
from rankcore.values import age_key

pytestmark = pytest.mark.traced

NODES = st.sampled_from("abc")
GROUP = st.sampled_from((None, "g", "h"))
NUMBER = st.integers(0, 6)
RANKS = st.none() | st.builds(ReplicaRank, NUMBER, st.integers(0, 3), st.integers(0, 3))


class UnrulyMachine(RuleBasedStateMachine):
    state: DeploymentState
    ids: list[str]
    epoch: int
    at: float

    @initialize(number=st.integers(0, 1023), static=st.booleans())
    def deploy(self, number: int, static: bool) -> None:
        self.epoch, self.at = 1, 0.0
        self.state = deploy(static_spec_from(number) if static else spec_from(number)).state
        self.ids = ["llm#0.7"]

    def tell(self, event: news.Event) -> None:
        before = self.state
        result = step(before, event)
        again = step(before, event)
        assert result == again, "step is not a function"
        self.state = result.state
        self.ids.extend(sorted(set(self.state.replicas) - set(self.ids), key=age_key))

    @rule(
        data=st.data(),
        late=st.integers(0, 40),
        say=st.sampled_from(["placed", "ready", "failed", "died", "stopped", "missing", "unhealthy"]),
    )
    def of_a_replica(self, data: st.DataObject, late: int, say: str) -> None:
        replica_id = data.draw(st.sampled_from(self.ids[-12:]))
        at = max(0.0, self.at - late)
        make = {
            "placed": lambda: news.ReplicaPlaced(replica_id=replica_id, node_id=data.draw(NODES), at=at),
            "ready": lambda: news.ReplicaReady(replica_id=replica_id, at=at),
            "failed": lambda: news.ReplicaStartFailed(replica_id=replica_id, reason="x", at=at),
            "died": lambda: news.ReplicaDied(replica_id=replica_id, at=at),
            "stopped": lambda: news.ReplicaStopped(replica_id=replica_id, at=at),
            "missing": lambda: news.ReplicaMissing(replica_id=replica_id, at=at),
            "unhealthy": lambda: news.ReplicaUnhealthy(replica_id=replica_id, at=at),
        }
        self.tell(make[say]())

    @rule(data=st.data(), fail=st.booleans(), off=st.integers(-2, 2))
    def acknowledgement(self, data: st.DataObject, fail: bool, off: int) -> None:
        replica_id = data.draw(st.sampled_from(self.ids[-12:]))
        known = self.state.replicas.get(replica_id)
        revision = max(0, (known.revision if known is not None else 0) + off)
        event = news.ReplicaReconfigureFailed if fail else news.ReplicaReconfigured
        self.tell(event(replica_id=replica_id, revision=revision, at=self.at))

    @rule(
        data=st.data(),
        rank=RANKS,
        node=NODES,
        ready=st.booleans(),
        draining=st.booleans(),
        version=st.sampled_from("12"),
        bundles=st.lists(st.integers(0, 7), max_size=2, unique=True),
    )
    def report(
        self,
        data: st.DataObject,
        rank: ReplicaRank | None,
        node: str,
        ready: bool,
        draining: bool,
        version: str,
        bundles: list[int],
    ) -> None:
        replica_id = data.draw(st.sampled_from(self.ids[-12:]))
        self.tell(
            news.ReplicaReported(
                replica_id=replica_id,
                node_id=node,
                rank=rank,
                version=version,
                ready=ready,
                draining=draining,
                config_id=self.state.spec.config_id,
                bundles=bundles,
                group_id=data.draw(GROUP),
                epoch=data.draw(st.sampled_from((self.epoch, self.epoch, self.epoch, 0))),
                at=self.at,
            )
        )

    @rule(node=NODES, capacity=NUMBER, late=st.integers(0, 10))
    def node_changes(self, node: str, capacity: int, late: int) -> None:
        self.tell(news.NodeChanged(node_id=node, capacity=capacity, at=max(0.0, self.at - late)))

    @rule(bundles=st.lists(st.integers(0, 8), max_size=8), group=GROUP, late=st.integers(0, 10), lost=st.booleans())
    def bundles_come_and_go(self, bundles: list[int], group: str | None, late: int, lost: bool) -> None:
        kind = news.BundleLost if lost else news.BundleRestored
        self.tell(kind(bundles=bundles, group_id=group, at=max(0.0, self.at - late)))

    @rule(node=NODES, late=st.integers(0, 10))
    def node_is_lost(self, node: str, late: int) -> None:
        self.tell(news.NodeLost(node_id=node, at=max(0.0, self.at - late)))

    @rule(node=NODES, late=st.integers(0, 10), how=st.sampled_from("cdu"), left=st.none() | st.integers(-5, 40))
    def node_is_cordoned_drained_or_neither(self, node: str, late: int, how: str, left: int | None) -> None:
        at = max(0.0, self.at - late)
        if how == "d":
            deadline_at = max(0.0, self.at + left) if left is not None else None
            self.tell(news.NodeDrainRequested(node_id=node, deadline_at=deadline_at, at=at))
        else:
            self.tell((news.NodeCordoned if how == "c" else news.NodeUncordoned)(node_id=node, at=at))

    @rule(
        size=NUMBER,
        version=st.sampled_from("12"),
        config=st.sampled_from((None, {"c": 1})),
        placement=st.sampled_from((None, "pack_ranks")) | st.integers(0, 60).map(placement_from),
        data=st.data(),
    )
    def spec_changes(self, size: int, version: str, config: object, placement: object, data: st.DataObject) -> None:
        spec = changed(self.state.spec, version=version, user_config=config, placement=placement)
        if spec.static_placement is None:
            spec = attrs.evolve(spec, target_replicas=size)
        named = data.draw(st.lists(st.sampled_from(self.ids[-12:]), max_size=2))
        self.tell(news.SpecChanged(spec=spec, stop_first=named, at=self.at))

    @rule(data=st.data())
    def stop(self, data: st.DataObject) -> None:
        self.tell(news.StopRequested(replica_ids=[data.draw(st.sampled_from(self.ids[-12:]))], at=self.at))

    @rule(data=st.data(), left=st.none() | st.integers(0, 40))
    def replace(self, data: st.DataObject, left: int | None) -> None:
        deadline_at = self.at + left if left is not None else None
        named = [data.draw(st.sampled_from(self.ids[-12:]))]
        self.tell(news.ReplaceRequested(replica_ids=named, deadline_at=deadline_at, at=self.at))

    @rule(ranks=st.none() | st.tuples() | st.tuples(st.integers(0, 6)))
    def retry(self, ranks: tuple[int, ...] | None) -> None:
        self.tell(news.TrialRequested(at=self.at) if ranks is None else news.RetryRequested(ranks=ranks, at=self.at))

    @rule(seconds=st.sampled_from((0.0, 1.0, 6.0, 70.0)))
    def time_passes(self, seconds: float) -> None:
        self.at += seconds
        self.tell(news.ClockAdvanced(at=self.at))

    @rule()
    def delete(self) -> None:
        self.tell(news.DeleteRequested(at=self.at))

    @rule(keep=st.integers(0, 8))
    def restart(self, keep: int) -> None:
        self.epoch += 1
        found = sorted(self.state.replicas, key=age_key)[:keep]
        deleting = self.state.status in ("DELETING", "DELETED")
        self.state = recover(
            self.state.spec,
            found,
            at=self.at,
            epoch=self.epoch,
            previous=self.state.previous,
            deleting=deleting,
            failed=self.state.status == "DEPLOY_FAILED",
        ).state

    @invariant()
    def books_agree(self) -> None:
        if hasattr(self, "state"):
            assert [each for each in check(self.state) if each.rule in ("index", "R2", "2.3")] == []


TestUnrulyMachine = UnrulyMachine.TestCase
