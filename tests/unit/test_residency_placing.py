"""Where a replica becomes HOT (T3), and what is said when it fits nowhere (T7)."""

import pytest

from rankcore.errors import InvalidEventError
from rankcore.residency import Phase, residency_step
from rankcore.residency.ever import why_never
from rankcore.residency.reasons import in_words
from tests.residents import Cluster, model


def placed(cluster, replica_id):
    record = cluster[replica_id]
    return record.node_id, record.gpus, record.gpu_bytes


def test_it_goes_where_it_leaves_the_least_free():
    cluster = Cluster((80,), (50, 30), (48,)).deploy(model("m", 40))
    assert placed(cluster, "m#0") == ("n3", (0,), (40,))


def test_several_gpus_are_taken_where_they_leave_the_least_together():
    cluster = Cluster((80, 41, 80), (50, 45), (44, 43, 90)).deploy(model("m", 80, gpus=2))
    assert placed(cluster, "m#0") == ("n3", (0, 1), (40, 40))


def test_of_equal_places_the_first_node_and_its_first_gpu_are_taken():
    cluster = Cluster((80, 80), (80, 80)).deploy((model("m", 60), 4)).settle()
    assert [placed(cluster, f"m#{serial}")[:2] for serial in range(4)] == [
        ("n1", (0,)), ("n1", (1,)), ("n2", (0,)), ("n2", (1,)),
    ]  # fmt: skip


def test_a_gpu_is_shared_to_the_last_byte():
    cluster = Cluster((80,)).deploy(model("a", 30), model("b", 30), model("c", 20)).settle()
    assert cluster.free("n1") == (0,)


def test_working_memory_is_needed_on_gpus_and_not_in_cpu_memory():
    cluster = Cluster((80,), cpu=50).deploy(model("m", 50, working_bytes=30)).settle()
    assert cluster.free("n1") == (0,)
    cluster.evict(model="m").settle()
    assert cluster.where("m#0") == ("WARM", "resting", "n1", ())
    assert cluster.state.nodes["n1"].cpu_free_bytes == 0


def test_the_parts_on_several_gpus_are_rounded_up():
    cluster = Cluster((80, 80, 80)).deploy(model("m", 100, gpus=3))
    assert placed(cluster, "m#0") == ("n1", (0, 1, 2), (34, 34, 34))


def test_without_a_number_it_takes_the_fewest_gpus_of_each_node():
    cluster = Cluster((40, 40, 40, 40), (60, 60)).deploy(model("m", 120)).settle()
    assert placed(cluster, "m#0") == ("n2", (0, 1), (60, 60))
    cluster.deploy((model("m", 120), 2))
    assert placed(cluster, "m#1") == ("n1", (0, 1, 2), (40, 40, 40))


def test_it_is_not_spread_over_more_gpus_than_it_takes():
    """80 would do for it alone; two GPUs with 40 free each are no place for it."""
    cluster = Cluster((80, 80)).deploy(model("d", 40, dedicated=True), model("e", 41, dedicated=True)).settle()
    cluster.deploy(model("m", 78))
    assert cluster.where("m#2")[1] == "waiting"


def test_uneven_parts_are_on_the_fewest_gpus_whose_fullest_part_fits():
    """Equal parts of 141 would do on two GPUs of 71, where the fullest takes 80."""
    parts = ((1, 141), (2, 80), (4, 44))
    cluster = Cluster((71, 71), (79,) * 5, (80, 80)).deploy((model("m", 141, shard_bytes=parts), 2)).settle()
    assert placed(cluster, "m#0") == ("n3", (0, 1), (80, 80))
    assert placed(cluster, "m#1") == ("n2", (0, 1, 2, 3), (44, 44, 44, 44))
    cluster.deploy((model("m", 141, shard_bytes=parts), 3)).settle()
    assert cluster.where("m#2")[1] == "waiting"
    assert "4 x 44 bytes: " in next(each.because for each in cluster.notes[-1].cant.reasons if each.node_id == "n2")


