"""The life of a replica: loads that fail, moves that end late, twice or not at all, use, idleness, losses (T2, T8, T10)."""

import pytest

from rankcore.residency import Level, Phase, ResidencyPolicy, Wanted, open_residency, plan_residency, residency_step
from rankcore.residency.commands import DropFromCpu
from rankcore.residency.events import (
    DeployRequested,
    EvictRequested,
    LoadFailed,
    LoadFinished,
    MemoryMeasured,
    NodeJoined,
    OffloadFailed,
    OffloadFinished,
    ReplicaLost,
)
from rankcore.residency.reports import FoundReplica, NodeAdopted
from rankcore.testing.model_residency.driving import DrivenPlanner
from tests.residents import ENDED, Cluster, model


def serving(*models, nodes=((80,),), **options):
    return Cluster(*nodes, **options).deploy(*models).settle()


def test_it_is_loaded_and_serves():
    cluster = Cluster((80,)).deploy(model("m", 50))
    assert cluster.where("m#0") == ("COLD", "loading", "n1", (0,))
    assert cluster.state.hot_replicas("m") == ()
    cluster.wait(3.0).settle()
    assert cluster.where("m#0") == ("HOT", "serving", "n1", (0,))
    assert (cluster["m#0"].hot_since, cluster["m#0"].last_used) == (3.0, 3.0)
    assert cluster.state.hot_replicas("m") == ("m#0",)
    assert cluster.state.target("m") == 1
    assert cluster.state.target("unknown") == 0


def test_who_is_wanted_is_seen_at_once():
    cluster = serving((model("m", 30), 2)).scale("m", 3)
    assert cluster.state.wanted_replicas("m") == ("m#0", "m#1", "m#2")
    assert cluster.scale("m", 1).state.wanted_replicas("m") == ("m#0",)


def test_of_those_that_wait_the_newest_go_first_when_fewer_are_wanted():
    cluster = serving((model("m", 30), 4)).scale("m", 3)
    assert [cluster.where(f"m#{serial}")[1] for serial in range(4)] == ["serving", "serving", "waiting", "ended"]


def test_an_answer_to_an_older_command_changes_nothing():
    cluster = serving(model("m", 50))
    before = cluster.state
    for event in (
        LoadFinished(replica_id="m#0", move=1, at=0.0),
        LoadFinished(replica_id="m#0", move=99, at=0.0),
        OffloadFinished(replica_id="m#0", move=1, at=0.0),
        OffloadFailed(replica_id="x#0", move=1, at=0.0),
        LoadFailed(replica_id="m#0", move=1, at=0.0),
        ReplicaLost(replica_id="x#0", at=0.0),
    ):
        cluster.feed(event)
        assert cluster.kinds() == ["late"]
        assert cluster.state == before


def test_a_failed_load_gives_up_its_place_and_the_next_one_that_is_wanted_has_it():
    cluster = Cluster((80,)).deploy(model("m", 50))
    cluster.answer(fails="out of memory")
    assert cluster.where("m#0") == ENDED
    assert cluster.why("m#0") == ["out of memory"]
    assert cluster.sent() == [("LoadToGpu", "m#1")]
    assert cluster.free("n1") == (30,)
    cluster.answer(fails="")
    assert cluster.why("m#1") == ["no reason was given"]
    assert cluster.settle().state.hot_replicas("m") == ("m#2",)


def test_a_failed_load_makes_room_for_those_who_wait():
    cluster = Cluster((80,)).deploy(model("m", 50, dedicated=True)).deploy(model("next", 60))
    cluster.planner = DrivenPlanner(cluster.state, cluster.planner.called_for.delete("m"))  # nobody calls for it again
    cluster.answer(fails="x")
    assert cluster.sent() == [("LoadToGpu", "next#1")]
    assert cluster.free("n1") == (20,)


def test_a_failed_load_from_cpu_memory_leaves_the_copy():
    cluster = serving(model("m", 50), cpu=50).evict(model="m").settle().deploy(model("m", 50))
    cluster.answer(fails="x")
    assert cluster.sent() == [("LoadToGpu", "m#0")]
    assert cluster.commands[0].source == "WARM"
    cluster.planner = DrivenPlanner(cluster.state, cluster.planner.called_for.delete("m"))
    cluster.answer(fails="x")
    assert cluster.where("m#0") == ("WARM", "resting", "n1", ())
    assert cluster["m#0"].because == "its load failed: x"


