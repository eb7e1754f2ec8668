"""Runs of models on GPUs, with the outcome worked out by hand: what a miss costs, who leaves for whom, what goes wrong."""

import pytest

from executors.simulator.residency.record import CPU
from rankcore.cluster.commands import MoveWeights, QueryWorker
from rankcore.notes import NoteKind
from rankcore.residency import Level, ResidencyNote
from rankcore.residency.commands import LoadToGpu, UnloadFromGpu
from tests.model_runs import LOADING, NODE, everything, result_of, run_of

A, B, C = ({"name": name, "weight_gb": size} for name, size in (("a", 20), ("b", 60), ("c", 40)))
GB = 10**9


def figures(result, name):
    return next(each for each in result.deployments if each.name == name)


def spans(result, replica=None, gpu=None):
    return [
        (span.worker_id, str(span.phase), span.gpu, pytest.approx(span.since), pytest.approx(span.until))
        for span in result.spans
        if replica in (None, span.worker_id) and gpu in (None, span.gpu)
    ]


def happened(result, kind):
    return [
        (each.at, each.note) for each in result.decisions if isinstance(each.note, ResidencyNote) and each.note.kind == kind
    ]


# -- a miss


def test_a_miss_waits_for_a_start_and_its_bytes_from_disk():
    result = result_of({"a": [100]}, models=[A], duration_s=200)
    # 5 s to start, 20 GB at 2 GB/s, 1 s to serve
    assert figures(result, "a").misses.first_answer_s.p50 == pytest.approx(16)
    assert spans(result) == [("a@1#1.0", "loading", 0, 100, 115), ("a@1#1.0", "hot", 0, 115, 200)]
    found = figures(result, "a")
    assert (found.cold_s, found.warm_s, found.hot_s) == pytest.approx((115, 0, 85))
    assert (found.moves.from_disk_gb, found.moves.moved_gb, found.moves.loads_from_disk) == (20, 20, 1)
    assert found.requests.done == 1


def test_requests_that_come_while_it_loads_provision_once():
    result = result_of({"a": [100, 101, 105]}, models=[A])
    found = figures(result, "a")
    assert (found.misses.count, found.misses.answered, found.moves.loads_from_disk) == (1, 1, 1)
    assert found.requests.done == 3
    assert found.requests.latency_s.p99 == pytest.approx(16, abs=0.1)


def test_a_request_for_a_hot_model_is_no_miss():
    found = figures(result_of({"a": [100, 300]}, models=[{**A, "replicas": 1}]), "a")
    assert found.misses.count == 0
    assert found.requests.latency_s.p99 == pytest.approx(1)
    assert found.hot_s == pytest.approx(600 - 15)


def test_requests_that_nobody_can_wait_for_expire():
    found = figures(result_of({"a": [100]}, models=[{**A, "request_timeout_s": 10}]), "a")
    assert (found.requests.expired, found.requests.done, found.misses.answered) == (1, 0, 0)


def test_two_loads_of_one_node_share_its_disk():
    models = [A, {"name": "d", "weight_gb": 20}]
    result = result_of({"a": [0], "d": [0]}, models=models)
    # 5 s, then 40 GB in all at 2 GB/s; that d is wanted too is said 0.5 s after the caller's report of a
    assert [span[3:] for span in spans(result, gpu=0) if span[1] == "loading"] == [(0, 24.5), (0.5, 25)]
    assert [figures(result, name).misses.first_answer_s.p50 for name in ("a", "d")] == pytest.approx([25.5, 26])


def test_a_miss_that_nobody_waits_for_any_more_is_over():
    # given up at 110; the model is HOT at 115, and the request at 300 is a hit
    found = figures(result_of({"a": [100, 300]}, models=[{**A, "request_timeout_s": 10}]), "a")
    assert (found.misses.count, found.misses.answered, found.requests.done) == (1, 0, 1)


# -- displacement