def test_a_number_of_gpus_that_is_not_listed_is_not_used():
    cluster = Cluster((60, 60, 60), (200, 200)).deploy((model("m", 100, shard_bytes=((2, 70),)), 2)).settle()
    assert placed(cluster, "m#0") == ("n2", (0, 1), (70, 70))
    assert placed(cluster, "m#1") == ("n2", (0, 1), (70, 70))
    why = why_never(cluster.state, model("k", 700, shard_bytes=((3, 240),)), 700, ())
    assert "n2: 700 bytes (or 240 bytes on each of 3 GPUs) do not fit: it has 2 GPUs of at most 200 bytes" in why


def test_uneven_parts_that_turn_out_larger_need_as_much_more_where_they_go_next():
    cluster = Cluster((100, 100), cpu=120).deploy(model("m", 120, shard_bytes=((2, 70),))).settle()
    cluster.report("m#0", 90, 60)
    cluster.evict(model="m").settle()
    cluster.deploy(model("m", 120, shard_bytes=((2, 70),))).settle()
    assert placed(cluster, "m#0") == ("n1", (0, 1), (90, 90))


def test_whoever_has_another_number_of_gpus_to_choose_from_is_tried_again():
    cluster = Cluster((60, 60, 60)).deploy(model("m", 100, shard_bytes=((2, 70),)))
    assert cluster.where("m#0")[1] == "waiting"
    cluster.deploy(model("m", 100, shard_bytes=((2, 70), (3, 60)))).settle()
    assert placed(cluster, "m#0") == ("n1", (0, 1, 2), (60, 60, 60))


def test_who_waits_with_uneven_parts_is_tried_where_the_fullest_fits_and_nowhere_else():
    """Of 100 the fullest of two takes 70, and of three 60: no two GPUs of 50 do for it, nor one of 100."""
    cluster = Cluster((80, 80), (100,), (65, 50, 50)).deploy(model("m", 100, shard_bytes=((3, 60), (4, 30))))
    assert cluster.where("m#0")[1] == "waiting", "no node has three of 60"
    cluster.deploy(model("a", 110, gpus=2, dedicated=True), model("b", 66, gpus=1, dedicated=True)).settle()
    cluster.deploy(model("k", 100, shard_bytes=((2, 70), (3, 60))))
    assert cluster.where("k#3")[1] == "waiting", "55 are held of each 80"
    cluster.evict(model="b").settle()
    assert cluster.where("k#3")[1] == "waiting", "one of 100 is free, and one is no number of GPUs for it"
    cluster.evict(model="a").settle()
    assert placed(cluster, "k#3") == ("n1", (0, 1), (70, 70))
    cluster.join("n4", 60, 60, 60)
    assert placed(cluster, "m#0") == ("n4", (0, 1, 2), (60, 60, 60))


def test_a_number_of_gpus_whose_fullest_part_never_fits_stands_in_the_way_of_no_other():
    """Of 100 no two of 65 hold the fullest part of 70, and three hold that of 60: once they are free."""
    cluster = Cluster((65, 65, 65), (300,)).deploy(model("a", 90, gpus=3, dedicated=True)).settle()
    cluster.deploy(model("b", 300, min_hot_s=100.0)).settle()
    cluster.deploy(model("first", 300))  # in line: whoever waits behind it is tried only where it may fit
    cluster.deploy(model("m", 100, shard_bytes=((2, 70), (3, 60))))
    assert cluster.where("m#3")[1] == "waiting"
    cluster.evict(model="a").settle()
    assert placed(cluster, "m#3") == ("n1", (0, 1, 2), (60, 60, 60))


def test_gpus_that_differ_by_a_little_are_looked_through_together_and_told_apart():
    cluster = Cluster((80, 80), (79, 79), (78, 78)).deploy(model("m", 80)).settle()
    assert placed(cluster, "m#0") == ("n1", (0,), (80,))
    cluster.deploy((model("m", 80), 2))
    assert placed(cluster, "m#1")[:2] == ("n1", (1,))
    cluster.deploy((model("m", 80), 3))
    assert placed(cluster, "m#2") == ("n3", (0, 1), (40, 40))