def test_an_offload_that_fails_leaves_it_cold():
    cluster = serving(model("m", 50), cpu=50).evict(model="m")
    cluster.answer(fails="copy failed")
    assert cluster.where("m#0") == ENDED
    assert cluster.why("m#0") == ["copy failed"]
    assert cluster.state.nodes["n1"].cpu_free_bytes == 50
    cluster = serving(model("m", 50), cpu=50).evict(model="m")
    cluster.answer(fails="")
    assert cluster.why("m#0") == ["its offload failed"]


@pytest.mark.parametrize(("keep", "where", "free"), [(Level.WARM, ("WARM", "resting", "n1", ()), 0), (Level.COLD, ENDED, 50)])
def test_evicted_it_is_warm_or_cold_as_asked(keep, where, free):
    cluster = serving(model("m", 50), cpu=50).evict(replica_id="m#0", keep=keep)
    assert cluster.state.target("m") == 0
    assert cluster.settle().where("m#0") == where
    assert cluster.state.nodes["n1"].cpu_free_bytes == free


def test_evicted_while_it_loads_it_keeps_its_copy_unless_it_is_to_be_cold():
    def loading():
        return serving(model("m", 50), cpu=50).evict(model="m").settle().deploy(model("m", 50))

    cluster = loading().evict(model="m")
    assert cluster.sent() == [("UnloadFromGpu", "m#0")]
    (load, unload) = cluster.pending
    cluster.answer(load)
    assert cluster.kinds() == ["late"]
    cluster.answer(unload)
    assert cluster.where("m#0") == ("WARM", "resting", "n1", ())
    cluster = loading().evict(model="m", keep=Level.COLD)
    cluster.answer(cluster.pending[-1])
    assert cluster.where("m#0") == ("WARM", "dropping", "n1", ())
    assert isinstance(cluster.commands[0], DropFromCpu)
    cluster.answer(cluster.commands[0])
    assert cluster.where("m#0") == ENDED


def test_evicted_again_to_be_cold_while_it_leaves_no_copy_stays():
    cluster = serving(model("m", 50), cpu=50).evict(model="m").evict(model="m", keep=Level.COLD)
    assert cluster.kinds() == ["evicted"]
    assert cluster.settle().where("m#0") == ENDED


def test_a_warm_replica_is_evicted_from_cpu_memory_too():
    cluster = serving((model("m", 30), 2), cpu=30).evict(model="m").settle()
    cluster.evict(model="m", keep=Level.COLD)
    assert cluster.kinds() == ["evicted"]
    assert [name for name, _ in cluster.sent()] == ["DropFromCpu"]
    assert not cluster.settle().state.replicas


def test_what_is_off_the_gpus_already_cannot_be_evicted():
    cluster = serving(model("m", 50), cpu=50).evict(model="m").settle().evict(replica_id="m#0")
    assert cluster.kinds() == ["late"]
    cluster.evict(replica_id="m#0", keep=Level.COLD).evict(replica_id="m#0", keep=Level.COLD)
    assert cluster.kinds() == ["late"]


def test_evicted_while_it_waits_or_reserves_it_gives_up_its_place():
    cluster = serving(model("a", 60)).deploy(model("m", 50)).evict(model="m")
    assert cluster.where("m#1") == ENDED
    assert cluster.free("n1") == (20,)
    assert cluster.settle().where("a#0")[0] == "COLD"
    assert cluster.free("n1") == (80,)
    cluster = Cluster((80,)).deploy(model("m", 81, gpus=1)).evict(model="m", keep=Level.COLD)
    assert cluster.where("m#0") == ENDED


def test_evicted_on_its_way_elsewhere_its_copy_still_goes():
    cluster = serving(model("m", 50), cpu=50).evict(model="m").settle()
    cluster.deploy(model("d", 40, dedicated=True)).settle().join("n2", 80).deploy(model("m", 50)).evict(model="m")
    assert cluster.where("m#0") == ("WARM", "dropping", "n1", ())
    cluster.deploy(model("m", 50))
    assert cluster.where("m#0") == ("WARM", "reserving", "n2", (0,))
    assert cluster.settle().where("m#0")[0] == "HOT"


