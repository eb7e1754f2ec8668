"""Who is displaced for whom (T4, T5), what becomes of the displaced (T6), and that they finish first (T9)."""

import pytest

from rankcore.frozen import EMPTY
from rankcore.residency import cover, displacement
from rankcore.residency.cover import Victim, cheapest_cover
from rankcore.residency.displacement import victims_on
from tests.residents import Cluster, model

SMALLEST = {"warm_eviction": "smallest"}
"""For cases of T6; where those copies stay that save most it is T17 (`test_residency_copies`)."""


def full(*residents, nodes=((80,),), **options):
    """A cluster where these serve, each asked for on its own."""
    cluster = Cluster(*nodes, **options)
    for each in residents:
        cluster.deploy(each).settle()
    return cluster


def displaced(cluster):
    return sorted(note.replica_id for note in cluster.notes if note.kind == "displaced")


def test_only_those_leave_that_have_to():
    assert displaced(full(model("a", 10), model("b", 60)).deploy(model("d", 40))) == ["b#1"]


def test_two_small_ones_leave_rather_than_a_large_one():
    cluster = full(model("large", 40), model("s", 15), model("t", 15)).deploy(model("d", 40))
    assert displaced(cluster) == ["s#1", "t#2"]


def test_of_equal_sets_the_smaller_one_leaves():
    cluster = full(model("large", 30), model("s", 15), model("t", 15), model("rest", 20)).deploy(model("d", 30))
    assert displaced(cluster) == ["large#0"]


def test_a_dedicated_replica_is_never_displaced():
    cluster = full(model("d", 50, dedicated=True)).deploy(model("m", 60, priority=100, dedicated=True))
    assert displaced(cluster) == []
    assert cluster.where("m#1")[1] == "waiting"


def test_a_replica_is_not_displaced_before_its_minimum_time():
    cluster = full(model("young", 50, min_hot_s=60.0)).deploy(model("m", 60))
    assert cluster.where("m#1")[1] == "reserving"
    assert cluster.woken_at() == [60.0]
    cluster.wait(59.0)
    assert displaced(cluster) == []
    cluster.wait(1.0)
    assert displaced(cluster) == ["young#0"]
    assert cluster.settle().where("m#1")[0] == "HOT"


def test_a_dedicated_newcomer_may_displace_one_that_is_younger():
    assert displaced(full(model("young", 50, min_hot_s=60.0)).deploy(model("m", 60, dedicated=True))) == ["young#0"]


def test_nobody_is_displaced_for_one_of_lower_priority():
    cluster = full(model("high", 50, priority=2)).deploy(model("low", 60, priority=1))
    assert cluster.where("low#1")[1] == "waiting"
    assert displaced(cluster.deploy(model("even", 60, priority=2))) == ["high#0"]


def test_priority_weighs():
    """40 of priority 1 cost 80, 60 of priority 0 cost 60."""
    cluster = full(model("high", 40, priority=1), model("low", 60), nodes=((40,), (60,)))
    assert displaced(cluster.deploy(model("m", 40, priority=1))) == ["low#1"]


def test_requests_in_flight_weigh():
    cluster = full(model("busy", 40), model("idle", 55), nodes=((40,), (55,)), in_flight_cost_bytes=10)
    cluster.use("busy#0", 2)
    assert displaced(cluster.deploy(model("m", 40))) == ["idle#1"]


def test_recent_use_weighs_less_as_time_goes_by():
    def cluster():
        made = full(model("new", 40), model("old", 45), nodes=((40,), (45,)), recent_cost_bytes=30, recent_use_s=100.0)
        return made.wait(100.0).use("new#0", 0)

    assert displaced(cluster().wait(50.0).deploy(model("m", 40))) == ["old#1"]
    assert displaced(cluster().wait(90.0).deploy(model("m", 40))) == ["new#0"]


def test_replicas_of_one_request_never_displace_each_other():
    cluster = full(model("a", 50)).deploy(model("a", 50), model("m", 60))
    assert displaced(cluster) == []
    assert cluster.where("m#1")[1] == "waiting"
    assert displaced(cluster.wait(1000.0)) == []
    assert displaced(cluster.deploy(model("other", 60))) == ["a#0"]


def test_a_model_never_displaces_itself():
    cluster = full(model("m", 50)).scale("m", 2)
    assert displaced(cluster) == []