def test_the_displaced_is_kept_in_the_cache_and_comes_back_faster():
    # a and b fit; c displaces b alone, which costs more to load again but is the one that suffices
    models = [A, B, {"name": "c", "weight_gb": 60}]
    result = result_of({"a": [0], "b": [100], "c": [300]}, models=models, duration_s=900)
    assert figures(result, "b").moves.displaced == 1
    assert figures(result, "a").moves.displaced == 0
    # at 300 it leaves: 60 GB at 10 GB/s to the CPU, and then it is WARM
    assert ("b@1#1.1", "leaving", 0, 300, 306) in spans(result, "b@1#1.1")
    assert ("b@1#1.1", "warm", CPU, 306, 900) in spans(result, "b@1#1.1")
    # c loads once its place is free: 5 s and 60 GB at 2 GB/s
    assert spans(result, "c@1#1.2") == [("c@1#1.2", "loading", 0, 306, 341), ("c@1#1.2", "hot", 0, 341, 900)]
    assert figures(result, "b").warm_s == pytest.approx(594)
    assert figures(result, "b").moves.to_cpu_gb == 60


def test_a_copy_that_takes_longer_than_requests_have_is_made_all_the_same():
    slow = {**LOADING, "to_cpu_gb_per_s": 0.25}
    keys = {"policy": {"drain_timeout_s": 1}, "loading": slow, "duration_s": 900}
    result = result_of({"b": [0], "c": [100]}, models=[B, C], **keys)
    # at 100 b leaves: 60 GB at 0.25 GB/s to the CPU, and then it is WARM
    assert ("b@1#1.0", "leaving", 0, 100, 340) in spans(result, "b@1#1.0")
    assert ("b@1#1.0", "warm", CPU, 340, 900) in spans(result, "b@1#1.0")
    assert figures(result, "b").moves.to_cpu_gb == 60
    assert figures(result, "c").moves.loads_from_disk == 1


def test_warm_is_faster_than_cold():
    models = [B, {"name": "c", "weight_gb": 60}]
    result = result_of({"b": [0, 500], "c": [200]}, models=models, duration_s=900)
    found = figures(result, "b")
    assert (found.moves.loads_from_disk, found.moves.loads_from_cpu, found.misses.count) == (1, 1, 2)
    # c goes in 6 s; then 1 s to start, 60 GB at 10 GB/s, 1 s to serve
    assert sorted([found.misses.first_answer_s.p50 * 2 - 36, 36.0]) == pytest.approx([14, 36])
    assert found.moves.from_cpu_gb == 60


def test_without_a_cache_it_becomes_cold():
    models = [B, {"name": "c", "weight_gb": 60}]
    result = result_of({"b": [0], "c": [200]}, models=models, nodes=[{**NODE, "cpu_cache_gb": 0}])
    found = figures(result, "b")
    assert (found.warm_s, found.moves.to_cpu_gb, found.moves.displaced) == (0, 0, 1)
    assert found.cold_s + found.hot_s == pytest.approx(600)
    assert figures(result, "c").misses.first_answer_s.p50 == pytest.approx(36)


def test_what_a_victim_has_in_flight_is_finished_first():
    models = [B, {"name": "c", "weight_gb": 60}]
    result = result_of({"b": [0, 239], "c": [240]}, models=models, service_s=10)
    assert figures(result, "b").requests.done == 2
    assert ("b@1#1.0", "leaving", 0, 240, 255) in spans(result, "b@1#1.0")  # 9 s of it, then 6 s of bytes


def test_who_is_behind_in_line_has_its_turn_before_it_is_turned_away():
    """Turns of 6 loads would last for longer than the 60 s that a call waits for a place."""
    models = [{"name": name, "weight_gb": 60, "request_timeout_s": 600} for name in "abc"]
    result = result_of({each["name"]: list(range(0, 400, 4)) for each in models}, models=models)
    assert [figures(result, each["name"]).requests.done for each in models] == [100, 100, 100]


def test_what_is_not_finished_in_time_is_done_again():
    models = [{**B, "min_hot_s": 150}, {"name": "c", "weight_gb": 60, "min_hot_s": 150}]
    keys = {"policy": {"drain_timeout_s": 20}, "dispatch": {"wait_for_room_s": 600}, "duration_s": 900}
    found = figures(result_of({"b": [0, 199], "c": [200]}, models=models, service_s=100, **keys), "b")
    assert (found.requests.done, found.requests.lost, found.requests.retried) == (2, 0, 1)
    assert found.misses.count == 2  # at 220 it is cut off, and waits until c has been HOT for 150 s


