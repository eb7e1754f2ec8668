"""The life of a replica: loads that fail, moves that end late, twice or not at all, use, idleness, losses (T2, T8, T10)."""

import pytest

from rankcore.events import ClockAdvanced
from rankcore.residency import Level, Phase, Wanted, plan_residency, residency_step
from rankcore.residency.commands import DropFromCpu, WakeAt
from rankcore.residency.events import DeployRequested, LoadFailed, LoadFinished, OffloadFailed, OffloadFinished, ReplicaLost
from tests.residents import Cluster, model


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


def test_who_is_wanted_and_whether_others_serve_is_seen_at_once():
    cluster = serving((model("m", 30), 2)).scale("m", 3)
    before = cluster.state
    assert before.wanted_replicas("m") == ("m#0", "m#1", "m#2")
    cluster.use("m#0", 1)
    assert cluster.state.serves_as(before, "m")
    assert not cluster.scale("m", 1).state.serves_as(before, "m")


def test_of_those_that_wait_the_newest_go_first_when_fewer_are_wanted():
    cluster = serving((model("m", 30), 4)).scale("m", 3)
    assert [cluster.where(f"m#{serial}")[1] for serial in range(4)] == ["serving", "serving", "waiting", "resting"]


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


def test_a_failed_load_is_tried_again_after_a_while_that_doubles():
    cluster = Cluster((80,), retry_s=5.0, max_load_failures=4).deploy(model("m", 50))
    cluster.answer(fails="out of memory")
    assert cluster.where("m#0") == ("COLD", "waiting", None, ())
    assert cluster["m#0"].because == "load 1 failed: out of memory"
    assert cluster.woken_at() == [5.0]
    assert cluster.free("n1") == (80,)
    assert cluster.wait(4.0).commands == ()
    assert cluster.wait(1.0).sent() == [("LoadToGpu", "m#0")]
    cluster.answer(fails="")
    assert cluster["m#0"].because == "load 2 failed"
    assert cluster.woken_at() == [15.0]
    cluster.wait(10.0).settle()
    assert cluster["m#0"].failures == 0


def test_after_too_many_failures_it_is_left_alone_until_it_is_asked_for_again():
    cluster = Cluster((80,), max_load_failures=2).deploy(model("m", 50))
    cluster.answer(fails="x")
    cluster.wait(5.0).answer(fails="x")
    assert "gave up" in cluster.kinds()
    cluster.wait(1000.0).join("n2", 80)
    assert cluster.where("m#0")[1] == "waiting"
    cluster.deploy(model("m", 50))
    assert cluster.where("m#0")[1] == "loading"


def test_one_that_was_given_up_is_the_first_to_go_when_fewer_are_wanted():
    cluster = Cluster((80,), max_load_failures=1).deploy((model("m", 20), 2))
    cluster.answer(fails="x")
    cluster.answer()
    cluster.scale("m", 1)
    assert cluster.where("m#0")[1] == "resting"
    assert cluster.state.hot_replicas("m") == ("m#1",)


def test_a_failed_load_from_cpu_memory_leaves_the_copy():
    cluster = serving(model("m", 50), cpu=50).evict(model="m").settle().deploy(model("m", 50))
    cluster.answer(fails="x")
    assert cluster.where("m#0") == ("WARM", "waiting", "n1", ())
    cluster.wait(5.0)
    assert cluster.commands[0].source == "WARM"


def test_while_it_backs_off_room_does_not_tempt_it():
    cluster = Cluster((80,)).deploy(model("m", 50))
    cluster.answer(fails="x")
    assert cluster.join("n2", 80).commands == ()


def test_an_offload_that_fails_leaves_it_cold():
    cluster = serving(model("m", 50), cpu=50).evict(model="m")
    cluster.answer(fails="copy failed")
    assert cluster.where("m#0") == ("COLD", "resting", None, ())
    assert cluster["m#0"].because == "copy failed"
    assert cluster.state.nodes["n1"].cpu_free_bytes == 50
    cluster = serving(model("m", 50), cpu=50).evict(model="m")
    cluster.answer(fails="")
    assert cluster["m#0"].because == "its offload failed"


