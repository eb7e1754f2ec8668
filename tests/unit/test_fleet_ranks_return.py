"""A replica of a fleet that comes back to the GPU has the rank that it had, whoever becomes HOT in between (D12, R6)."""

import pytest

from rankcore.dispatching import (
    FleetState,
    RankSpec,
    ReplicaSaid,
    ServingChanged,
    ServingSpec,
    TellReplica,
    fleet_step,
    open_fleet,
)
from rankcore.dispatching.events import Event
from rankcore.dispatching.invariants import check, check_step
from rankcore.replica.messages import Reaction
from rankcore.replica.replica import RunUserCode
from rankcore.residency import ModelSpec, Wanted
from rankcore.residency.commands import LoadToGpu
from rankcore.residency.events import (
    DeployRequested,
    LoadFinished,
    NodeJoined,
    NodeLost,
    RemoveRequested,
    ReplicaLost,
    ScaleRequested,
)
from rankcore.routing import RoutingSpec
from tests.replicas import HeldWorker


class Fleet:
    """A fleet of one model with ranks, whose processes do at once what they are told."""

    def __init__(self, nodes: dict[str, int], replicas: int) -> None:
        self.state: FleetState = open_fleet()
        self.processes: dict[str, HeldWorker] = {}
        for node_id, gpus in nodes.items():
            self.tell(NodeJoined(node_id=node_id, gpu_bytes=(80,) * gpus, cpu_bytes=0, at=0.0))
        self.tell(ServingChanged(spec=ServingSpec(routing=RoutingSpec(name="m"), ranks=RankSpec()), at=0.0))
        wanted = Wanted(spec=ModelSpec(model="m", weight_bytes=50), replicas=replicas)
        self.tell(DeployRequested(wanted=(wanted,), at=0.0))

    def tell(self, event: Event) -> None:
        step = fleet_step(self.state, event)
        assert check_step(self.state, event, step) == []
        assert check(step.state) == []
        self.state = step.state
        for command in step.commands:
            if isinstance(command, TellReplica):
                self.hand_over(command)

    def hand_over(self, command: TellReplica) -> None:
        node_id = self.state.residency.replicas[command.replica_id].node_id
        assert node_id is not None
        process = self.processes.setdefault(command.replica_id, HeldWorker(command.replica_id, node_id))
        self.react(process, process.receive(command.command, 0.0))

    def react(self, process: HeldWorker, reactions: tuple[Reaction, ...]) -> None:
        for each in reactions:
            if isinstance(each, RunUserCode):
                self.react(process, process.user_code_ended(each, 0.0))
            else:
                self.tell(ReplicaSaid(replica_id=process.value.worker_id, news=each, at=0.0))

    def load(self, replica_id: str) -> None:
        self.tell(LoadFinished(replica_id=replica_id, move=self.state.moves[replica_id].command.move, at=0.0))

    def lose(self, replica_id: str) -> None:
        del self.processes[replica_id]
        self.tell(ReplicaLost(replica_id=replica_id, reason="CUDA error: device-side assert triggered", at=0.0))

    @property
    def ranks(self) -> dict[str, int]:
        return {replica_id: rank.rank for replica_id, rank in self.state.ranks_of("m").items()}


@pytest.mark.parametrize("lost", ["m#0", "m#1"])
def test_a_newcomer_that_is_HOT_first_does_not_take_the_rank_of_a_replica_that_is_restarted(lost: str):
    fleet = Fleet({"n1": 6}, replicas=2)
    fleet.load("m#0")
    fleet.load("m#1")
    fleet.tell(ScaleRequested(model="m", replicas=3, at=0.0))
    fleet.lose(lost)
    fleet.load("m#2")
    assert fleet.ranks["m#2"] == 2
    fleet.load(lost)
    assert fleet.ranks == {"m#0": 0, "m#1": 1, "m#2": 2}


def test_a_node_that_is_lost_gives_no_rank_away_as_long_as_its_replica_is_wanted():
    fleet = Fleet({"n1": 1, "n2": 3}, replicas=2)
    fleet.load("m#0")
    fleet.load("m#1")
    [lost] = [each for each in ("m#0", "m#1") if fleet.state.residency.replicas[each].node_id == "n1"]
    rank = fleet.ranks[lost]
    fleet.tell(ScaleRequested(model="m", replicas=3, at=0.0))
    del fleet.processes[lost]
    fleet.tell(NodeLost(node_id="n1", at=0.0))
    fleet.load("m#2")
    assert fleet.ranks["m#2"] == 2
    fleet.load(lost)
    assert fleet.ranks[lost] == rank
    assert sorted(fleet.ranks.values()) == [0, 1, 2]


def test_a_rank_whose_replica_is_not_wanted_any_more_goes_to_whoever_is():
    fleet = Fleet({"n1": 6}, replicas=2)
    fleet.load("m#0")
    fleet.load("m#1")
    fleet.lose("m#0")
    fleet.tell(ScaleRequested(model="m", replicas=1, at=0.0))
    assert fleet.ranks == {"m#1": 0}
    fleet.tell(ScaleRequested(model="m", replicas=2, at=0.0))
    [newcomer] = [each for each, move in fleet.state.moves.items() if isinstance(move.command, LoadToGpu)]
    fleet.load(newcomer)
    assert fleet.ranks == {"m#1": 0, newcomer: 1}


def test_a_model_that_is_removed_ends_with_all_its_ranks_when_its_node_is_lost():
    """All its records end in one step."""
    fleet = Fleet({"n1": 6}, replicas=3)
    for each in ("m#0", "m#1", "m#2"):
        fleet.load(each)
    fleet.tell(RemoveRequested(model="m", at=0.0))
    fleet.tell(NodeLost(node_id="n1", at=0.0))
    assert "m" not in fleet.state.models