def test_a_victim_that_spans_gpus_is_enough_for_all_of_them():
    """The pair costs 80 and frees both GPUs; the two singles on the other node cost 90."""
    cluster = full(model("p", 80, gpus=2), (model("s", 45), 2), nodes=((45, 45), (45, 45)))
    assert displaced(cluster.deploy(model("m", 90, gpus=2))) == ["p#0"]


def test_all_choices_of_gpus_are_weighed():
    cluster = full(model("a", 30), model("b", 20), model("c", 25), model("d", 10), nodes=((30, 20, 25, 10),))
    assert displaced(cluster.deploy(model("m", 40, gpus=2))) == ["b#1", "c#2"]


def test_nobody_is_displaced_beside_one_that_leaves_already():
    cluster = full(model("a", 50), model("b", 30)).evict(model="a").deploy(model("m", 50))
    assert displaced(cluster) == []
    assert cluster.where("m#2")[1] == "reserving"
    cluster.answer()
    assert cluster.where("m#2")[1] == "loading"


def test_the_newcomer_takes_what_is_free_at_once_and_the_rest_as_victims_go():
    cluster = full(model("a", 25), model("b", 25)).deploy(model("m", 80))
    assert cluster["m#2"].gpu_bytes == (30,)
    assert cluster["m#2"].waits_for == ("a#0", "b#1")
    cluster.answer()
    assert cluster["m#2"].gpu_bytes == (55,)
    assert cluster.commands == ()
    cluster.answer()
    assert cluster.sent() == [("LoadToGpu", "m#2")]
    assert cluster.free("n1") == (0,)


def test_what_victims_give_up_beyond_the_need_is_free():
    cluster = full(model("a", 60)).deploy(model("m", 30)).settle()
    assert cluster.free("n1") == (50,)


def test_a_victim_finishes_what_it_has_in_flight():
    cluster = full(model("a", 60), drain_timeout_s=7.0).use("a#0", 3).deploy(model("m", 30))
    (unload,) = cluster.commands
    assert (type(unload).__name__, unload.timeout_s) == ("UnloadFromGpu", 7.0)
    cluster.use("a#0", 1)
    assert cluster["a#0"].in_flight == 1


def test_displaced_replicas_do_not_come_back_by_themselves():
    cluster = full(model("a", 60)).deploy(model("m", 30)).settle()
    assert cluster.state.target("a") == 0
    assert cluster.evict(model="m").settle().state.replicas == EMPTY


def test_the_displaced_becomes_warm_where_cpu_memory_allows():
    cluster = full(model("a", 60), cpu=60).deploy(model("m", 30)).settle()
    assert cluster.where("a#0") == ("WARM", "resting", "n1", ())
    assert cluster.state.nodes["n1"].cpu_free_bytes == 0


def test_the_smallest_copies_are_dropped_first():
    cluster = full((model("a", 10), 1), model("b", 20), model("c", 30), cpu=60, **SMALLEST)
    cluster.evict(model="b").settle().evict(model="a").settle().evict(model="c").settle()
    cluster.deploy(model("v", 25)).settle().deploy(model("m", 70))
    assert cluster.sent() == [("DropFromCpu", "a#0"), ("DropFromCpu", "b#1")]
    assert cluster.where("v#3")[:2] == ("HOT", "leaving")
    cluster.answer()
    assert cluster.commands == ()
    cluster.answer()
    assert cluster.sent() == [("OffloadToCpu", "v#3")]
    cluster.settle()
    assert cluster.where("v#3")[0] == cluster.where("c#2")[0] == "WARM"
    assert cluster.state.nodes["n1"].cpu_free_bytes == 5


def test_when_dropping_all_would_not_suffice_nothing_is_dropped():
    cluster = full(model("a", 10), cpu=20).evict(model="a").settle()
    cluster.deploy(model("v", 25)).settle().deploy(model("m", 70)).settle()
    assert cluster.where("a#0")[0] == "WARM"
    assert cluster.where("v#1")[0] == "COLD"


def two_beside_one_copy(copy, b):
    """A, of 60, and b serve; the copy of c is at rest, and of 90 bytes the others are free."""
    cluster = full(model("c", copy), nodes=((100,),), cpu=90, **SMALLEST).evict(model="c").settle()
    return cluster.deploy(model("a", 60)).settle().deploy(model("b", b)).settle()


def test_what_waits_for_a_copy_leaves_the_free_bytes_to_the_next_one():
    """A lacks 20 of the 50 that c gives up: of the 40 that are free b has 30."""
    cluster = two_beside_one_copy(50, 30).deploy(model("m", 100))
    assert cluster.sent() == [("DropFromCpu", "c#0"), ("OffloadToCpu", "b#2")]
    cluster.settle()
    assert [cluster.where(each)[0] for each in ("a#1", "b#2", "c#0", "m#3")] == ["WARM", "WARM", "COLD", "HOT"]
    assert cluster.state.nodes["n1"].cpu_free_bytes == 0