def test_scaled_down_those_go_first_that_do_not_serve_yet():
    cluster = serving((model("m", 20), 3), nodes=((60,), (20,))).scale("m", 5)
    assert [cluster.where(f"m#{serial}")[1] for serial in range(5)] == ["serving"] * 3 + ["loading", "waiting"]
    cluster.scale("m", 3)
    assert [cluster.where(f"m#{serial}")[1] for serial in range(5)] == ["serving"] * 3 + ["leaving", "ended"]
    cluster.scale("m", 1)
    assert [cluster.where(f"m#{serial}")[1] for serial in range(3)] == ["serving", "leaving", "leaving"]


def test_scaled_up_again_it_is_back_from_its_copy():
    cluster = serving((model("m", 20), 2), cpu=20).scale("m", 0).settle().scale("m", 2)
    assert [(each.replica_id, each.source) for each in cluster.commands] == [("m#1", "WARM"), ("m#2", "COLD")]
    assert cluster.settle().state.hot_replicas("m") == ("m#1", "m#2")


def test_a_replica_that_ends_is_loaded_again_at_its_place():
    cluster = serving(model("m", 40), nodes=((80, 80), (40,)))
    cluster.deploy((model("m", 40), 2)).settle()
    assert cluster.where("m#1")[2:] == ("n1", (0,))
    cluster.lose("n2").settle()
    assert cluster.where("m#2")[2:] == ("n1", (0,))
    cluster.join("n2", 40).end("m#1", "segmentation fault")
    assert cluster.where("m#1") == ENDED
    assert cluster.where("m#3") == ("COLD", "loading", "n1", (0,))


def test_a_replica_that_ends_goes_elsewhere_where_its_place_is_too_small_now():
    cluster = serving(model("m", 40), nodes=((80,),)).report("m#0", 50)
    assert cluster["m#0"].gpu_bytes == (50,)
    cluster.measure("n1", 35)
    assert cluster.where("m#1")[1] == "waiting"
    assert cluster.join("n2", 40).end("m#0").where("m#1") == ("COLD", "loading", "n2", (0,))


def test_the_next_one_goes_elsewhere_where_the_place_of_one_that_ended_is_too_small_for_it():
    cluster = serving(model("m", 40), nodes=((80,), (90,))).deploy(model("d", 35, dedicated=True)).settle()
    assert (cluster.where("m#0")[2], cluster.where("d#1")[2]) == ("n1", "n1")
    cluster.deploy(model("m", 60)).end("m#0")
    assert cluster.where("m#2") == ("COLD", "loading", "n2", (0,))


def test_a_replica_that_ends_is_loaded_as_its_newest_spec_says():
    cluster = serving(model("m", 40)).deploy(model("d", 40, dedicated=True)).settle().deploy(model("m", 50)).join("n2", 60)
    assert cluster.end("m#0").where("m#2") == ("COLD", "loading", "n2", (0,))
    cluster = serving(model("m", 40), nodes=((80, 80),)).deploy(model("m", 40, gpus=2)).end("m#0")
    assert cluster.where("m#1") == ("COLD", "loading", "n1", (0, 1))


def test_a_replica_that_ends_while_it_loads_is_a_failed_load():
    cluster = serving(model("m", 50), cpu=50).evict(model="m").settle().deploy(model("m", 50)).end("m#0", "killed")
    assert cluster.where("m#0") == ENDED
    assert cluster.why("m#0") == ["killed", "killed"]
    (load,) = cluster.commands
    assert (load.replica_id, load.source) == ("m#1", "COLD")


def test_a_replica_that_ends_while_it_leaves_has_left():
    cluster = serving(model("a", 60), cpu=60).deploy(model("m", 50)).end("a#0")
    assert cluster.where("a#0") == ENDED
    assert cluster.where("m#1")[1] == "loading"