def test_only_nodes_with_the_labels_are_considered():
    cluster = Cluster((80,)).join("a1", 80, zone="a", disk="ssd").join("b1", 80, zone="b")
    cluster.deploy((model("m", 50, node_labels={"zone": "a"}), 2)).settle()
    assert placed(cluster, "m#0")[0] == "a1"
    assert cluster.where("m#1")[1] == "waiting"
    reasons = {reason.node_id: reason.because for reason in cluster.notes[-1].cant.reasons} if cluster.notes[-1].cant else {}
    cluster.join("a2", 80, zone="a")
    assert placed(cluster, "m#1")[0] == "a2"
    assert reasons == {} or reasons["n1"] == "it is not labelled zone=a"


def test_replicas_that_are_spread_never_share_a_node():
    cluster = Cluster((80, 80), (80,)).deploy((model("m", 10, spread=True), 3)).settle()
    assert {placed(cluster, f"m#{serial}")[0] for serial in range(2)} == {"n1", "n2"}
    assert cluster.where("m#2")[1] == "waiting"
    reasons = {
        reason.node_id: reason.because for reason in cluster.deploy((model("m", 10, spread=True), 4)).notes[-1].cant.reasons
    }
    assert reasons == dict.fromkeys(("n1", "n2"), "a replica of this model is there")


def test_a_warm_replica_is_promoted_on_its_node_though_another_fits_better():
    cluster = Cluster((80,), cpu=50).deploy(model("m", 50)).settle().evict(model="m").settle()
    cluster.join("n2", 50).deploy(model("m", 50))
    (load,) = cluster.commands
    assert (load.node_id, load.source) == ("n1", "WARM")
    assert "promoted" in cluster.kinds()
    cluster.settle()
    assert cluster.state.nodes["n1"].cpu_free_bytes == 50


def test_a_warm_replica_goes_elsewhere_once_its_copy_is_gone():
    cluster = Cluster((80,), cpu=50).deploy(model("m", 50)).settle().evict(model="m").settle()
    cluster.deploy(model("d", 40, dedicated=True)).settle().join("n2", 80).deploy(model("m", 50))
    assert cluster.sent() == [("DropFromCpu", "m#0")]
    assert cluster.where("m#0") == ("WARM", "reserving", "n2", (0,))
    assert cluster.free("n2") == (30,)
    cluster.answer()
    (load,) = cluster.commands
    assert (load.node_id, load.source) == ("n2", "COLD")


def test_of_several_warm_replicas_those_go_first_that_fit_beside_their_copy():
    cluster = Cluster((80,), (80,), cpu=50).deploy((model("m", 50), 2)).settle().evict(model="m").settle()
    cluster.deploy((model("d", 70, dedicated=True), 1)).settle()
    assert cluster["d#2"].node_id == "n1"
    cluster.deploy(model("m", 50)).settle()
    assert cluster.where("m#0") == ("WARM", "resting", "n1", ())
    assert cluster.where("m#1") == ("HOT", "serving", "n2", (0,))


def test_a_warm_replica_that_was_measured_to_take_more_does_not_come_before_one_that_fits():
    """M#0 takes 70, and beside its copy 60 are free, so it would displace d; m#1 fits."""
    cluster = Cluster((80,), (80,), cpu=50).deploy((model("m", 50, spread=True), 2)).settle().report("m#0", 70)
    cluster.evict(model="m").settle().deploy(model("d", 20)).settle()
    assert (cluster["d#2"].node_id, cluster["m#0"].copy_node_id) == ("n1", "n1")
    cluster.deploy(model("m", 50, spread=True))
    assert cluster.sent() == [("LoadToGpu", "m#1")]
    assert cluster.settle().where("m#0")[0] == "WARM"


def test_where_no_warm_replica_fits_beside_its_copy_the_oldest_waits():
    cluster = Cluster((80,), cpu=80).deploy((model("m", 40), 2)).settle().evict(model="m").settle()
    cluster.deploy(model("d", 70, dedicated=True)).settle().deploy(model("m", 40))
    assert [cluster.where(each)[:2] for each in ("m#0", "m#1")] == [("WARM", "waiting"), ("WARM", "resting")]