def test_nobody_leaves_before_its_minimum_time():
    models = [{**B, "min_hot_s": 300}, {"name": "c", "weight_gb": 60}]
    result = result_of({"b": [0], "c": [100]}, models=models, duration_s=900, dispatch={"wait_for_room_s": 600})
    (at, _) = happened(result, "displaced")[0]
    assert at == pytest.approx(335)  # HOT since 35
    assert figures(result, "c").moves.cant_accommodate >= 1


def test_a_model_that_fits_nowhere_disturbs_nobody():
    models = [A, {"name": "huge", "weight_gb": 500}]
    result = result_of({"a": [0], "huge": [100]}, models=models, dispatch={"wait_for_room_s": 50})
    found = figures(result, "huge")
    assert (found.hot_s, found.requests.failed, found.moves.loads_from_disk) == (0, 1, 0)
    assert (found.misses.count, found.misses.answered) == (1, 0)
    assert figures(result, "a").hot_s == pytest.approx(585)
    assert found.moves.cant_accommodate == 0, "it is refused at once, and nothing is planned for it"


def test_what_may_fit_on_a_node_that_is_expected_waits_for_it():
    models = [{"name": "huge", "weight_gb": 500}]
    expected = [{"name": "large", "gpus": 8, "gpu_gb": 80}]
    result = result_of({"huge": [100]}, models=models, dispatch={"wait_for_room_s": 50}, expected_shapes=expected)
    (_, note), *_ = happened(result, "can't accommodate")
    assert note.cant.reasons[0].node_id == "n"


def test_a_replica_over_two_gpus_is_on_both():
    result = result_of({"l": [0]}, models=[{"name": "l", "weight_gb": 100}], nodes=[{**NODE, "gpus": 2}], duration_s=100)
    assert spans(result) == [
        ("l@1#1.0", phase, gpu, *time) for phase, time in (("loading", (0, 55)), ("hot", (55, 100))) for gpu in (0, 1)
    ]
    assert {span.size_bytes for span in result.spans} == {50 * GB}


# -- what users ask for


def test_a_change_scales_up_and_down():
    changes = [{"at": 0, "model": "a", "replicas": 2}, {"at": 300, "model": "a", "replicas": 0}]
    result = result_of(models=[A], changes=changes)
    assert len({span.worker_id for span in result.spans}) == 2
    assert figures(result, "a").hot_s == pytest.approx(300 + 4 - 25)  # until 40 GB are in CPU memory
    assert not [span for span in result.spans if span.gpu != CPU and span.until > 304.001]
    assert figures(result, "a").requests.arrived == 0


@pytest.mark.parametrize(("keep", "warm_s"), [("WARM", 298), ("COLD", 0)])
def test_an_evicted_model_leaves_the_gpus(keep, warm_s):
    changes = [{"at": 300, "model": "a", "evict": keep}]
    result = result_of(models=[{**A, "replicas": 1}], changes=changes)
    found = figures(result, "a")
    assert found.warm_s == pytest.approx(warm_s)
    assert found.moves.evicted == 1


def test_evicting_one_that_is_hot_and_one_that_waits_breaks_no_promise():
    # both leave in one step: who waits has stopped at once, and the deployment is healthy then, which is to be saved first (P2)
    changes = [{"at": 100, "model": "a", "evict": "WARM"}]
    result = result_of(models=[{**B, "name": "a", "replicas": 2}], changes=changes)
    assert figures(result, "a").moves.evicted == 1
    assert result.spans[-1].phase == "warm"


def test_replicas_follow_the_load_down_to_none():
    autoscaling = {
        "min_replicas": 0,
        "max_replicas": 2,
        "target_ongoing_requests": 1,
        "upscale_delay_s": 5,
        "downscale_delay_s": 30,
    }
    result = result_of({"a": [100 + 0.5 * i for i in range(200)]}, models=[{**A, "autoscaling": autoscaling}], service_s=2)
    found = figures(result, "a")
    assert found.requests.done == 200
    assert len({span.worker_id for span in result.spans if str(span.phase) == "hot"}) == 2
    assert 100 < found.hot_s < 300
    assert found.warm_s > 100


def test_who_is_not_used_leaves_if_the_policy_says_so():
    result = result_of({"a": [0]}, models=[A], policy={"idle_to_warm_s": 60, "idle_to_cold_s": 120})
    found = figures(result, "a")
    assert found.moves.evicted >= 1
    assert 0 < found.hot_s < 120
    assert 0 < found.warm_s <= 180
    assert found.cold_s > 300


