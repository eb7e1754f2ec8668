"""What an executor that takes a state over is to be told."""

from inspect import ismodule
from pkgutil import iter_modules

import rankcore
from rankcore import DeploymentSpec, DeploymentStatus, deploy, outstanding, recover, step
from rankcore.commands import AnnounceWorldSize, InitializeReplica, PublishRoutes, QueryReplica, StartReplica, WakeAt
from rankcore.events import ReplicaPlaced, ReplicaReady


def kinds(commands: tuple[object, ...]) -> list[type]:
    return [type(command) for command in commands]


def test_what_was_asked_for_and_not_acknowledged_is_asked_for_again_word_for_word():
    first = deploy(DeploymentSpec(name="llm", target_replicas=2))
    starts = [command for command in first.commands if isinstance(command, StartReplica)]
    placed = step(first.state, ReplicaPlaced(replica_id=starts[1].replica_id, node_id="n1", at=1.0))
    told = outstanding(placed.state)
    assert kinds(told) == [AnnounceWorldSize, StartReplica, InitializeReplica, PublishRoutes, WakeAt]
    assert told[1] == starts[0]
    assert told[2] in placed.commands


def test_at_rest_only_what_every_newcomer_is_told_is_left():
    state = deploy(DeploymentSpec(name="llm", target_replicas=1)).state
    state = step(state, ReplicaPlaced(replica_id="llm#1.0", node_id="n1", at=1.0)).state
    state = step(state, ReplicaReady(replica_id="llm#1.0", at=2.0)).state
    assert state.status is DeploymentStatus.HEALTHY
    size, routes, *_ = outstanding(state)
    assert (size.world_size, routes.added, routes.removed) == (1, ("llm#1.0",), ())


def test_routes_are_kept_back_until_all_have_reported():
    state = recover(DeploymentSpec(name="llm", target_replicas=1), ["llm#1.0"], at=5.0, epoch=2).state
    assert kinds(outstanding(state)) == [AnnounceWorldSize, QueryReplica, WakeAt]


def test_a_deleted_deployment_waits_for_nothing():
    state = deploy(DeploymentSpec(name="llm", target_replicas=0)).state
    assert WakeAt not in kinds(outstanding(state))


def test_no_public_name_is_also_that_of_a_module_which_would_hide_it_once_it_is_imported():
    modules = {module.name for module in iter_modules(rankcore.__path__)}
    functions = {name for name in rankcore.__all__ if not ismodule(getattr(rankcore, name))}
    assert not functions & modules