def test_warm_replicas_and_those_whose_copy_is_being_dropped_come_back_before_new_ones_are_made():
    cluster = Cluster((80, 80), cpu=40).deploy((model("m", 20), 2)).settle().evict(model="m").settle()
    cluster.evict(replica_id="m#0", keep="COLD")
    assert [cluster.where(each)[1] for each in ("m#0", "m#1")] == ["dropping", "resting"]
    cluster.deploy((model("m", 20), 3)).settle()
    assert sorted(cluster.state.replicas) == ["m#0", "m#1", "m#2"]
    assert cluster.state.hot_replicas("m") == ("m#0", "m#1", "m#2")


def test_no_more_of_them_come_back_than_are_wanted():
    cluster = Cluster((80,), cpu=40).deploy((model("m", 20), 2)).settle().evict(model="m").settle().deploy(model("m", 20))
    assert cluster.sent() == [("LoadToGpu", "m#0")]


def test_a_copy_that_is_dropped_for_another_model_of_the_request_is_loaded_from_disk():
    """The displaced v takes the CPU memory of m, and m is wanted in the same request, later in its order."""
    cluster = Cluster((80, 20), cpu=50).deploy(model("m", 40, gpus=1)).settle().evict(model="m").settle()
    cluster.deploy(model("v", 45)).settle().deploy(model("x", 79, gpus=1), model("m", 19)).settle()
    assert cluster.where("v#1")[0] == "WARM"
    assert cluster.where("m#0") == ("HOT", "serving", "n1", (1,))


def test_what_it_has_already_is_not_done_again():
    cluster = Cluster((80,)).deploy((model("m", 20), 2)).settle()
    before = cluster.state
    assert cluster.deploy((model("m", 20), 2)).commands == ()
    assert cluster.state == before


def test_where_fewer_are_called_for_some_are_let_go():
    cluster = Cluster((80,)).deploy((model("m", 20), 3)).settle().deploy((model("m", 20), 1)).settle()
    assert cluster.state.target("m") == 1
    assert cluster.state.hot_replicas("m") == ("m#0",)


def test_a_new_spec_holds_for_new_places_and_for_who_may_be_displaced():
    cluster = Cluster((80,)).deploy(model("m", 50, dedicated=True)).settle().deploy(model("x", 60))
    assert cluster.where("x#1")[1] == "waiting"
    cluster.deploy(model("m", 50))
    assert cluster.sent() == [("UnloadFromGpu", "m#0")]
    assert cluster.where("x#1")[1] == "reserving"


def test_what_fits_nowhere_says_why_and_disturbs_nobody():
    cluster = Cluster((80, 80), (40,)).join("a1", 80, zone="a").deploy(model("d", 70, dedicated=True)).settle()
    before = cluster.state.nodes
    cluster.deploy(model("m", 200, gpus=2), model("l", 81, gpus=1), model("s", 30, node_labels={"zone": "b"}), model("ok", 5))
    cants = {note.model: note.cant for note in cluster.notes if note.cant is not None}
    assert sorted(cants) == ["l", "m", "s"]
    assert {reason.node_id for reason in cants["l"].reasons} == {"n1", "n2", "a1"}
    assert {reason.because for reason in cants["l"].reasons} >= {
        "81 bytes over 1 GPU do not fit: it has 1 GPU of at most 40 bytes"
    }
    assert all(reason.because == "it is not labelled zone=b" for reason in cants["s"].reasons)
    assert [name for name, _ in cluster.sent()] == ["LoadToGpu"]
    assert cluster.where("ok#4")[2:] == ("a1", (0,))
    assert all(cluster.state.nodes[node_id] == before[node_id] for node_id in ("n1", "n2"))


