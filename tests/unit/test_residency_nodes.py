"""Nodes that join, change, are lost, or lie about their memory: the books balance, and what was wanted HOT is planned again."""

from tests.residents import ENDED, Cluster, model


def serving(*models, nodes=((80,),), **options):
    return Cluster(*nodes, **options).deploy(*models).settle()


def test_what_was_on_a_lost_node_is_planned_elsewhere():
    cluster = serving((model("m", 50), 2), nodes=((80,), (80,), (30,)), cpu=50).lose("n1")
    assert cluster.where("m#0") == ENDED
    assert cluster.where("m#1")[0] == "HOT"
    assert cluster.where("m#2")[1] == "waiting"
    assert cluster.join("n4", 80).where("m#2") == ("COLD", "loading", "n4", (0,))


def test_a_node_may_vanish_in_the_middle_of_a_load():
    cluster = Cluster((80,), (80,)).deploy(model("m", 50)).lose("n1")
    assert cluster.where("m#1") == ("COLD", "loading", "n2", (0,))
    first, second = cluster.pending
    assert cluster.answer(first).notes[0].kind == "late"
    cluster.answer(second)
    assert cluster.where("m#1")[0] == "HOT"


def test_a_copy_on_a_lost_node_is_gone():
    cluster = serving(model("m", 50), cpu=50).evict(model="m").settle().lose("n1")
    assert cluster.where("m#0") == ENDED


def test_a_newcomer_whose_node_is_lost_is_placed_elsewhere_and_its_victims_are_cold():
    cluster = serving(model("a", 60), cpu=60).deploy(model("m", 50)).join("n2", 50).lose("n1")
    assert cluster.where("m#1") == ("COLD", "loading", "n2", (0,))
    assert cluster.where("a#0") == ENDED


def on_its_way(copy_on="n1"):
    """M is WARM on n1, and has a place on n2 that waits for its copy to be dropped."""
    cluster = serving(model("m", 50), cpu=50).evict(model="m").settle()
    return cluster.deploy(model("d", 40, dedicated=True)).settle().join("n2", 80).deploy(model("m", 50))


def test_a_copy_that_is_lost_with_its_node_is_no_longer_waited_for():
    cluster = on_its_way().lose("n1")
    assert cluster.where("m#0") == ("COLD", "loading", "n2", (0,))


def test_a_place_that_is_lost_while_the_copy_is_dropped_is_given_up():
    cluster = on_its_way().lose("n2")
    assert cluster.where("m#0") == ("WARM", "waiting", "n1", ())
    cluster.answer()
    assert cluster.where("m#0") == ("COLD", "waiting", None, ())
    assert cluster.join("n3", 50).where("m#0") == ("COLD", "loading", "n3", (0,))


def test_a_copy_that_was_being_dropped_is_lost_with_its_node():
    cluster = serving(model("m", 50), cpu=50).evict(model="m").settle().evict(model="m", keep="COLD").lose("n1")
    assert cluster.where("m#0") == ENDED


def test_one_that_waits_beside_its_copy_waits_on_when_that_is_lost():
    cluster = serving(model("m", 50), cpu=50).evict(model="m").settle().deploy(model("d", 40, dedicated=True)).settle()
    cluster.join("n2", 40).deploy(model("m", 50))
    assert cluster.where("m#0") == ("WARM", "waiting", "n1", ())
    assert cluster.lose("n1").where("m#0") == ("COLD", "waiting", None, ())
    assert cluster.join("n3", 50).where("m#0") == ("COLD", "loading", "n3", (0,))


def test_late_news_of_a_lost_node_ends_what_was_there_before_it_came_back():
    cluster = serving(model("m", 20)).wait(10.0).join("n1", 80).wait(5.0).deploy((model("m", 20), 2)).settle()
    cluster.lose("n1", at=7.0)
    assert cluster.where("m#0") == ENDED
    assert cluster.where("m#2")[1] == "loading"
    assert cluster.where("m#1")[0] == "HOT"
    assert "n1" in cluster.state.nodes


def test_news_of_a_node_that_nobody_knows_is_late():
    cluster = Cluster((80,))
    assert cluster.lose("x").kinds() == ["late"]
    assert cluster.measure("x", 80).kinds() == ["late"]
    assert cluster.measure("n1", 80, 80).kinds() == ["late"]
    assert cluster.measure("n1", 80).kinds() == []


def test_a_node_that_is_told_again_keeps_what_is_there():
    cluster = serving(model("m", 50)).join("n1", 80)
    assert cluster.where("m#0")[0] == "HOT"
    assert cluster.notes[0].because == "as before"
    cluster.join("n1", 100, zone="a")
    assert cluster.free("n1") == (50,)
    assert cluster.notes[0].because == "with other capacities or labels"


def test_a_node_that_comes_back_with_other_gpus_has_lost_what_was_there():
    cluster = serving(model("m", 50), cpu=20).join("n1", 80, 80)
    assert cluster.where("m#1") == ("COLD", "loading", "n1", (0,))


