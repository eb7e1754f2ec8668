"""Static placement on Ray (S1..S8): replicas on the bundles of a group that somebody else owns, on several nodes."""

import os
import signal

import pytest

from tests.ray_local import ANSWER_S, add_node, clean_up, eventually, several_nodes

pytestmark = pytest.mark.slow
pytest.importorskip("ray", reason="Ray is not installed: pip install 'rankcore[ray]'")

OUTSIDE = "bundle 5 of rank 2 is outside placement group 'pg-llm', which has bundles 0..3"
MAPPING = {0: [2, 3], 1: [0, 1]}  # rank 0 is not on bundle 0: what follows ranks by chance is found out


@pytest.fixture(scope="module")
def cluster():
    with several_nodes() as cluster:
        yield cluster


@pytest.fixture
def serve(cluster):
    from executors import ray_gpu

    yield ray_gpu
    clean_up(ray_gpu)


@pytest.fixture
def group(cluster):
    """Four bundles of one processor each, two on each node."""
    from ray.util.placement_group import placement_group, remove_placement_group

    while len(cluster.worker_nodes) < 2:  # a test may have taken one away
        add_node(cluster)
    group = placement_group([{"CPU": 1}] * 4, name="pg-llm")
    assert group.wait(240)
    yield group
    remove_placement_group(group)
    eventually(lambda: looked_up(group).state == "REMOVED", "the group has given its resources back")


def looked_up(group):
    from executors.ray_gpu.placement_groups import look_up

    return look_up(group.id.hex())


def on(group, mapping=MAPPING, **options):
    """What is to be deployed, on these bundles."""
    from executors.ray_gpu import StaticPlacementConfig
    from tests.ray_apps import OnBundles

    placement = StaticPlacementConfig(placement_group=group, replica_bundle_mapping=mapping)
    return OnBundles.options(_placement_info=placement, **options)


def info(serve):
    return serve.status().deployments["OnBundles"]


def states(serve):
    return {str(replica.state) for replica in info(serve).replicas}


def by_rank(serve):
    return ranked(info(serve))


def ranked(found):
    return {replica.rank.rank: replica for replica in found.replicas if replica.rank is not None}


def healthy(serve, epoch=0):
    """The replicas by rank, once all is well."""

    def look():
        found = info(serve) if serve.status().epoch > epoch else None
        return ranked(found) if found is not None and found.status == "HEALTHY" else None

    return eventually(look, "the deployment is healthy")


def stand_on_their_bundles(serve, group, mapping=MAPPING):
    nodes = looked_up(group).nodes
    return {rank: replica.node_id for rank, replica in healthy(serve).items()} == {
        rank: nodes[bundles[0]] for rank, bundles in mapping.items()
    }


def bundles_by_rank(handle):
    """What the replicas themselves say."""
    return eventually(
        lambda: len(found := dict(handle.bundles.remote().result(ANSWER_S) for _ in range(2))) == 2 and found,
        "calls reach both replicas",
    )


def kill(pid):
    os.kill(pid, signal.SIGKILL)


@pytest.mark.night
def test_replica_count_is_the_number_of_mapped_ranks(serve, group):
    from executors.ray_gpu.errors import InvalidDeploymentError

    serve.run(on(group).bind(), route_prefix=None)
    assert sorted(healthy(serve)) == [0, 1]
    with pytest.raises(InvalidDeploymentError, match=r"num_replicas must be 2, the number of ranks .* 'pg-llm', .*got 3"):
        serve.run(on(group, num_replicas=3).bind(), route_prefix=None)
    with pytest.raises(InvalidDeploymentError, match="num_replicas must be 2, the number of ranks"):
        serve.scale("OnBundles", 1)


def test_autoscaling_is_refused_and_the_error_says_why(serve, group):
    from executors.ray_gpu.errors import InvalidDeploymentError

    for option in ({"autoscaling_config": {"min_replicas": 1}}, {"num_replicas": "auto"}):
        with pytest.raises(InvalidDeploymentError, match="as many replicas as ranks in replica_bundle_mapping"):
            on(group, **option)


def test_replica_actor_scheduling_puts_each_rank_on_its_first_bundle(serve, group):
    serve.run(on(group).bind(), route_prefix=None)
    assert len(set(looked_up(group).nodes.values())) == 2
    assert stand_on_their_bundles(serve, group)


def test_replica_context_has_the_whole_list_of_bundles(serve, group):
    handle = serve.run(on(group).bind(), route_prefix=None)
    assert bundles_by_rank(handle) == MAPPING