def test_a_copy_that_is_lost_is_cold():
    cluster = serving(model("m", 50), cpu=50).evict(model="m").settle().end("m#0")
    assert cluster.where("m#0") == ENDED
    assert cluster.end("m#0").kinds() == ["late"]


def test_a_copy_that_is_lost_while_it_is_dropped_is_gone():
    cluster = serving(model("m", 50), cpu=50).evict(model="m").settle().evict(model="m", keep=Level.COLD).end("m#0")
    assert cluster.where("m#0") == ENDED


def test_a_copy_that_is_lost_while_its_place_is_reserved_is_loaded_from_disk():
    cluster = serving(model("m", 50), cpu=50).evict(model="m").settle().deploy(model("a", 60)).settle().deploy(model("m", 50))
    assert cluster.where("m#0") == ("WARM", "reserving", "n1", (0,))
    cluster.end("m#0")
    cluster.answer()
    (load,) = cluster.commands
    assert load.source == "COLD"


def test_use_of_what_does_not_serve_is_late():
    cluster = Cluster((80,)).deploy(model("m", 50)).use("m#0", 1)
    assert cluster.kinds() == ["late"]
    assert cluster.use("x#0", 1).kinds() == ["late"]


def test_a_replica_that_takes_more_grows_into_what_is_free():
    cluster = serving(model("m", 40), nodes=((80, 80),)).report("m#0", 30)
    assert cluster["m#0"].gpu_bytes == (40,)
    cluster.report("m#0", 55)
    assert cluster["m#0"].gpu_bytes == (55,)
    assert cluster.free("n1") == (25, 80)
    assert cluster.report("m#0", 20)["m#0"].used_bytes == (55,)


def test_a_replica_that_takes_more_than_there_is_leaves_and_comes_back_with_its_true_size():
    cluster = serving(model("a", 40, dedicated=True), model("m", 39), cpu=39).report("m#1", 60)
    assert cluster.where("m#1")[1] == "leaving"
    assert cluster.state.target("m") == 1
    assert cluster.settle().where("m#1") == ("WARM", "waiting", "n1", ())
    cluster.join("n2", 50).join("n3", 70).settle()
    assert cluster.where("m#1") == ("HOT", "serving", "n3", (0,))
    assert cluster["m#1"].gpu_bytes == (60,)


def test_one_that_leaves_nothing_behind_is_planned_again_as_its_model_says():
    cluster = serving(model("a", 40, dedicated=True), model("m", 39)).report("m#1", 60).settle()
    assert cluster.where("m#1") == ENDED
    assert cluster.where("m#2") == ("HOT", "serving", "n1", (0,))
    assert cluster["m#2"].gpu_bytes == (39,)


def test_what_is_reported_late_or_of_other_gpus_changes_nothing():
    cluster = serving(model("m", 40))
    assert cluster.report("m#0", 50, 50).kinds() == ["late"]
    assert cluster.report("x#0", 50).kinds() == ["late"]
    cluster.evict(model="m")
    assert cluster.report("m#0", 50).kinds() == ["late"]


def test_an_idle_replica_leaves_the_gpus_and_later_cpu_memory():
    cluster = serving(model("m", 50, idle_to_warm_s=60.0, idle_to_cold_s=100.0), cpu=50)
    assert cluster.wait(30.0).use("m#0", 1).commands == ()
    cluster.wait(100.0)
    assert cluster.where("m#0")[0] == "HOT"
    cluster.use("m#0", 0)
    assert cluster.woken_at() == [190.0]
    cluster.wait(60.0)
    assert "idle" in cluster.kinds()
    assert cluster.state.target("m") == 0
    cluster.settle()
    assert cluster.where("m#0")[0] == "WARM"
    assert cluster.wait(100.0).sent() == [("DropFromCpu", "m#0")]
    assert cluster.settle().where("m#0")[0] == "COLD"


def test_a_wake_up_that_is_asked_for_is_not_asked_for_again_until_it_came():
    cluster = serving(model("m", 50, idle_to_warm_s=60.0))
    assert cluster.wait(10.0).use("m#0", 0).woken_at() == []
    assert cluster.wait(50.0).woken_at() == [70.0]