def test_what_no_longer_fits_leaves_and_is_planned_again():
    cluster = serving(model("a", 30), model("b", 45)).join("n2", 45).measure("n1", 70)
    assert cluster.where("a#1")[:2] == ("HOT", "leaving")
    assert cluster.where("b#0")[:2] == ("HOT", "serving")
    assert cluster.state.nodes["n1"].gpus[0].capacity_bytes == 75
    cluster.settle()
    assert cluster.free("n1") == (25,)
    assert cluster.where("a#1") == ENDED
    assert cluster.where("a#2") == ("HOT", "serving", "n2", (0,))


def test_a_dedicated_replica_leaves_only_where_the_others_are_not_enough():
    cluster = serving(model("d", 20, dedicated=True), model("a", 50)).measure("n1", 60)
    assert [cluster.where(each)[1] for each in ("a#0", "d#1")] == ["leaving", "serving"]
    cluster = serving(model("d", 50, dedicated=True), model("a", 20)).measure("n1", 40)
    assert [cluster.where(each)[1] for each in ("d#0", "a#1")] == ["leaving", "serving"]


def test_a_replica_that_is_loading_may_have_to_go_too():
    cluster = Cluster((80,)).deploy(model("m", 50)).measure("n1", 40)
    assert cluster.sent() == [("UnloadFromGpu", "m#0")]
    cluster.answer(cluster.pending[-1])
    assert (cluster.where("m#0"), cluster.where("m#1")[1]) == (ENDED, "waiting")
    assert cluster.free("n1") == (40,)


def test_a_reservation_ends_where_there_is_less_than_was_said():
    cluster = serving(model("a", 60), nodes=((80,),)).deploy(model("m", 50)).join("n2", 50).measure("n1", 70)
    assert cluster.where("m#1") == ("COLD", "loading", "n2", (0,))
    assert cluster.settle().where("a#0")[0] == "COLD"


def test_those_that_leave_already_are_enough():
    cluster = serving(model("a", 30), model("b", 45)).evict(model="b").measure("n1", 70)
    assert cluster.sent() == []
    assert cluster.settle().free("n1") == (40,)


def test_only_one_of_several_gpus_may_be_smaller():
    cluster = serving(model("p", 60, gpus=2), model("q", 40), nodes=((80, 80),)).measure("n1", 80, 25)
    assert cluster.where("p#0")[1] == "leaving"
    assert cluster.where("q#1")[1] == "serving"


def test_more_memory_than_was_said_is_room():
    cluster = serving(model("a", 60)).deploy(model("m", 90, gpus=1)).measure("n1", 150)
    assert cluster.where("m#1")[1] == "loading"


def test_with_a_smaller_budget_the_smallest_copies_are_dropped():
    cluster = serving(model("a", 10), model("b", 20), model("c", 30), cpu=60)
    for name in "abc":
        cluster.evict(model=name)
    cluster.settle().join("n1", 80, cpu=45)
    assert [replica_id for _, replica_id in cluster.sent()] == ["a#2", "b#1"]
    cluster.settle()
    assert cluster.state.nodes["n1"].cpu_free_bytes == 15
    assert cluster.join("n1", 80, cpu=29).sent() == [("DropFromCpu", "c#0")]
    assert cluster.join("n1", 80, cpu=28).sent() == []


def test_a_copy_that_was_on_its_way_into_a_budget_that_shrinks_is_not_made():
    cluster = serving(model("a", 30), model("b", 50), cpu=50).evict(model="a").settle()
    cluster.evict(model="b")
    assert cluster.sent() == [("DropFromCpu", "a#1")]
    cluster.join("n1", 80, cpu=20)
    cluster.answer()
    assert cluster.sent() == [("UnloadFromGpu", "b#0")]
    assert cluster.settle().where("b#0")[0] == "COLD"
    assert cluster.state.nodes["n1"].cpu_free_bytes == 20


def test_in_a_budget_that_is_exceeded_nothing_new_is_kept():
    cluster = serving(model("a", 30), model("b", 10), cpu=30).evict(model="a").join("n1", 80, cpu=10).evict(model="b")
    assert ("UnloadFromGpu", "b#1") in cluster.sent()
    cluster.settle()
    assert cluster.where("b#1")[0] == "COLD"


def test_nobody_is_displaced_on_a_gpu_before_those_have_left_that_it_has_no_room_for():
    cluster = serving(model("a", 30), model("b", 30)).measure("n1", 50)
    assert cluster.sent() == [("UnloadFromGpu", "a#0")]
    # What b would give up might end the excess, and not be there for x.
    cluster.deploy(model("x", 30))
    assert cluster.where("x#3")[1] == "waiting"
    assert cluster["x#3"].because == "it holds less than it said, and those who leave for that have not left"
    assert cluster.scale("a", 0).settle().where("x#3") == ("HOT", "serving", "n1", (0,))
    assert cluster.free("n1") == (20,)