def test_the_reason_says_what_is_missing_where_it_comes_closest():
    cluster = Cluster((80 * 10**9, 80 * 10**9), (80 * 10**9,)).deploy((model("d", 60 * 10**9, dedicated=True), 3)).settle()
    cluster.deploy(model("m", 30 * 10**9))
    assert cluster["m#3"].because == "1 x 30 GB: 10 GB too little is free, 0 bytes there may be displaced"


def test_nodes_beyond_twenty_are_counted_by_reason():
    nodes = [(80,)] * 12 + [(40, 40)] * 12
    cluster = Cluster(*nodes)
    for number in range(5):
        cluster.join(f"z{number}", 80, zone="a")
    cluster.deploy((model("d", 80, dedicated=True, gpus=1), 17)).settle()
    cluster.deploy(model("m", 70, gpus=1), model("s", 30, node_labels={"zone": "a"}))
    counts = {note.model: {other.because: other.nodes for other in note.cant.others} for note in cluster.notes if note.cant}
    assert counts["m"] == {"its GPUs are too small or too few": 9}
    assert counts["s"] == {"it lacks the labels that are asked for": 9}
    cluster = Cluster(*[(80,)] * 30).deploy((model("d", 80, dedicated=True), 28), (model("m", 20, spread=True), 3))
    (cant,) = [note.cant for note in cluster.notes if note.cant]
    assert sum(other.nodes for other in cant.others) == 10
    assert {other.because for other in cant.others} <= {
        "a replica of this model is there",
        "too little is free, and too little may be displaced",
    }


def test_a_node_has_one_reason_where_it_has_several():
    """It has lost its label, and a replica of the model is there still."""
    spread = model("m", 20, spread=True, node_labels={"zone": "a"})
    cluster = Cluster().join("n1", 80, zone="a").deploy(spread).settle().join("n1", 80, zone="b").deploy((spread, 2))
    (cant,) = [note.cant for note in cluster.notes if note.cant]
    assert [(reason.node_id, reason.because) for reason in cant.reasons] == [("n1", "it is not labelled zone=a")]
    assert cant.others == ()


def test_replicas_of_one_model_that_fit_nowhere_have_the_same_reasons_each():
    cluster = Cluster((80,)).deploy((model("m", 81, gpus=1), 3))
    cants = [note.cant for note in cluster.notes if note.cant]
    assert [cant.replica_id for cant in cants] == ["m#0", "m#1", "m#2"]
    assert len({cant.reasons for cant in cants}) == 1


def test_without_a_node_it_waits_for_one():
    cluster = Cluster().deploy(model("m", 20))
    assert cluster["m#0"].because == "there is no node"
    assert cluster.join("n1", 80).where("m#0") == ("COLD", "loading", "n1", (0,))
    assert "retried" in cluster.kinds()


def test_a_node_without_gpus_is_no_place():
    cluster = Cluster(()).deploy(model("m", 20))
    assert "0 GPUs" in cluster["m#0"].because


def test_those_that_wait_are_tried_by_priority_then_by_age():
    cluster = Cluster().deploy(model("old", 50))
    cluster.wait(1.0).deploy(model("young", 50)).deploy(model("first", 50, priority=5))
    cluster.join("n1", 80).settle()
    assert cluster.where("first#2")[0] == "HOT"
    cluster.join("n2", 50)
    assert cluster.where("old#0")[1] == "loading"
    assert cluster.where("young#1")[1] == "reserving"


def test_a_smaller_one_goes_in_where_a_larger_one_waits():
    cluster = Cluster((80,)).deploy(model("d", 60, dedicated=True)).settle().deploy(model("large", 40), model("small", 15))
    assert cluster.where("small#2")[1] == "loading"
    assert cluster.where("large#1")[1] == "waiting"


def test_one_that_waits_goes_in_where_its_newest_spec_fits():
    cluster = Cluster((80,)).deploy(model("a", 50, dedicated=True)).settle().deploy((model("b", 35), 2))
    cluster.deploy((model("b", 30), 2))
    assert placed(cluster, "b#1") == ("n1", (0,), (30,))
    assert cluster["b#2"].phase is Phase.WAITING