@pytest.mark.parametrize(("keep", "level", "free"), [(Level.WARM, "WARM", 0), (Level.COLD, "COLD", 50)])
def test_evicted_it_is_warm_or_cold_as_asked(keep, level, free):
    cluster = serving(model("m", 50), cpu=50).evict(replica_id="m#0", keep=keep)
    assert cluster.state.target("m") == 0
    assert cluster.settle().where("m#0")[:2] == (level, "resting")
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
    assert cluster.where("m#0") == ("COLD", "resting", None, ())


def test_evicted_again_to_be_cold_while_it_leaves_no_copy_stays():
    cluster = serving(model("m", 50), cpu=50).evict(model="m").evict(model="m", keep=Level.COLD)
    assert cluster.kinds() == ["evicted"]
    assert cluster.settle().where("m#0") == ("COLD", "resting", None, ())


def test_a_warm_replica_is_evicted_from_cpu_memory_too():
    cluster = serving((model("m", 30), 2), cpu=30).evict(model="m").settle()
    cluster.evict(model="m", keep=Level.COLD)
    assert cluster.kinds() == ["evicted"]
    assert [name for name, _ in cluster.sent()] == ["DropFromCpu"]
    cluster.settle()
    assert {record.level for record in cluster.state.replicas.values()} == {"COLD"}


def test_what_is_off_the_gpus_already_cannot_be_evicted():
    cluster = serving(model("m", 50), cpu=50).evict(model="m").settle().evict(replica_id="m#0")
    assert cluster.kinds() == ["late"]
    cluster.evict(replica_id="m#0", keep=Level.COLD).evict(replica_id="m#0", keep=Level.COLD)
    assert cluster.kinds() == ["late"]


def test_evicted_while_it_waits_or_reserves_it_gives_up_its_place():
    cluster = serving(model("a", 60)).deploy(model("m", 50)).evict(model="m")
    assert cluster.where("m#1") == ("COLD", "resting", None, ())
    assert cluster.free("n1") == (20,)
    assert cluster.settle().where("a#0")[0] == "COLD"
    assert cluster.free("n1") == (80,)
    cluster = Cluster((80,)).deploy(model("m", 81, gpus=1)).evict(model="m", keep=Level.COLD)
    assert cluster.where("m#0") == ("COLD", "resting", None, ())


def test_evicted_on_its_way_elsewhere_its_copy_still_goes():
    cluster = serving(model("m", 50), cpu=50).evict(model="m").settle()
    cluster.deploy(model("d", 40, dedicated=True)).settle().join("n2", 80).deploy(model("m", 50)).evict(model="m")
    assert cluster.where("m#0") == ("WARM", "dropping", "n1", ())
    cluster.deploy(model("m", 50))
    assert cluster.where("m#0") == ("WARM", "reserving", "n2", (0,))
    assert cluster.settle().where("m#0")[0] == "HOT"


def test_scaled_down_those_go_first_that_do_not_serve_yet_then_the_cheapest():
    cluster = serving((model("m", 20), 3), nodes=((60,), (20,))).use("m#0", 1).use("m#1", 3)
    cluster.scale("m", 5)
    assert [cluster.where(f"m#{serial}")[1] for serial in range(5)] == ["serving"] * 3 + ["loading", "waiting"]
    cluster.scale("m", 3)
    assert [cluster.where(f"m#{serial}")[1] for serial in range(5)] == ["serving"] * 3 + ["leaving", "resting"]
    cluster.scale("m", 1)
    assert [cluster.where(f"m#{serial}")[1] for serial in range(3)] == ["leaving", "serving", "leaving"]


def test_scaled_up_again_it_is_back():
    cluster = serving((model("m", 20), 2)).scale("m", 0).settle().scale("m", 2).settle()
    assert cluster.state.hot_replicas("m") == ("m#0", "m#1")


def test_a_replica_that_ends_is_loaded_again_at_its_place():
    cluster = serving(model("m", 40), nodes=((80, 80), (40,)))
    cluster.deploy((model("m", 40), 2)).settle()
    assert cluster.where("m#1")[2:] == ("n1", (0,))
    cluster.lose("n2").settle()
    cluster.join("n2", 40).end("m#1", "segmentation fault")
    assert cluster.where("m#1") == ("COLD", "loading", "n1", (0,))