# -- what goes wrong


def test_a_failed_load_is_tried_again_and_its_bytes_count():
    faults = [{"kind": "load_failure", "at": 0, "model": "a"}]
    result = result_of({"a": [1]}, models=[A], faults=faults)
    found = figures(result, "a")
    assert (found.moves.load_failures, found.moves.loads_from_disk, found.requests.done) == (1, 2, 1)
    assert 20 < found.moves.from_disk_gb < 40
    assert found.misses.first_answer_s.p50 > 16 + 5


def test_who_waits_for_a_model_whose_loads_were_given_up_is_told_and_who_asks_later_has_it():
    faults = [{"kind": "load_failure", "at": 0, "model": "a", "count": 2}]
    keys = {"policy": {"max_load_failures": 2, "retry_s": 1}, "dispatch": {"failed_for_s": 60}}
    result = result_of({"a": [1, 70, 300]}, models=[A], faults=faults, **keys)
    found = figures(result, "a")
    assert [noted.note.kind for noted in result.decisions].count(NoteKind.DEPLOY_FAILED) == 1
    assert (found.moves.load_failures, found.requests.failed, found.requests.done) == (2, 2, 1)


def test_what_is_on_a_lost_node_is_loaded_elsewhere():
    nodes = [{**NODE, "name": "n", "count": 2}]
    faults = [
        {"kind": "node_loss", "at": 200, "node": "n-0"},
        {"kind": "node_loss", "at": 200, "node": "n-1", "back_after_s": 50},
    ]
    result = result_of({"a": [0, 220]}, models=[A], nodes=nodes, faults=faults)
    found = figures(result, "a")
    assert found.requests.done == 2
    assert found.moves.loads_from_disk == 3  # the second begins on n-1 in the moment in which that is lost too
    assert found.moves.from_disk_gb == 40
    assert result.spans[-1].node_id == "n-1"
    assert result.spans[-1].since == pytest.approx(265)
    assert sorted((outage.subject, outage.since, outage.until) for outage in result.outages) == [
        ("n-0", 200, 600),
        ("n-1", 200, 250),
    ]


def test_a_node_that_vanishes_in_the_middle_of_a_load_takes_it_along():
    nodes = [{**NODE, "name": "n", "count": 2}]
    result = result_of(
        {"a": [0]}, models=[A], nodes=nodes, faults=[{"kind": "node_loss", "at": 10, "node": "n-0", "back_after_s": 5}]
    )
    found = figures(result, "a")
    assert (found.requests.done, found.moves.loads_from_disk) == (1, 2)
    assert found.moves.from_disk_gb == pytest.approx(10 + 20)  # 5 s of 2 GB/s are lost
    assert found.misses.first_answer_s.p50 == pytest.approx(26)


def test_what_was_warm_on_a_lost_node_is_cold():
    changes = [{"at": 100, "model": "a", "evict": "WARM"}]
    faults = [{"kind": "node_loss", "at": 200, "node": "n", "back_after_s": 50}]
    result = result_of(models=[{**A, "replicas": 1}], changes=changes, faults=faults)
    assert figures(result, "a").warm_s == pytest.approx(98)


def test_a_crashed_replica_is_loaded_again():
    result = result_of({"a": [0, 110]}, models=[A], faults=[{"kind": "replica_crash", "at": 100, "model": "a"}])
    found = figures(result, "a")
    assert (found.requests.done, found.moves.loads_from_disk) == (2, 2)
    assert happened(result, "replica lost")
    nobody = result_of(models=[A], faults=[{"kind": "replica_crash", "at": 100, "model": "a"}])
    assert nobody.happenings[0].text == "a replica of a was to crash, but none is on a GPU"


def unready(at, for_s=None, model="a"):
    return {"kind": "replica_unready", "at": at, "model": model, **({"for_s": for_s} if for_s is not None else {})}


def test_a_replica_that_takes_no_requests_for_a_while_finishes_those_that_it_has_and_is_not_moved():
    result = result_of({"a": [99.5, 110]}, models=[{**A, "replicas": 1}], faults=[unready(100, 30)])
    found = figures(result, "a")
    assert (found.requests.done, found.moves.loads_from_disk) == (2, 1), "nobody else is loaded for it"
    assert found.requests.latency_s.p99 == pytest.approx(21, abs=0.5), "it waits for 20 s, and is served for one"
    assert spans(result)[-1] == ("a@1#1.0", "hot", 0, 15, 600)
    assert [each.text for each in result.happenings][:1] == ["a@1#1.0 takes no requests for 30 s"]