@pytest.mark.parametrize("who_ends", [None, "a#1", "b#2", "c#0"])
def test_what_a_dropped_copy_brings_beyond_the_need_is_the_next_ones(who_ends):
    """B, of 25, finds 10 free, and a needs 60 of 80: both wait for the same copy."""
    cluster = two_beside_one_copy(80, 25).deploy(model("m", 100))
    assert cluster.sent() == [("DropFromCpu", "c#0")]
    assert cluster["a#1"].waits_for == cluster["b#2"].waits_for == ("c#0",)
    if who_ends is not None:
        cluster.end(who_ends)
        cluster.pending = [each for each in cluster.pending if each.replica_id != who_ends]
    cluster.settle()
    levels = {each: cluster.where(each)[0] for each in ("a#1", "b#2", "c#0", "m#3")}
    cold = {"c#0", who_ends} if who_ends in ("a#1", "b#2") else {"c#0"}
    assert levels == {each: "HOT" if each == "m#3" else "COLD" if each in cold else "WARM" for each in levels}


def test_of_several_that_wait_for_a_copy_the_one_that_waits_for_the_fewest_takes_first():
    """A waits for c. B, which leaves later, waits for c and d: it gets of c what a leaves."""
    cluster = full(model("d", 60), nodes=((100,), (100,)), cpu=110, **SMALLEST).evict(model="d").settle()
    cluster.deploy(model("c", 50)).settle().evict(model="c").settle()
    assert cluster["c#1"].copy_node_id == cluster["d#0"].copy_node_id == "n1"
    cluster.deploy(model("a", 40)).settle().deploy(model("b", 60)).settle()
    cluster.evict(model="a").evict(model="b")
    assert (cluster["a#2"].waits_for, cluster["b#3"].waits_for) == (("c#1",), ("c#1", "d#0"))
    drops = [each for each in cluster.pending if each.replica_id in ("c#1", "d#0")]
    cluster.answer(drops[0])
    assert (cluster["a#2"].cpu_bytes, cluster["b#3"].cpu_bytes) == (40, 10)
    cluster.settle()
    assert cluster.where("a#2")[0] == cluster.where("b#3")[0] == "WARM"


def test_a_copy_that_is_gone_with_what_its_node_had_before_keeps_nobody_waiting():
    """News of a loss older than the node's return ends the copy that is dropped, and not who has begun to leave since."""
    cluster = two_beside_one_copy(80, 25).evict(model="a")
    assert cluster["a#1"].waits_for == ("c#0",)
    cluster.wait(1.0).evict(model="b")
    assert cluster["b#2"].waits_for == ("c#0",)
    cluster.wait(1.0).join("n1", 100, cpu=90).lose("n1", at=0.5)
    assert cluster["b#2"].waits_for == ()
    cluster.settle()
    assert [cluster.where(each)[0] for each in ("a#1", "b#2", "c#0")] == ["COLD", "WARM", "COLD"]


def test_a_copy_on_its_way_in_is_not_dropped():
    cluster = full(model("a", 22), model("b", 25), cpu=40).deploy(model("c", 60)).settle()
    assert [cluster.where(each)[0] for each in ("a#0", "b#1", "c#2")] == ["COLD", "WARM", "HOT"]


def test_who_waits_longest_displaces_once_somebody_serves():
    cluster = Cluster((80,)).deploy(model("a", 50)).deploy(model("m", 60))
    assert cluster.where("m#1")[1] == "reserving"
    cluster.answer()
    assert displaced(cluster) == ["a#0"]


def test_the_reason_of_a_place_says_whom_it_costs():
    cluster = full(model("a", 60)).deploy(model("m", 30))
    (note,) = [note for note in cluster.notes if note.kind == "placed"]
    assert note.because == "it goes to GPU 0, from disk, once a#0 left: cost 60 bytes"


def test_of_equal_nodes_the_first_is_chosen_among_many():
    cluster = full((model("a", 60), 30), nodes=((80,),) * 30)
    assert cluster.deploy(model("m", 30)).where("m#30")[2] == "n1"