def test_a_replica_that_ends_goes_elsewhere_where_its_place_is_too_small_now():
    cluster = serving(model("m", 40), nodes=((80,),)).report("m#0", 50)
    assert cluster["m#0"].gpu_bytes == (50,)
    cluster.measure("n1", 45)
    cluster.end("m#0")
    assert cluster.where("m#0")[1] == "waiting"
    assert cluster.join("n2", 50).where("m#0") == ("COLD", "loading", "n2", (0,))


def test_a_replica_that_ends_is_loaded_as_its_newest_spec_says():
    cluster = serving(model("m", 40)).deploy(model("d", 40, dedicated=True)).settle().deploy(model("m", 50)).join("n2", 60)
    assert cluster.end("m#0").where("m#0") == ("COLD", "loading", "n2", (0,))
    cluster = serving(model("m", 40), nodes=((80, 80),)).deploy(model("m", 40, gpus=2)).end("m#0")
    assert cluster.where("m#0") == ("COLD", "loading", "n1", (0, 1))


def test_a_replica_that_ends_while_it_loads_is_a_failed_load():
    cluster = serving(model("m", 50), cpu=50).evict(model="m").settle().deploy(model("m", 50)).end("m#0", "killed")
    assert cluster.where("m#0") == ("COLD", "waiting", None, ())
    assert cluster["m#0"].failures == 1


def test_a_replica_that_ends_while_it_leaves_has_left():
    cluster = serving(model("a", 60), cpu=60).deploy(model("m", 50)).end("a#0")
    assert cluster.where("a#0") == ("COLD", "resting", None, ())
    assert cluster.where("m#1")[1] == "loading"


def test_a_copy_that_is_lost_is_cold():
    cluster = serving(model("m", 50), cpu=50).evict(model="m").settle().end("m#0")
    assert cluster.where("m#0") == ("COLD", "resting", None, ())
    assert cluster.end("m#0").kinds() == ["late"]


def test_a_copy_that_is_lost_while_it_is_dropped_is_gone():
    cluster = serving(model("m", 50), cpu=50).evict(model="m").settle().evict(model="m", keep=Level.COLD).end("m#0")
    assert cluster.where("m#0") == ("COLD", "resting", None, ())


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
    cluster = serving(model("a", 40), model("m", 39)).join("n2", 50).join("n3", 70).report("m#1", 60)
    assert cluster.where("m#1")[1] == "leaving"
    assert cluster.state.target("m") == 1
    cluster.settle()
    assert cluster.where("m#1") == ("HOT", "serving", "n3", (0,))
    assert cluster["m#1"].gpu_bytes == (60,)


def test_what_is_reported_late_or_of_other_gpus_changes_nothing():
    cluster = serving(model("m", 40))
    assert cluster.report("m#0", 50, 50).kinds() == ["late"]
    assert cluster.report("x#0", 50).kinds() == ["late"]
    cluster.evict(model="m")
    assert cluster.report("m#0", 50).kinds() == ["late"]


def test_an_idle_replica_leaves_the_gpus_and_later_cpu_memory():
    cluster = serving(model("m", 50), cpu=50, idle_to_warm_s=60.0, idle_to_cold_s=100.0)
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
    cluster = serving(model("m", 50), idle_to_warm_s=60.0)
    assert cluster.wait(10.0).use("m#0", 0).woken_at() == []
    assert cluster.wait(50.0).woken_at() == [70.0]


def test_a_replica_that_returns_is_no_longer_wanted_when_it_is_evicted_on_its_way():
    cluster = serving(model("a", 40), model("m", 39)).report("m#1", 60).evict(model="m")
    assert cluster.state.target("m") == 0
    assert cluster.settle().where("m#1") == ("COLD", "resting", None, ())


def test_the_wanted_one_that_lost_its_claim_waits_with_its_reason():
    """The victim's bytes turn out not to be there: the newcomer has no place after all."""
    cluster = serving(model("a", 60)).deploy(model("m", 70))
    cluster.measure("n1", 60)
    cluster.settle()
    assert cluster.where("m#1")[1] == "waiting"
    assert cluster.free("n1") == (60,)