def test_who_comes_up_unready_serves_once_that_is_over_and_two_faults_count_as_two():
    found = figures(result_of({"a": [0]}, models=[A], faults=[unready(8, 30), unready(9, 50)]), "a")
    assert (found.requests.done, found.moves.loads_from_disk) == (1, 1)
    assert found.misses.first_answer_s.p50 == pytest.approx(39, abs=0.5), "the second hits nobody: there is one replica"
    nobody = result_of(models=[A], faults=[unready(100)])
    assert nobody.happenings[0].text == "a replica of a was to take no requests, but none is on a GPU"


def test_who_never_takes_requests_again_is_unready_for_the_next_controller_too():
    faults = [unready(100), {"kind": "controller_crash", "at": 120, "restart_after_s": 5}]
    result = result_of({"a": [130]}, models=[{**A, "replicas": 1, "request_timeout_s": 60}], faults=faults)
    assert figures(result, "a").requests.expired == 1
    assert result.failure is None


def test_a_load_whose_process_dies_has_failed():
    found = figures(result_of({"a": [0]}, models=[A], faults=[{"kind": "replica_crash", "at": 8, "model": "a"}]), "a")
    assert (found.moves.load_failures, found.requests.done) == (1, 1)


def test_a_node_that_lies_about_its_memory_is_found_out_by_a_load_that_fails():
    nodes = [{**NODE, "name": "liar", "really_gpu_gb": 30}, {"name": "true", "gpus": 1, "gpu_gb": 90}]
    result = result_of({"c": [0]}, models=[C], nodes=nodes)
    found = figures(result, "c")
    assert (found.moves.load_failures, found.requests.done) == (1, 1)
    (_, note), *_ = happened(result, "measured")
    assert note.node_id == "liar"
    assert result.spans[-1].node_id == "true"
    assert all(span.size_bytes <= 30 * GB for span in result.spans if span.node_id == "liar")


def test_a_replica_that_takes_more_than_was_said_is_reserved_what_it_takes():
    models = [{**A, "working_gb": 5, "really_working_gb": 40}, {"name": "d", "weight_gb": 25}]
    run = run_of({"a": [0], "d": [100]}, models=models)
    result = run.go()
    assert result.failure is None
    assert figures(result, "d").moves.cant_accommodate + figures(result, "a").moves.displaced >= 1
    for span in result.spans:
        assert span.worker_id != "a@1#1.0" or str(span.phase) != "hot" or span.size_bytes == 60 * GB


def test_a_replica_that_takes_more_than_there_is_fails_to_load():
    found = figures(result_of({"a": [0]}, models=[{**A, "really_working_gb": 70}]), "a")
    assert (found.requests.done, found.requests.failed, found.hot_s) == (0, 1, 0)
    assert found.moves.load_failures >= 1


def test_memory_that_shrinks_makes_replicas_leave():
    faults = [{"kind": "memory_shrinks", "at": 300, "node": "n", "gpu_gb": 70}]
    result = result_of({"a": [0], "b": [0]}, models=[A, B], faults=faults)
    assert [note.node_id for _, note in happened(result, "measured")] == ["n"]
    late = [span for span in result.spans if span.gpu == 0 and span.until > 400]
    assert sum(span.size_bytes for span in late) <= 70 * GB


def test_a_world_that_puts_more_on_a_gpu_than_there_is_breaks_a_promise():
    run = run_of({"a": [0]}, models=[A])
    run.world.nodes["n"].memory.take("somebody", (0,), (70 * GB,))
    failure = run.go().failure
    assert failure is not None
    assert failure.rule == "T1"
    assert "default/a@1#1.0 does not fit on GPU 0 of n" in failure.text


def test_what_is_held_without_being_reserved_breaks_a_promise():
    run = run_of({"a": [0]}, models=[A])
    run.world.nodes["n"].memory.take("somebody", (0,), (50 * GB,))
    failure = run.go().failure
    assert failure is not None
    assert failure.rule == "T8"


# -- the controller, and updates