@pytest.mark.night
def test_child_actors_run_in_the_group_and_may_use_any_bundle(serve, group):
    handle = serve.run(on(group).bind(), route_prefix=None)
    assert handle.child.remote().result(ANSWER_S)[0] == group.id.hex()
    for bundle, node_id in looked_up(group).nodes.items():
        assert handle.child.remote(bundle).result(ANSWER_S) == (group.id.hex(), node_id)


def test_child_actors_run_outside_the_group_where_they_are_not_captured(serve, group):
    from executors.ray_gpu import StaticPlacementConfig
    from tests.ray_apps import OnBundles

    free = StaticPlacementConfig(placement_group=group, replica_bundle_mapping=MAPPING, capture_child_tasks=False)
    handle = serve.run(OnBundles.options(_placement_info=free).bind(), route_prefix=None)
    assert handle.child.remote(None, 0).result(ANSWER_S)[0] is None
    assert stand_on_their_bundles(serve, group)


def test_replica_failure_restarts_it_on_the_same_bundles_with_its_rank(serve, group):
    handle = serve.run(on(group).bind(), route_prefix=None)
    before = healthy(serve)
    kill(before[0].pid)
    after = eventually(lambda: (now := healthy(serve))[0].pid != before[0].pid and now, "rank 0 is back")
    assert after[1] == before[1]
    assert after[0].node_id == before[0].node_id
    assert bundles_by_rank(handle) == MAPPING


def test_bundle_or_node_failure_keeps_the_replica_failed_until_its_bundle_is_back(cluster, serve, group):
    serve.run(on(group).bind(), route_prefix=None)
    before = healthy(serve)
    node = next(each for each in cluster.worker_nodes if each.node_id == before[0].node_id)
    cluster.remove_node(node, allow_graceful=False)
    eventually(lambda: "FAILED" in states(serve), "rank 0 has failed")
    assert info(serve).status == "UNHEALTHY"
    lost = f"placement group 'pg-llm': rank 0 needs bundles 2, 3, lost: node {node.node_id} was lost"
    assert info(serve).message == lost
    assert by_rank(serve)[1] == before[1], "the other rank goes on"
    add_node(cluster)
    after = eventually(lambda: info(serve).status == "HEALTHY" and by_rank(serve), "its bundle is back")
    assert after[1] == before[1]
    assert stand_on_their_bundles(serve, group)


def test_the_groups_life_cycle_is_its_owners(serve, group):
    from ray.util.placement_group import remove_placement_group

    serve.run(on(group).bind(), route_prefix=None)
    serve.delete("OnBundles")
    assert looked_up(group).state == "CREATED"
    serve.run(on(group).bind(), route_prefix=None)
    serve.shutdown()
    assert looked_up(group).state == "CREATED"
    serve.run(on(group).bind(), route_prefix=None)
    healthy(serve)
    remove_placement_group(group)
    eventually(lambda: states(serve) == {"FAILED"}, "both have failed")
    assert "lost: the group was removed" in info(serve).message
    serve.delete("OnBundles", timeout_s=ANSWER_S)


def test_a_controller_crash_keeps_every_replica_on_its_bundles(serve, group):
    serve.run(on(group).bind(), route_prefix=None)
    before, now = healthy(serve), serve.status()
    kill(now.controller_pid)
    assert healthy(serve, now.epoch) == before
    assert looked_up(group).state == "CREATED"
    kill(before[1].pid)
    eventually(lambda: healthy(serve)[1].pid != before[1].pid, "rank 1 is back")
    assert stand_on_their_bundles(serve, group)
    assert healthy(serve)[0] == before[0]


@pytest.mark.night
def test_a_bundle_that_is_lost_while_no_controller_is_there_is_found_to_be(cluster, serve, group):
    serve.run(on(group).bind(), route_prefix=None)
    before, now = healthy(serve), serve.status()
    node = next(each for each in cluster.worker_nodes if each.node_id == before[1].node_id)
    kill(now.controller_pid)
    cluster.remove_node(node, allow_graceful=False)
    eventually(lambda: serve.status().epoch > now.epoch, "a new controller answers")
    eventually(lambda: "rank 1 needs bundles 0, 1, lost" in info(serve).message, "its loss is found out")
    eventually(lambda: sorted(by_rank(serve)) == [0], "the other rank has reported")
    add_node(cluster)
    eventually(lambda: info(serve).status == "HEALTHY", "its bundle is back")
    assert stand_on_their_bundles(serve, group)