def test_one_that_had_to_leave_is_no_longer_wanted_when_its_model_is_evicted_meanwhile():
    cluster = serving(model("a", 40, dedicated=True), model("m", 39)).report("m#1", 60).evict(model="m")
    assert cluster.state.target("m") == 0
    cluster.settle()
    assert (cluster.where("m#1"), cluster.where("m#2")) == (ENDED, ENDED)


def test_the_wanted_one_that_lost_its_claim_waits_with_its_reason():
    """The victim's bytes turn out not to be there: the newcomer has no place after all."""
    cluster = serving(model("a", 60)).deploy(model("m", 70))
    cluster.measure("n1", 60)
    cluster.settle()
    assert cluster.where("m#1")[1] == "waiting"
    assert cluster.free("n1") == (60,)


def test_wanted_again_while_it_leaves_it_comes_back_from_its_copy():
    cluster = serving(model("m", 50), cpu=50).evict(model="m").wait(1.0).deploy(model("m", 50))
    assert cluster.where("m#1")[1] == "reserving"
    cluster.wait(1.0).answer()
    assert cluster.sent() == [("LoadToGpu", "m#0")]
    assert cluster.commands[-1].source == "WARM"
    assert cluster.where("m#1") == ENDED
    cluster.settle()
    assert cluster.state.hot_replicas("m") == ("m#0",)
    assert cluster.state.nodes["n1"].cpu_free_bytes == 50


def test_a_displaced_one_waits_for_room_instead_of_one_that_has_no_copy_and_keeps_its_turn():
    m = model("m", 50, min_hot_s=60.0)
    cluster = serving(m, cpu=50).deploy(model("x", 60, dedicated=True)).wait(1.0).deploy(m)
    cluster.wait(1.0).deploy(model("y", 50)).settle()
    assert cluster.where("m#0") == ("WARM", "waiting", "n1", ())
    assert cluster["m#0"].because == "1 x 50 bytes: 50 bytes too little is free, 0 bytes there may be displaced"
    assert cluster["m#0"].since < cluster["y#3"].since
    assert cluster.state.target("m") == 1
    assert cluster.evict(model="x").settle().state.hot_replicas("m") == ("m#0",)


def test_a_displaced_one_that_waits_instead_of_a_larger_one_goes_where_it_fits():
    """m#0 was measured to take 50, and has lost its copy; m#2 takes 30, for which n2 has room."""
    cluster = Cluster((70,), cpu=30).deploy(model("m", 30)).settle().report("m#0", 50).evict(model="m").settle()
    cluster.deploy(model("d", 30, dedicated=True)).settle().deploy((model("m", 30), 2)).settle().end("m#0")
    assert cluster.where("m#0") == ("COLD", "waiting", None, ())
    cluster.join("n2", 35).deploy(model("b", 38)).settle()
    assert cluster.where("b#3")[:3] == ("HOT", "serving", "n1")
    assert cluster.where("m#2") == ("HOT", "serving", "n2", (0,))
    assert cluster.where("m#0") == ENDED


def test_one_that_waits_with_a_copy_of_its_own_is_not_replaced_by_another_one():
    cluster = serving((model("m", 40), 2), cpu=100).evict(replica_id="m#1").settle()
    cluster.deploy(model("x", 40, dedicated=True)).settle().scale("m", 2)
    assert cluster.where("m#1") == ("WARM", "waiting", "n1", ())
    cluster.evict(replica_id="m#0").answer()
    assert cluster.where("m#0") == ("WARM", "resting", "n1", ())
    assert cluster.settle().state.hot_replicas("m") == ("m#1",)


def test_what_it_was_measured_to_take_is_forgotten_when_its_model_is_another_size():
    cluster = serving(model("m", 20), nodes=((30,),), cpu=20).report("m#0", 500).settle()
    assert cluster.where("m#0") == ("WARM", "waiting", "n1", ())
    cluster.deploy(model("m", 20, min_hot_s=1.0))
    assert (cluster.where("m#0")[1], cluster["m#0"].size_bytes) == ("waiting", 500)
    assert cluster.deploy(model("m", 10)).settle().where("m#0") == ("HOT", "serving", "n1", (0,))
    assert cluster.free("n1") == (20,)