def test_wanted_again_while_it_leaves_it_comes_back_from_its_copy():
    cluster = serving(model("m", 50), cpu=50).evict(model="m").wait(1.0).deploy(model("m", 50))
    assert cluster.where("m#1")[1] == "waiting"
    cluster.wait(1.0).answer()
    assert cluster.sent() == [("LoadToGpu", "m#0")]
    assert cluster.commands[-1].source == "WARM"
    assert cluster.where("m#1") == ("COLD", "resting", None, ())
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
    """m#0 was measured to take 50; m#2 takes 30, for which n2 has room."""
    cluster = (
        Cluster((70,), cpu=30).deploy(model("m", 30)).settle().report("m#0", 50).evict(model="m", keep=Level.COLD).settle()
    )
    cluster.deploy(model("d", 30, dedicated=True)).settle().deploy((model("m", 30), 2)).settle()
    assert cluster.where("m#0") == ("COLD", "waiting", None, ())
    cluster.join("n2", 35).deploy(model("b", 38)).settle()
    assert cluster.where("b#3")[:3] == ("HOT", "serving", "n1")
    assert cluster.where("m#2") == ("HOT", "serving", "n2", (0,))
    assert cluster.where("m#0") == ("COLD", "resting", None, ())


def test_one_whose_load_has_failed_goes_on_backing_off_though_another_one_has_a_copy():
    cluster = Cluster((80,), cpu=100).deploy((model("m", 40), 2))
    cluster.answer()
    cluster.answer(fails="x")
    cluster.evict(replica_id="m#0").answer()
    assert cluster.where("m#0") == ("WARM", "resting", "n1", ())
    assert cluster["m#1"].because == "load 1 failed: x"


def test_one_that_waits_with_a_copy_of_its_own_is_not_replaced_by_another_one():
    cluster = serving((model("m", 40), 2), cpu=100).evict(replica_id="m#1").settle()
    cluster.deploy(model("x", 40, dedicated=True)).settle().scale("m", 2)
    assert cluster.where("m#1") == ("WARM", "waiting", "n1", ())
    cluster.evict(replica_id="m#0").answer()
    assert cluster.where("m#0") == ("WARM", "resting", "n1", ())
    assert cluster.settle().state.hot_replicas("m") == ("m#1",)


def test_what_it_was_measured_to_take_is_forgotten_when_its_model_is_another_size():
    cluster = serving(model("m", 20)).report("m#0", 500).settle()
    assert cluster.where("m#0")[1] == "waiting"
    cluster.deploy(model("m", 20, min_hot_s=1.0))
    assert (cluster.where("m#0")[1], cluster["m#0"].size_bytes) == ("waiting", 500)
    assert cluster.deploy(model("m", 10)).settle().where("m#0") == ("HOT", "serving", "n1", (0,))
    assert cluster.free("n1") == (70,)


def test_one_whose_process_ended_goes_back_to_its_place_though_another_fits_better():
    cluster = Cluster((80,)).deploy(model("m", 30)).settle()
    cluster.join("n2", 30).end("m#0").settle()
    assert cluster.where("m#0") == ("HOT", "serving", "n1", (0,))


def test_the_wait_after_failed_loads_has_a_maximum():
    cluster = Cluster((80,), max_load_failures=10**6, retry_s=5.0, retry_max_s=12.0).deploy(model("m", 30))
    for wait_s in (5.0, 10.0, 12.0, 12.0):
        cluster.answer(fails="no such file")
        assert cluster["m#0"].retry_at == cluster.now + wait_s
        cluster.wait(wait_s)
    for _ in range(1100):
        cluster.state = residency_step(cluster.state, LoadFailed(**answer_to(cluster), at=cluster.now)).state
        cluster.now += 12.0
        cluster.state, commands, _ = residency_step(cluster.state, ClockAdvanced(at=cluster.now))
        cluster.pending = [each for each in commands if not isinstance(each, WakeAt)]
    assert cluster["m#0"].failures == 1104


def answer_to(cluster):
    (command,) = cluster.pending
    return {"replica_id": command.replica_id, "move": command.move}


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