@pytest.mark.night
def test_other_features_work_unchanged(serve, group):
    handle = serve.run(on(group).bind(), route_prefix=None)
    before = healthy(serve)
    serve.update("OnBundles", user_config={"name": "v2"})
    eventually(lambda: all(handle.remote().result(ANSWER_S)[1][-1] == "v2" for _ in range(2)), "both have the new config")
    assert {rank: replica.pid for rank, replica in healthy(serve).items()} == {rank: before[rank].pid for rank in before}
    serve.run(on(group, version="next", user_config={"name": "v2"}).bind(), route_prefix=None)
    after = eventually(
        lambda: {each.version for each in healthy(serve).values()} == {"next"} and healthy(serve), "it is updated"
    )
    assert sorted(after) == [0, 1]
    assert stand_on_their_bundles(serve, group)
    serve.stop_replicas([after[0].replica_id])
    eventually(lambda: healthy(serve)[0].replica_id != after[0].replica_id, "rank 0 is replaced")
    assert stand_on_their_bundles(serve, group)


def test_another_mapping_moves_only_those_whose_bundles_change(serve, group):
    serve.run(on(group, {0: [0], 1: [1], 2: [2]}).bind(), route_prefix=None)
    before = healthy(serve)
    moved = {0: [0], 1: [3]}
    serve.run(on(group, moved).bind(), route_prefix=None)
    after = eventually(lambda: len(now := healthy(serve)) == 2 and now, "there are two")
    assert after[0] == before[0]
    assert after[1].replica_id != before[1].replica_id
    assert stand_on_their_bundles(serve, group, moved)


def test_a_group_that_is_not_there_yet_is_waited_for_and_delays_nobody_else(cluster, serve):
    from ray.util.placement_group import placement_group, remove_placement_group

    from tests.ray_apps import double

    group = placement_group([{"CPU": 1, "late": 1}], name="pg-late")
    try:
        serve.run(on(group, {0: [0]}).bind(), wait=False, route_prefix=None)
        assert serve.run(double.bind(), name="other", route_prefix=None).remote(2).result(ANSWER_S) == 4
        waiting = eventually(lambda: info(serve).message, "status says what it waits for")
        assert waiting == "it waits for its bundle: Ray says PENDING of placement group 'pg-late'"
        node = add_node(cluster, resources={"late": 1})
        assert stand_on_their_bundles(serve, group, {0: [0]})
        cluster.remove_node(node)
    finally:
        remove_placement_group(group)


def test_errors_are_one_line_and_name_rank_bundle_and_group(serve, group):
    from ray.util.placement_group import placement_group, remove_placement_group

    from executors.ray_gpu import StaticPlacementConfig
    from executors.ray_gpu.errors import InvalidDeploymentError
    from tests.ray_apps import OnBundles

    serve.start(proxy_location="Disabled")
    removed = placement_group([{"CPU": 0.1}], name="pg-gone")
    remove_placement_group(removed)
    eventually(lambda: looked_up(removed).state == "REMOVED", "it is gone")
    for make, problem in (
        (
            lambda: on(group, {0: [0], 1: [1], 2: [5]}),
            "bundle 5 of rank 2 is outside placement group 'pg-llm', which has bundles 0..3",
        ),
        (lambda: on(group, {0: [0], 2: [1]}), "rank 1 has no bundles in placement group 'pg-llm'"),
        (lambda: on(removed, {0: [0]}), "placement group 'pg-gone' does not exist"),
        (lambda: StaticPlacementConfig("pg-llm", MAPPING), "placement_group must be a PlacementGroup of Ray, got 'pg-llm'"),
        (lambda: StaticPlacementConfig(group, MAPPING, capture_child_tasks="yes"), "capture_child_tasks must be True or False"),
        (
            lambda: serve.run(OnBundles.options(_placement_info=MAPPING).bind(), route_prefix=None),
            "_placement_info must be a Static",
        ),
        (
            lambda: serve.run(on(group, ray_actor_options={"num_cpus": 2}).bind(), route_prefix=None),
            "bundle 2 of rank 0 in placement group 'pg-llm' has CPU 1, and a replica asks for 2: see ray_actor_options",
        ),
        (
            lambda: serve.run(on(group, spares=1).bind(), route_prefix=None),
            "spares of OnBundles cannot be had with bundles of placement group 'pg-llm': a replacement has to wait",
        ),
        (lambda: serve.run(on(group, max_surge=1).bind(), route_prefix=None), "max_surge must be 0 with a static placement"),
    ):
        with pytest.raises(InvalidDeploymentError) as raised:
            make()
        assert problem in str(raised.value)
        assert "\n" not in str(raised.value)
    assert "OnBundles" not in serve.status().deployments