def test_one_whose_process_ended_goes_back_to_its_place_though_another_fits_better():
    cluster = Cluster((80,)).deploy(model("m", 30)).settle()
    cluster.join("n2", 30).end("m#0").settle()
    assert cluster.where("m#1") == ("HOT", "serving", "n1", (0,))


def test_a_plan_does_not_count_on_a_copy_that_is_being_dropped():
    cluster = Cluster((80,), cpu=50).deploy(model("m", 30)).settle().evict(model="m").settle().evict(model="m", keep=Level.COLD)
    assert cluster["m#0"].phase is Phase.DROPPING
    event = DeployRequested(wanted=(Wanted(spec=model("m", 30)),), at=cluster.now)
    (placed,) = plan_residency(cluster.state, event).placed
    assert (placed.replica_id, placed.node_id, placed.source) == ("m#0", "n1", Level.COLD)
    cluster.feed(event)
    cluster.answer()
    assert [command.source for command in cluster.commands] == [Level.COLD]


def test_what_is_asked_for_again_while_it_leaves_is_loaded_from_disk_where_there_is_room_at_once():
    cluster = Cluster((80,), (80,), cpu=60).deploy(model("m", 60)).settle().evict(model="m")
    cluster.scale("m", 1).settle()
    assert cluster.where("m#0") == ("WARM", "resting", "n1", ())
    assert cluster.where("m#1") == ("HOT", "serving", "n2", (0,))


def test_a_load_from_disk_that_is_broken_off_has_no_copy_to_keep():
    (unload,) = Cluster((80,), cpu=100).deploy(model("m", 30)).evict(model="m").commands
    assert unload.keep_copy is False


def test_a_load_from_memory_that_is_broken_off_keeps_its_copy():
    cluster = serving(model("m", 30), cpu=100).evict(model="m").settle().deploy(model("m", 30)).evict(model="m")
    (unload,) = cluster.commands
    assert unload.keep_copy is True
    assert cluster.settle().where("m#0") == ("WARM", "resting", "n1", ())


def adopted(gpus, gpu_bytes, *, size, node):
    found = FoundReplica(replica_id="m#1.0", spec=model("m", size), phase=Phase.SERVING, gpus=gpus, gpu_bytes=gpu_bytes)
    joined = NodeJoined(node_id="n1", gpu_bytes=node, cpu_bytes=100, at=0.0)
    return residency_step(open_residency(), NodeAdopted(joined=joined, found=(found,), at=0.0)).state


def test_what_is_found_to_take_more_than_its_model_says_comes_back_with_its_true_size():
    state = adopted((0,), (50,), size=40, node=(50,))
    state = residency_step(state, EvictRequested(replica_id="m#1.0", at=1.0)).state
    state = residency_step(state, OffloadFinished(replica_id="m#1.0", move=state.replicas["m#1.0"].move, at=1.0)).state
    state = residency_step(state, MemoryMeasured(node_id="n1", gpu_bytes=(45,), at=1.0)).state
    state = residency_step(state, DeployRequested(wanted=(Wanted(spec=model("m", 40)),), at=2.0)).state
    assert state.replicas["m#1.0"].phase is Phase.WAITING, "it takes 50, and no GPU has so much"


def test_what_is_found_in_parts_that_were_rounded_up_takes_what_its_model_says():
    assert adopted((0, 1), (21, 21), size=41, node=(30, 30)).replicas["m#1.0"].size_bytes == 0


def test_what_is_found_loading_has_a_turn_once_it_is_hot():
    found = FoundReplica(replica_id="m#1.0", spec=model("m", 40), phase=Phase.LOADING, gpus=(0,), gpu_bytes=(40,), move=7)
    joined = NodeJoined(node_id="n1", gpu_bytes=(50,), at=0.0)
    state = open_residency(ResidencyPolicy(disk_bytes_per_s=2, turn_factor=6.0))
    state = residency_step(state, NodeAdopted(joined=joined, found=(found,), at=0.0)).state
    state = residency_step(state, LoadFinished(replica_id="m#1.0", move=7, at=15.0)).state
    assert state.replicas["m#1.0"].turn_s == 6.0 * 15.0, "no longer than it was seen to load"