@pytest.mark.parametrize("at", [3, 10, 14.9, 303, 310, 320, 341])
def test_a_controller_that_dies_learns_from_the_workers_and_nobody_is_loaded_twice(at):
    """While a loads for its first caller, or b leaves for c: what is under way ends, and is adopted."""
    models = [{**A, "min_hot_s": 5}, B, {"name": "c", "weight_gb": 60}]
    faults = [{"kind": "controller_crash", "at": at, "restart_after_s": 4}]
    result = result_of({"a": [0], "b": [100], "c": [300]}, models=models, duration_s=900, faults=faults)
    assert [figures(result, name).requests.done for name in "abc"] == [1, 1, 1]
    assert [figures(result, name).moves.loads_from_disk for name in "abc"] == [1, 1, 1]
    assert (figures(result, "b").moves.displaced, figures(result, "a").moves.displaced) == (1, 0)
    assert [outage.kind for outage in result.outages] == ["controller down"]


def test_after_a_restart_each_node_is_planned_on_again_where_a_deployment_had_workers_on_two():
    # b is on both; beside it each node has room for one more
    nodes, slow = [{**NODE, "count": 2}], {"latency_s": 0.5}  # so that nodes are told of before their workers have reported
    models = [{**B, "replicas": 2}, *({"name": name, "weight_gb": 15, "min_hot_s": 900} for name in ("d", "e"))]
    faults = [{"kind": "controller_crash", "at": 100, "restart_after_s": 10}]
    result = result_of({"d": [150], "e": [150]}, models=models, nodes=nodes, faults=faults, network=slow)
    assert {span.node_id for span in result.spans if span.deployment in ("d", "e")} == {"n-0", "n-1"}
    assert [figures(result, name).requests.done for name in ("d", "e")] == [1, 1]


def test_what_a_dead_controller_has_sent_begins_nothing_behind_the_next_ones_back():
    """Its load from disk is on its way for 20 s; the next controller comes up at 6, finds no worker, and sends its own."""
    faults = [{"kind": "controller_crash", "at": 5, "restart_after_s": 1}]
    result = result_of(models=[{**A, "replicas": 1}], faults=faults, network={"latency_s": 20})
    assert figures(result, "a").moves.loads_from_disk == 1
    assert {span.worker_id for span in result.spans} == {"a@1#2.0"}


@pytest.mark.parametrize("phase", ["loading", "hot"])
def test_a_worker_that_was_asked_by_a_newer_controller_refuses_the_moves_of_an_older_one(phase):
    run = run_of(models=[{**A, "replicas": 1}])
    run.until(10 if phase == "loading" else 100)
    workers = run.world.workers
    (worker,) = workers.live.values()
    before, move = worker.phase, worker.move
    unload = UnloadFromGpu(replica_id=worker.worker_id, node_id="n", timeout_s=0, move=move + 1)
    load = LoadToGpu(
        replica_id=worker.worker_id,
        model="default/a@1",
        node_id="n",
        gpus=(0,),
        gpu_bytes=(20 * GB,),
        source=Level.COLD,
        move=move + 1,
    )
    workers.obey(QueryWorker(worker.worker_id, 2))
    for late in (unload, load):
        workers.obey(MoveWeights("default/a", None, late, 1))
    workers.obey(QueryWorker(worker.worker_id, 1))
    assert (worker.phase, worker.move, worker.half.epoch) == (before, move, 2)
    workers.obey(MoveWeights("default/a", None, unload, 2))
    assert not workers.live


def test_who_leaves_takes_what_it_takes_until_it_has_left():
    """A takes 70 GB of each GPU, and not 50: beside what d waits for there is no room, so it leaves. Its copy takes 400 s."""
    models = [{**A, "weight_gb": 100, "really_working_gb": 40, "replicas": 1}, {"name": "d", "weight_gb": 45, "replicas": 1}]
    keys = {"nodes": [{**NODE, "gpus": 2}], "loading": {**LOADING, "to_cpu_gb_per_s": 0.25}, "network": {"latency_s": 10}}
    run = run_of(models=models, **keys)
    run.until(150)
    assert run.world.story.failure is None
    assert run.world.nodes["n"].memory.used == [70 * GB] * 2
    assert [str(each.phase) for each in run.world.workers.live.values()] == ["leaving"]
    reserved = [gpu.capacity_bytes - gpu.free_bytes for gpu in run.world.control.state.weights.planner.nodes["n"].gpus]
    assert min(reserved) == 50 * GB


