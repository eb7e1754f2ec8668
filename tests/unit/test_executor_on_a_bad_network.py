"""The simulator keeps the executor's half of section 2.4 when starts, commands and news are late, lost or repeated."""

from executors.simulator.deployment import DeploymentWorld
from executors.simulator.load.arrivals import Arrivals
from executors.simulator.scenario import parse_scenario
from executors.simulator.world import SimulatedWorld
from rankcore.commands import KillReplica, QueryReplica, StartReplica
from rankcore.events import NodeChanged, NodeLost, ReplicaMissing, ReplicaPlaced, ReplicaStopped

WORLD = """
nodes:
  - {name: n, count: 2, gpus: 2}
network: {latency_s: 0.5, MODEL}
deployments:
  - {name: llm, target_replicas: 3, start_s: 1, init_s: 2}
"""


def new_world(model: str = "loss: 0") -> tuple[SimulatedWorld, DeploymentWorld]:
    world = SimulatedWorld(parse_scenario(WORLD.replace("MODEL", model), "test"), {"llm": Arrivals()})
    return world, world.deployments["llm"]


def start(serial: int = 0, epoch: int = 1) -> StartReplica:
    return StartReplica(f"llm#1.{serial}", serial, "1", None, (), epoch)


def told(port: DeploymentWorld) -> list[object]:
    found = []
    while (event := port.poll()) is not None:
        found.append(event)
    return found


def test_a_start_that_arrives_after_the_fence_was_raised_is_refused():
    _, port = new_world("reorder: 1, reorder_s: 10")
    port.execute(start())
    port.raise_fence(2)
    assert told(port) == []
    assert port.tally.refused == 1


def test_a_start_that_is_overtaken_by_its_kill_never_happens():
    _, port = new_world("reorder: 1, reorder_s: 10")
    port.execute(start())
    port.execute(KillReplica("llm#1.0", 1))
    assert {type(event) for event in told(port)} == {ReplicaStopped}
    assert port.discover() == ()


def test_a_start_that_is_overtaken_by_a_query_never_happens():
    _, port = new_world("reorder: 1, reorder_s: 10")
    port.execute(start())
    port.execute(QueryReplica("llm#1.0", 1))
    assert {type(event) for event in told(port)} == {ReplicaMissing, ReplicaStopped}
    assert port.discover() == ()


def test_a_start_that_arrives_twice_makes_one_process():
    _, port = new_world("duplication: 1")
    port.execute(start())
    assert {type(event) for event in told(port)} == {ReplicaPlaced}
    assert port.tally.replica_starts == 1


def test_every_end_is_told_however_much_is_lost():
    _, port = new_world("loss: 0.9")
    port.execute(KillReplica("llm#1.7", 1))
    assert [type(event) for event in told(port)] == [ReplicaStopped]


def test_nothing_that_a_node_had_is_told_before_its_lease_has_lapsed():
    world, port = new_world("lease_s: 20")
    port.execute(start())
    told(port)
    world.partitions.cut(world.cluster.nodes["n-0"])
    assert told(port) == [NodeLost(node_id="n-0", at=21.5)]
    assert port.discover() == ()


def test_of_two_capacities_told_at_one_instant_the_later_counts_even_if_the_first_is_repeated_after_it():
    world, port = new_world("duplication: 1, loss: 0.5")
    node = world.cluster.nodes["n-0"]
    for free_gpus in (2, 1, 0, 1, 2, 0):
        node.free_gpus = free_gpus
        port.nodes.tell_capacity(node)
    capacities = [event.capacity for event in told(port) if isinstance(event, NodeChanged)]
    assert len(capacities) >= 6
    assert capacities[-1] == 0


def test_what_a_node_still_has_is_told_after_it_was_reached_again_and_not_before():
    world, port = new_world("lease_s: 20")
    world.tell_capacities()
    told(port)
    node = world.cluster.nodes["n-0"]
    world.partitions.cut(node)
    port.execute(start())
    assert [event.node_id for event in told(port) if isinstance(event, ReplicaPlaced)] == ["n-1"]
    world.partitions.mend(node)
    assert [(event.node_id, event.capacity) for event in told(port)] == [("n-0", 2)]