def test_a_model_that_was_never_deployed_cannot_be_evicted():
    cluster = Cluster((80,))
    for ask in (lambda: cluster.evict(model="m"), lambda: cluster.evict(replica_id="m#0")):
        with pytest.raises(InvalidEventError, match="must be a"):
            ask()


def test_what_is_no_event_of_a_planner_is_refused():
    with pytest.raises(InvalidEventError, match=r"one of rankcore\.residency\.events"):
        residency_step(Cluster().state, "LoadFinished")


def test_the_record_of_who_serves_says_why_it_is_there():
    cluster = Cluster((80,), cpu=100).deploy(model("a", 60)).settle()
    assert cluster["a#0"].because == "it fits on GPU 0, from disk"
    cluster.deploy(model("b", 40)).settle()
    assert cluster["b#1"].because == "it goes to GPU 0, from disk, once a#0 left: cost 60 bytes"
    cluster.evict(model="b").settle().deploy(model("a", 60)).settle()
    assert cluster["a#0"].because == "it fits on GPU 0, from its copy there"


def test_a_larger_replica_that_fits_on_more_gpus_does_not_wait_behind_a_smaller_one_of_its_model():
    cluster = Cluster((80, 80))
    cluster.deploy(model("wide", 110, gpus=2, dedicated=True), model("thin", 40, gpus=2, dedicated=True)).settle()
    cluster.join("n2", 70).deploy(model("m", 70)).settle()
    cluster.join("n3", 120, cpu=70).scale("m", 2).settle().report("m#3", 100).evict(replica_id="m#3").settle()
    # m#3 waits beside its copy, without enough room, and loses it with the node; so does what had that room.
    cluster.deploy(model("d", 60, dedicated=True)).settle().scale("m", 2).lose("n2").lose("n3").evict(model="d")
    assert {each: record.phase for each, record in cluster.state.replicas.items() if record.model == "m"} == {
        "m#3": Phase.WAITING,
        "m#5": Phase.WAITING,
    }
    cluster.evict(model="wide").settle()
    # 60 are free on each: too few for 70 on one GPU, enough for twice 50.
    assert cluster.where("m#5") == ("COLD", "waiting", None, ())
    assert cluster.where("m#3") == ("HOT", "serving", "n1", (0, 1))


def test_of_one_model_those_of_a_size_that_fits_no_more_are_passed_over_and_larger_ones_too():
    cluster = Cluster((60,))
    cluster.deploy(model("first", 60, dedicated=True)).settle()
    for number, size in enumerate((30, 30, 30, 30, 70), 2):
        cluster.join(f"n{number}", size, cpu=30)
    cluster.deploy((model("m", 30), 5)).settle().report("m#5", 60).evict(model="m").settle()
    # They wait beside their copies, without room, and lose those with the nodes.
    cluster.deploy((model("d", 20, dedicated=True, spread=True), 4)).settle().deploy(model("e", 45, dedicated=True)).settle()
    cluster.scale("m", 5)
    for number in range(2, 7):
        cluster.lose(f"n{number}")
    assert [cluster.where(f"m#{number}") for number in range(1, 6)] == [("COLD", "waiting", None, ())] * 5
    cluster.evict(model="d").evict(model="e").evict(model="first").settle()
    assert [cluster[f"m#{number}"].phase for number in range(1, 6)] == [Phase.SERVING] * 2 + [Phase.WAITING] * 3


def test_a_warm_replica_whose_model_has_outgrown_its_node_goes_elsewhere():
    cluster = Cluster((40,), cpu=100)
    cluster.deploy(model("m", 30)).settle().evict(model="m").settle()
    cluster.join("n2", 80).deploy(model("m", 60)).settle()
    assert cluster.where("m#0") == ("HOT", "serving", "n2", (0,))


@pytest.mark.parametrize(
    ("size", "words"), [(999_999, "999999 bytes"), (8_388_608, "8.389 MB"), (30 * 10**9, "30 GB"), (47_315_147_806, "47.32 GB")]
)
def test_bytes_are_told_in_a_unit_of_which_there_are_some(size, words):
    assert in_words(size) == words
