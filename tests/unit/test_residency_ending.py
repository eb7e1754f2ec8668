"""A record that holds nothing and is not wanted ends, and with the last one of a model all that is known of it (T2, T10)."""

import pytest

from rankcore.errors import InvalidEventError
from rankcore.residency import Level, Phase, plan_residency, residency_step
from rankcore.residency.events import EvictRequested, LoadFinished
from tests.residents import ENDED, Cluster, model


def gone(cluster, name):
    """Nothing of a model is to stay anywhere."""
    return cluster.evict(model=name, keep=Level.COLD)


def knows_nothing_of_m(cluster):
    state = cluster.state
    return "m" not in state.models and "m" not in state.asked and not state.target("m")


def test_its_replicas_leave_the_gpus_and_their_records_end():
    cluster = Cluster((80,), cpu=200).deploy((model("m", 30), 2), model("other", 10)).settle()
    gone(cluster, "m")
    assert cluster.kinds() == ["evicted"] * 2
    assert [name for name, _ in cluster.sent()] == ["UnloadFromGpu"] * 2
    assert cluster.state.target("m") == 0
    cluster.answer()
    assert sorted(cluster.state.replicas) == ["m#1", "other#2"]
    cluster.answer()
    assert cluster.kinds() == ["became cold"]
    assert sorted(cluster.state.replicas) == ["other#2"]
    assert knows_nothing_of_m(cluster)
    assert cluster.free("n1") == (70,)


def test_copies_go_too_and_one_that_is_being_made():
    cluster = Cluster((80,), cpu=60).deploy((model("m", 30), 2)).settle().evict(replica_id="m#0").settle()
    gone(cluster.evict(replica_id="m#1"), "m").settle()
    assert knows_nothing_of_m(cluster)
    assert cluster.state.nodes["n1"].cpu_free_bytes == 60


def test_what_waits_or_is_loaded_ends_too():
    cluster = Cluster((80,)).deploy((model("m", 50), 3)).settle().scale("m", 2).scale("m", 3)
    cluster.join("n2", 80)
    assert {record.phase for record in cluster.state.replicas.values()} == {Phase.SERVING, Phase.WAITING, Phase.LOADING}
    assert knows_nothing_of_m(gone(cluster, "m").settle())


def test_a_model_of_which_nothing_is_anywhere_ends_at_once():
    cluster = gone(Cluster().deploy(model("m", 30)), "m")
    assert cluster.kinds() == ["evicted"]
    assert knows_nothing_of_m(cluster)


def test_a_model_of_which_nothing_is_wanted_is_not_known():
    assert knows_nothing_of_m(Cluster((80,)).deploy((model("m", 30), 0)))


def test_news_that_comes_late_is_a_note():
    cluster = Cluster((80,)).deploy(model("m", 30)).settle()
    (unload,) = gone(cluster, "m").pending
    cluster.answer(unload)
    ended = cluster.state
    cluster.answer(unload)
    cluster.feed(LoadFinished(replica_id="m#0", move=1, at=cluster.now))
    cluster.use("m#0", 1)
    assert (cluster.kinds(), cluster.state) == (["late"], ended)


def test_those_that_it_displaced_leave_all_the_same():
    cluster = Cluster((80,)).deploy(model("old", 60)).settle().deploy(model("m", 70))
    assert cluster["m#1"].waits_for == ("old#0",)
    assert knows_nothing_of_m(gone(cluster, "m"))
    cluster.settle()
    assert cluster.free("n1") == (80,)


def test_who_waited_for_its_room_gets_it():
    cluster = Cluster((80,)).deploy(model("m", 60, dedicated=True)).settle().deploy(model("next", 70))
    gone(cluster, "m").settle()
    assert cluster.where("next#1") == ("HOT", "serving", "n1", (0,))


def test_it_cannot_be_evicted_any_more_and_is_known_again_when_it_is_deployed():
    cluster = gone(Cluster((80,)).deploy(model("m", 30)).settle(), "m").settle()
    with pytest.raises(InvalidEventError, match=r"EvictRequested\.model"):
        residency_step(cluster.state, EvictRequested(model="m", at=cluster.now))
    cluster.deploy(model("m", 20)).settle()
    assert [cluster[each].phase for each in cluster.state.hot_replicas("m")] == [Phase.SERVING]
    assert cluster.state.models["m"].weight_bytes == 20


def test_a_model_that_is_to_keep_no_copy_keeps_none():
    cluster = Cluster((80,), cpu=100).deploy(model("m", 30, keeps_copy=False)).settle().evict(model="m")
    assert cluster.sent() == [("UnloadFromGpu", "m#0")]
    assert cluster.settle().where("m#0") == ENDED


def test_a_plan_says_what_would_leave():
    cluster = Cluster((80,)).deploy((model("m", 30), 3)).settle()
    plan = plan_residency(cluster.state, EvictRequested(model="m", keep=Level.COLD, at=cluster.now))
    assert [each.replica_id for each in plan.leaving] == ["m#0", "m#1"]
    assert "m#2" in cluster.state.replicas