def test_who_asks_while_no_controller_is_up_waits_for_one():
    faults = [{"kind": "controller_crash", "at": 99, "restart_after_s": 50}]
    found = figures(result_of({"a": [100]}, models=[A], faults=faults), "a")
    assert found.misses.first_answer_s.p50 == pytest.approx(49 + 16)


def test_another_version_takes_the_memory_of_the_one_before():
    changes = [{"at": 100, "deployment": "b", "version": "2"}]
    result = result_of({"b": [0, 300]}, models=[B], changes=changes)
    assert {span.worker_id for span in result.spans} == {"b@1#1.0", "b@2#1.1"}
    assert figures(result, "b").requests.done == 2
    assert not [span for span in result.spans if span.worker_id == "b@1#1.0" and span.until > 150]


@pytest.mark.parametrize(
    "fault",
    [
        {"kind": "replica_crash", "at": 110, "deployment": "b"},
        {"kind": "replica_crash", "at": 101, "deployment": "b"},
        {"kind": "load_failure", "at": 100, "deployment": "b"},
        {"kind": "node_loss", "at": 110, "node": "n", "back_after_s": 20},
        {"kind": "controller_crash", "at": 110, "restart_after_s": 20},
    ],
)
def test_what_goes_wrong_in_the_middle_of_an_update_costs_a_load_and_no_answer(fault):
    changes = [{"at": 100, "deployment": "b", "version": "2"}]
    result = result_of({"b": [0, 105, 300]}, models=[B], changes=changes, faults=[fault])
    assert figures(result, "b").requests.done == 3
    assert result.spans[-1].worker_id.startswith("b@2#")
    assert result.spans[-1].phase == "hot"


def test_a_deleted_deployment_leaves_the_gpus_and_who_asks_for_it_is_told():
    changes = [{"at": 100, "deployment": "a", "delete": True}]
    result = result_of({"a": [0, 200]}, models=[A, B], changes=changes)
    found = figures(result, "a")
    assert (found.requests.done, found.requests.failed) == (1, 1)
    assert not [span for span in result.spans if span.deployment == "a" and span.until > 110]


def test_what_is_asked_of_what_is_deleted_is_refused_and_said():
    changes = [{"at": 100, "deployment": "a", "delete": True}, {"at": 200, "deployment": "a", "target_replicas": 1}]
    result = result_of({"a": [0]}, models=[A, B], changes=changes)
    assert any("that was refused" in each.text for each in result.happenings)


def test_who_is_used_does_not_leave_for_idleness_and_is_not_displaced_before_who_is_not():
    # d and e weigh the same; d is called all the time (D8)
    models = [{"name": "d", "weight_gb": 30}, {"name": "e", "weight_gb": 30}, {"name": "f", "weight_gb": 40}]
    requests = {"d": [float(at) for at in range(0, 600, 20)], "e": [1.0], "f": [300.0]}
    result = result_of(requests, models=models, duration_s=600, policy={"idle_to_warm_s": 400})
    assert (figures(result, "d").moves.displaced, figures(result, "e").moves.displaced) == (0, 1)
    assert figures(result, "d").moves.evicted == 0


# -- the run


def test_without_a_duration_a_run_ends_with_its_last_answer():
    requests = {"poisson": {"rate_per_s": 1, "for_s": 10, "service_s": 1}}
    result = result_of({"a": [100]}, models=[{**A, "requests": requests}], duration_s=None)
    assert result.ended_at == pytest.approx(116)


def test_a_run_that_waits_for_ever_ends_when_it_should_have_settled():
    requests = {"poisson": {"rate_per_s": 1, "for_s": 10, "service_s": 1}}
    models = [{"name": "huge", "weight_gb": 500, "requests": requests}]
    expected = [{"name": "large", "gpus": 8, "gpu_gb": 80}]
    result = result_of(  # less than wait_for_room_s
        {"huge": [100]}, models=models, duration_s=None, settle_s=50, expected_shapes=expected
    )
    assert result.ended_at == pytest.approx(150)
    assert result.all_deployments.requests.unfinished == 1


def test_the_same_seed_gives_the_same_run_and_another_one_another():
    assert everything() == everything()
    assert everything(seed=5) != everything()