@pytest.mark.parametrize("limit", ["NODES_MAX", "NODES_SEEN_MAX"])
def test_a_search_that_is_cut_short_is_told(monkeypatch, limit):
    monkeypatch.setattr(displacement, limit, 1)
    cluster = full((model("a", 40), 10), nodes=((80,),) * 5)
    for number in range(10):
        cluster.use(f"a#{number}", 1)
    cluster.deploy(model("m", 65))
    assert len(displaced(cluster)) == 2
    assert any("may be a cheaper set" in note.because for note in cluster.notes)


def test_gpus_that_are_cheap_one_by_one_may_be_too_dear_together():
    victims = [Victim("a", 10, {0: 10}), Victim("b", 10, {1: 10})]
    assert cheapest_cover(victims, {0: 5, 1: 5}, 2, limit=19) is None
    assert cheapest_cover(victims, {0: 5, 1: 5}, 2, limit=20).victims == ("a", "b")


def test_a_search_that_is_cut_short_spares_whom_it_can(monkeypatch):
    """What is cheapest per byte is taken first, x; z is needed for another GPU, and suffices for that of x too."""
    monkeypatch.setattr(cover, "STEPS_MAX", 3)
    x, y, z, w = (
        Victim("x", 11, {0: 11}),
        Victim("y", 50, {1: 10}),
        Victim("z", 22, {0: 11, 1: 10}),
        Victim("w", 11, {1: 1, 2: 10}),
    )
    found = cheapest_cover([x, y, z, w], {0: 11, 1: 10, 2: 10}, 3)
    assert (found.victims, found.cost, found.exact) == (("w", "z"), 33, False)


def test_models_asked_for_later_may_displace_those_asked_for_together():
    cluster = full((model("a", 30), 1)).deploy(model("b", 30), model("c", 20)).settle()
    assert displaced(cluster.deploy(model("m", 80))) == ["a#0", "b#1", "c#2"]


def test_a_search_over_choices_of_gpus_that_was_cut_short_says_so(monkeypatch):
    monkeypatch.setattr(cover, "CHOICES_MAX", 1)
    cluster = full(model("pair", 20, gpus=2), model("single", 10), nodes=((10, 10, 10),)).deploy(model("d", 10))
    assert "the search was cut short" in cluster["d#2"].because


def test_a_node_that_could_not_hold_it_empty_is_passed_over_where_two_become_possible_at_once():
    young = [model("a", 35, min_hot_s=60.0), model("b", 75, min_hot_s=60.0)]
    cluster = full(*young, nodes=((40,), (80,))).deploy(model("d", 60))
    assert cluster.where("d#2")[1] == "reserving"
    assert displaced(cluster.wait(60.0)) == ["b#1"]


def test_a_node_without_the_labels_that_it_asks_for_is_out_of_reach():
    cluster = full(model("a", 70)).deploy(model("d", 60, node_labels={"zone": "b"}))
    cluster.evict(model="a").settle()
    assert cluster.where("d#1")[1] == "waiting"
    assert cluster.join("n2", 80, zone="b").where("d#1")[2] == "n2"


def test_a_choice_of_gpus_that_lacks_more_than_the_best_costs_is_not_searched():
    cluster = full(model("pair", 4, gpus=2), model("rest", 9), nodes=((10, 10, 10),)).deploy(model("d", 9))
    assert displaced(cluster) == ["pair#0"]


def test_where_no_turn_is_over_nobody_is_looked_at(monkeypatch):
    """One more that waits on a full cluster costs nothing for its size; for a dedicated one no turn counts."""
    cluster = Cluster(*[(10,)] * 8).deploy(*[model(f"m{each}", 8, min_hot_s=60.0) for each in range(8)]).settle()
    looked_at = []
    monkeypatch.setattr(
        displacement, "victims_on", lambda node_id, *books: looked_at.append(node_id) or victims_on(node_id, *books)
    )
    cluster.deploy(model("n", 9))
    assert looked_at == []
    assert cluster.where("n#8")[1] == "reserving"
    cluster.deploy(model("d", 10, dedicated=True))
    assert looked_at != []
    assert cluster.kinds().count("displaced") == 1


def test_a_turn_that_is_over_counts_in_the_very_step_that_comes_next():
    cluster = Cluster((10,), (10,)).deploy(model("a", 8, min_hot_s=60.0))
    cluster.answer().deploy(model("b", 8, min_hot_s=600.0))
    cluster.answer()
    cluster.now += 60.0
    cluster.deploy(model("n", 9))
    assert cluster.where("n#2")[1] == "reserving"
    assert cluster.where("a#0")[1] == "leaving"
    assert "can't accommodate" not in cluster.kinds()
