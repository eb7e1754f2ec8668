"""The first in line for GPU memory: what it is promised, who takes its place, and that nobody else does (T12, T13); and
whose load is broken off for whom (T16).
"""

import pytest

from rankcore.errors import InvalidSpecError
from rankcore.residency import Phase, ResidencyPolicy
from rankcore.residency.commands import WakeAt
from rankcore.residency.estimates import load_s
from rankcore.residency.ledger import Ledger
from rankcore.residency.turns import in_line, turn_in_line
from tests.residents import Cluster, model

UNITS = {"disk_bytes_per_s": 1, "host_bytes_per_s": 10**9, "drain_timeout_s": 1.0, "turn_factor": 1.0, "aging_s": 1000.0}
"""A load of so many units takes as many seconds, and a turn is as long."""


def units(*nodes, **policy):
    return Cluster(*(nodes or ((4,),)), **UNITS | policy)


def loaded(cluster, spec, *, calls=1):
    """It is HOT after as many seconds as it has units, and has calls."""
    cluster.deploy(spec)
    cluster.now += spec.weight_bytes
    cluster.answer()
    (replica_id,) = cluster.state.hot_replicas(spec.model)
    return cluster.use(replica_id, calls)


def said(cluster, kind):
    return [(note.replica_id, note.because) for note in cluster.notes if note.kind == kind]


def test_who_is_first_in_line_is_told_when_it_is_hot_and_why_it_waits():
    cluster = loaded(units(), model("a", 3)).deploy(model("m", 4))
    assert said(cluster, "reserved") == [("m#1", "it is first in line, and goes to GPU 0 once a#0 left: HOT within 8 s")]
    assert cluster["m#1"].due_at == pytest.approx(3.0 + 3.0 + 1.0 + 4.0)
    assert cluster.where("a#0")[1] == "serving"
    assert cluster.wait(2.0).where("a#0")[1] == "serving"
    assert cluster.wait(1.0).where("a#0")[1] == "leaving"


def test_a_small_newcomer_does_not_overtake_the_first_in_line():
    cluster = loaded(units(), model("a", 3)).deploy(model("m", 4)).deploy(model("s", 1))
    assert cluster.where("s#2")[1] == "waiting"
    assert cluster["m#1"].gpu_bytes == (1,)


def test_without_reservations_a_small_newcomer_overtakes_and_nothing_is_promised():
    cluster = loaded(units(reserves=False), model("a", 3)).deploy(model("m", 4)).deploy(model("s", 1))
    assert cluster.where("s#2")[1] == "loading"
    assert (cluster.where("m#1")[1], cluster["m#1"].due_at, cluster.state.head) == ("waiting", None, None)
    assert said(cluster, "reserved") == []


def test_what_was_promised_counts_the_turn_of_one_that_is_loaded_behind_another_one():
    """The load of s begins at 1 and has to wait for that of a until 3: its turn is as long as its load alone."""
    cluster = units().deploy(model("a", 3))
    cluster.wait(1.0).deploy(model("s", 1))
    assert cluster["s#1"].hot_by == 1.0 + 4.0
    cluster.now = 3.0
    cluster.answer().use("a#0", 1).deploy(model("m", 4))
    due_at = cluster["m#2"].due_at
    cluster.now = 4.0
    cluster.answer().use("s#1", 1)
    assert cluster["s#1"].turn_s == 1.0
    assert cluster["m#2"].due_at == due_at
    assert said(cluster, "slipped") == []
    assert due_at == pytest.approx(5.0 + 1.0 + 1.0 + 4.0)


def test_a_drain_under_way_does_not_begin_again_when_another_one_ends():
    cluster = loaded(units(), model("a", 3))
    loaded(cluster, model("s", 1)).deploy(model("m", 4))
    due_at = cluster["m#2"].due_at
    cluster.wait(2.0)
    assert {cluster.where(each)[1] for each in ("a#0", "s#1")} == {"leaving"}
    cluster.now += 1.0
    cluster.answer()
    assert (said(cluster, "slipped"), cluster["m#2"].due_at) == ([], due_at)
    assert cluster.answer().where("m#2")[1] == "loading"


def test_who_waits_for_others_to_leave_has_waited_for_so_long_already():
    """M is to be loaded once a and b left; s comes after it, and what s was promised does not move when one of them has."""
    cluster = loaded(units(turn_factor=0.0), model("a", 3), calls=0)
    loaded(cluster, model("b", 1), calls=0).deploy(model("m", 4)).deploy(model("s", 2))
    due_at = cluster["s#3"].due_at
    cluster.now += 1.0
    cluster.answer()
    assert (said(cluster, "slipped"), cluster["s#3"].due_at) == ([], due_at)


def test_what_takes_longer_than_it_may_is_said():
    cluster = loaded(units(), model("a", 3))
    loaded(cluster, model("s", 1)).deploy(model("m", 4)).wait(2.0)
    due_at = cluster["m#2"].due_at
    cluster.now += 4.0
    cluster.answer()
    assert said(cluster, "slipped") == [("m#2", "3 s later than promised: s#1 took longer")]
    assert cluster["m#2"].due_at == pytest.approx(due_at + 3.0 + 3.0)
    cluster.answer().wait(8.0)
    cluster.answer()
    assert (cluster.where("m#2")[0], cluster["m#2"].due_at) == ("HOT", None)
    assert said(cluster, "slipped") == [("m#2", "it is HOT 4 s late: its load took 8 s")]


def test_a_turn_is_over_once_nobody_has_called_for_a_round_trip():
    cluster = loaded(units(turn_factor=9.0), model("a", 3)).deploy(model("m", 4)).wait(1.0).use("a#0", 0)
    assert cluster.wait(5.5).where("a#0")[1] == "serving"
    assert cluster.wait(0.5).where("a#0")[1] == "leaving"


def targeted(**policy):
    """M, which waits since 3, should be HOT by 18: a, which it displaces, has to leave from 13 on, and has a turn of 27 s."""
    return loaded(units(turn_factor=9.0, **policy), model("a", 3)).deploy(model("m", 4, wait_target_s=15.0))


def test_a_turn_is_cut_for_the_wait_target_of_the_first_in_line():
    cluster = targeted()
    assert cluster["m#1"].due_at == pytest.approx(3.0 + 15.0)
    assert cluster.wait(9.5).where("a#0")[1] == "serving"
    assert [each.at for each in cluster.commands if isinstance(each, WakeAt)] in ([], [13.0])
    assert cluster.wait(0.5).where("a#0")[1] == "leaving"
    cluster.now += 1.0
    assert cluster.answer().where("m#1")[1] == "loading"
    assert said(cluster, "slipped") == []


def test_a_turn_is_cut_for_one_further_behind_in_line_too():
    """S should be HOT by 13, after m: both take 5 s, and a second until a has left."""
    cluster = targeted().deploy(model("s", 1, wait_target_s=10.0))
    assert cluster.state.head.begins_by == pytest.approx(3.0 + 10.0 - 5.0 - 1.0)
    assert cluster.wait(4.0).where("a#0")[1] == "leaving"


def test_a_turn_is_cut_for_one_behind_in_line_that_is_given_up_without_a_place():
    """S is first in line once m loads: a has to leave a second before s has waited for 6 s. T is the first 4 s later, for m."""
    cluster = loaded(units(turn_factor=9.0), model("a", 3)).deploy(model("m", 4)).deploy(model("s", 2, place_target_s=6.0))
    assert cluster.state.head.begins_by == pytest.approx(3.0 + 6.0 - 1.0)
    cluster.deploy(model("t", 2, place_target_s=6.0))
    assert cluster.state.head.begins_by == pytest.approx(3.0 + 6.0 - 4.0 - 1.0)
    assert cluster.wait(2.0).where("a#0")[1] == "leaving"


def test_a_turn_is_not_cut_for_the_place_of_the_first_in_line_which_has_one():
    cluster = loaded(units(turn_factor=9.0), model("a", 3)).deploy(model("m", 4, place_target_s=2.0))
    assert cluster.state.head.begins_by is None
    assert cluster.wait(20.0).where("a#0")[1] == "serving"


def test_a_turn_is_not_cut_below_half_of_its_load_whoever_waits():
    cluster = loaded(units(turn_factor=9.0), model("a", 3)).deploy(model("m", 4, wait_target_s=1.0))
    assert cluster.wait(1.0).where("a#0")[1] == "serving"
    assert cluster.wait(0.5).where("a#0")[1] == "leaving"


def test_one_that_is_dedicated_waits_for_a_load_and_for_no_turn():
    cluster = units(turn_factor=9.0).deploy(model("a", 3))
    cluster.now = 2.0
    cluster.deploy(model("m", 4, dedicated=True))
    cluster.now = 3.0
    assert cluster.answer().where("a#0")[1] == "leaving"


def test_a_higher_priority_waits_for_half_a_load_at_most():
    cluster = loaded(units(turn_factor=9.0), model("a", 3)).deploy(model("m", 4, priority=1))
    assert cluster["m#1"].due_at == pytest.approx(3.0 + 1.5 + 1.0 + 4.0)
    assert cluster.wait(1.0).where("a#0")[1] == "serving"
    assert cluster.wait(0.5).where("a#0")[1] == "leaving"


def test_a_least_turn_is_over_at_its_end_though_the_difference_is_rounded_to_less():
    cluster = units((3,), turn_factor=9.0)
    cluster.now = 0.1
    loaded(cluster, model("a", 3)).deploy(model("m", 3, priority=1))
    assert (cluster.now + 1.5) - cluster.now < 1.5
    assert cluster.wait(1.5).where("a#0")[1] == "leaving"


def test_what_is_not_called_leaves_at_once_for_a_wait_target_that_is_missed():
    cluster = loaded(units(turn_factor=9.0), model("a", 3), calls=0).deploy(model("m", 4, wait_target_s=1.0))
    assert cluster.where("a#0")[1] == "leaving"


def test_a_minimum_time_is_kept_by_one_that_nobody_calls():
    cluster = loaded(units(), model("a", 3, min_hot_s=2.0)).deploy(model("m", 4)).wait(1.0).use("a#0", 0)
    assert cluster.where("a#0")[1] == "serving"
    assert cluster.wait(2.0).where("a#0")[1] == "leaving"


def test_a_newcomer_of_a_higher_standing_goes_ahead_and_who_was_first_is_told_and_keeps_its_place_in_line():
    cluster = loaded(units(), model("a", 3)).deploy(model("m", 4)).wait(1.0)
    cluster.deploy(model("p", 4, priority=1))
    assert cluster.state.head.replica_id == "p#2"
    assert said(cluster, "slipped") == [("m#1", "it has no place any more: p#2 goes ahead of it")]
    assert (cluster.where("m#1")[1], cluster["m#1"].since) == ("waiting", 3.0)


def test_who_has_waited_long_enough_is_not_overtaken_by_a_higher_priority():
    cluster = loaded(units(aging_s=2.0), model("a", 4)).deploy(model("m", 4)).wait(3.0).deploy(model("p", 4, priority=1))
    assert cluster.state.head.replica_id == "m#1"


def test_aging_lets_nobody_displace_a_higher_priority():
    cluster = loaded(units(aging_s=1.0), model("a", 3, priority=1)).deploy(model("m", 4)).wait(50.0)
    assert (cluster.state.head, cluster.where("a#0")[1]) == (None, "serving")


def test_who_goes_ahead_and_fits_where_the_first_held_room_is_loaded_at_once_and_the_other_one_is_first_again():
    cluster = loaded(units((5,)), model("a", 3)).deploy(model("m", 4)).deploy(model("p", 1, priority=1))
    assert cluster.where("p#2")[1] == "loading"
    assert said(cluster, "reserved")[0] == ("p#2", "it is first in line, and goes to GPU 0: HOT within 2 s")
    assert cluster.state.head.replica_id == "m#1"
    assert cluster["m#1"].waits_for == ("a#0",)


def test_the_first_in_line_goes_where_there_is_room_first():
    cluster = loaded(units(), model("a", 3)).deploy(model("m", 4)).join("n2", 4)
    assert cluster.where("m#1") == ("COLD", "loading", "n2", (0,))
    assert (cluster.state.head, said(cluster, "slipped")) == (None, [])


def test_the_first_in_line_stays_where_others_leave_for_it_already():
    cluster = loaded(units(), model("a", 3)).deploy(model("m", 4)).wait(3.0).join("n2", 4)
    assert cluster.where("m#1") == ("COLD", "reserving", "n1", (0,))


def test_the_first_in_line_heeds_no_node_that_is_too_small():
    cluster = loaded(units(), model("a", 3)).deploy(model("m", 4)).join("n2", 2)
    assert cluster.where("m#1") == ("COLD", "reserving", "n1", (0,))


def test_what_ends_on_another_node_is_nothing_to_the_first_in_line():
    cluster = loaded(units((4,), (3,)), model("b", 3))
    loaded(cluster, model("a", 3)).deploy(model("m", 4))
    before = cluster["m#2"]
    cluster.end("b#0")
    assert cluster["m#2"] == before


def test_who_asks_for_another_thing_is_placed_anew_and_told():
    cluster = loaded(units(), model("a", 2)).deploy(model("m", 4)).deploy(model("m", 2))
    assert cluster.where("m#1")[1] == "loading"
    because = "it has no place any more: what it asked for is another thing, or whom it may displace"
    assert said(cluster, "slipped") == [("m#1", because)]


def test_one_that_has_a_copy_is_first_in_line_instead():
    """M leaves for x, with a copy; another one of it is first in line meanwhile."""
    cluster = Cluster((4,), cpu=4, **UNITS | {"turn_factor": 0.0})
    loaded(cluster, model("m", 4), calls=0).deploy(model("x", 3)).deploy(model("m", 4))
    assert (cluster.where("m#0")[1], cluster.state.head.replica_id) == ("leaving", "m#2")
    cluster.answer()
    assert (cluster.state.head.replica_id, cluster.where("m#2")) == ("m#0", ("COLD", "ended", None, ()))


def test_the_first_in_line_goes_in_the_end_whoever_comes():
    """Small ones come and go for ever, as calls to many models do: the large one has its turn when it was promised to."""
    cluster = units((8,), turn_factor=20.0)
    for name in "abcdefgh":
        loaded(cluster, model(name, 1))
    cluster.deploy(model("m", 7))
    due_at = cluster["m#8"].due_at
    while cluster["m#8"].phase in (Phase.RESERVING, Phase.LOADING):
        assert cluster.now <= due_at
        for each in (*"abcdefgh", *(f"s{second}" for second in range(int(cluster.now)))):
            for replica_id in cluster.state.hot_replicas(each):
                cluster.use(replica_id, 1)
        cluster.deploy(model(f"s{int(cluster.now)}", 1)).wait(1.0)
        for command in list(cluster.pending):
            if command.replica_id != "m#8":
                cluster.answer(command)
            elif cluster.now >= cluster["m#8"].since + 7.0:
                cluster.answer(command)
                break
    assert due_at - cluster.now < 2.0


def replaced(cluster, replica_id, spec):
    """It is let go, and has left when its successor is wanted in its place."""
    cluster.evict(replica_id=replica_id, keep="COLD")
    return succeeded(cluster, replica_id, spec)


def succeeded(cluster, replica_id, spec):
    command = [each for each in cluster.pending if each.replica_id == replica_id][-1]
    return cluster.answer(command, heir=spec)


def test_what_a_replica_leaves_is_its_successors_and_the_first_in_line_waits_for_that_instead_and_is_told():
    cluster = loaded(units(), model("a", 3)).deploy(model("m", 4))
    assert cluster["m#1"].due_at == pytest.approx(3.0 + 3.0 + 1.0 + 4.0)
    replaced(cluster, "a#0", model("a", 3))
    assert cluster.where("a#2") == ("COLD", "loading", "n1", (0,))
    assert (cluster.state.head.heirs, cluster["m#1"].waits_for, cluster["m#1"].gpu_bytes) == (("a#2",), ("a#2",), (1,))
    assert said(cluster, "slipped") == [("m#1", "3 s later than promised: a#2 succeeds who was there")]
    assert cluster["m#1"].due_at == pytest.approx(3.0 + 3.0 + 3.0 + 1.0 + 4.0)


def test_the_place_of_one_that_has_died_is_its_successors():
    cluster = loaded(units(), model("a", 3)).deploy(model("m", 4)).end("a#0")
    assert (cluster.where("a#2")[1], cluster["m#1"].waits_for) == ("loading", ("a#2",))


def test_a_successor_that_has_gone_ahead_of_the_first_in_line_has_no_successor_ahead_of_it():
    cluster = loaded(units(), model("a", 3)).deploy(model("m", 4))
    replaced(cluster, "a#0", model("a", 3))
    replaced(cluster, "a#2", model("a", 3))
    assert cluster.where("m#1")[1] == "loading"
    assert (cluster.state.head.replica_id, cluster["a#3"].waits_for) == ("a#3", ("m#1",))
    assert said(cluster, "slipped") == []


def test_each_of_those_waited_for_is_succeeded_once():
    cluster = loaded(units(), model("a", 2))
    loaded(cluster, model("b", 2)).deploy(model("m", 4))
    replaced(cluster, "a#0", model("a", 2))
    replaced(cluster, "b#1", model("b", 2))
    assert (cluster.state.head.heirs, cluster["m#2"].waits_for) == (("a#3", "b#4"), ("a#3", "b#4"))


def test_beside_a_smaller_successor_the_first_in_line_has_its_room_at_once():
    cluster = loaded(units((5,)), model("a", 4)).deploy(model("m", 2))
    replaced(cluster, "a#0", model("b", 3))
    assert (cluster.where("b#2")[1], cluster.where("m#1")[1], said(cluster, "slipped")) == ("loading", "loading", [])


def test_a_successor_that_takes_more_than_was_left_to_it_waits_in_line():
    cluster = loaded(units(), model("a", 3)).deploy(model("m", 4))
    replaced(cluster, "a#0", model("b", 4))
    assert (cluster.where("m#1")[1], cluster.where("b#2")[1]) == ("loading", "reserving")


def test_who_is_first_in_line_and_of_the_successors_model_has_the_place():
    cluster = loaded(units(), model("a", 3)).deploy(model("b", 4))
    replaced(cluster, "a#0", model("b", 4))
    assert (cluster.where("b#1")[1], cluster.where("b#2")[1]) == ("loading", "waiting")


def test_behind_a_successor_that_nobody_may_displace_there_is_no_place():
    own = model("a", 3, dedicated=True)
    cluster = loaded(units(), own).evict(model="a", keep="COLD").deploy(model("m", 4))
    assert cluster["m#1"].waits_for == ("a#0",)
    succeeded(cluster, "a#0", own)
    assert (cluster.where("a#2")[1], cluster.where("m#1")[1], cluster.state.head) == ("loading", "waiting", None)
    assert [each for each, _ in said(cluster, "slipped")] == ["m#1"]


def test_for_whom_others_leave_has_what_they_leave_whoever_succeeds_them():
    cluster = loaded(units(), model("a", 4)).deploy(model("m", 4)).wait(4.0)
    assert cluster["a#0"].makes_room_for == "m#1"
    succeeded(cluster, "a#0", model("a", 4))
    assert (cluster.where("m#1")[1], cluster.where("a#2")[1]) == ("loading", "reserving")


def test_who_has_all_it_needs_waits_for_nobody_any_more():
    """A and b are to leave for m; c leaves, on which nobody counted, and that is enough."""
    cluster = loaded(units((8,)), model("c", 4, dedicated=True))
    for name in "ab":
        loaded(cluster, model(name, 2))
    cluster.deploy(model("m", 3))
    assert cluster["m#3"].waits_for == ("a#1", "b#2")
    cluster.evict(model="c", keep="COLD").answer()
    assert cluster.where("m#3")[1] == "loading"


def test_before_any_load_the_policy_says_how_fast_they_are_and_afterwards_those_that_were_alone():
    cluster = units((9,))
    assert load_s(cluster.state.policy, cluster.state.nodes["n1"], 6, "COLD") == 6.0
    cluster.deploy(model("a", 1)).wait(4.0)
    cluster.answer()
    assert load_s(cluster.state.policy, cluster.state.nodes["n1"], 6, "COLD") == 24.0


@pytest.mark.parametrize("turns", [-1, 21, "3", True])
def test_a_turn_is_at_most_so_many_loads_long(turns):
    with pytest.raises(InvalidSpecError, match="0 to 20"):
        ResidencyPolicy(turn_factor=turns)


def test_the_line_that_is_kept_is_what_sorting_all_that_wait_comes_to():
    cluster = units(aging_s=2.0).deploy(model("x", 4, dedicated=True)).settle()
    for second, priority in enumerate((0, 2, 0, 1)):
        cluster.deploy(model(f"m{second}", 4, priority=priority)).wait(1.0)
    ledger = Ledger(cluster.state, cluster.now)
    assert list(in_line(ledger)) == sorted(ledger.queue.lacks, key=lambda each: turn_in_line(ledger, each))
    assert list(in_line(ledger)) == ["m1", "m0", "m2", "m3"]


def begun(cluster, spec, seconds):
    """It is being loaded for so long."""
    cluster.deploy(spec)
    cluster.now += seconds
    return cluster


@pytest.mark.parametrize(("seconds", "goes"), [(0.0, True), (2.0, True), (2.5, False)])
def test_a_load_is_broken_off_for_a_higher_priority_while_half_of_it_is_to_come(seconds, goes):
    cluster = begun(units(), model("a", 4), seconds).deploy(model("m", 4, priority=1))
    assert (cluster.where("a#0")[1] == "leaving") is goes
    assert [type(each).__name__ for each in cluster.pending] == ["LoadToGpu", *(["UnloadFromGpu"] if goes else [])]
    if goes:
        assert said(cluster, "displaced") == [("a#0", "by m#1: less than half of it was loaded")]
        assert cluster.answer(cluster.pending[-1]).where("m#1")[1] == "loading"


def test_a_load_is_not_broken_off_for_one_of_the_same_priority_or_that_has_aged():
    cluster = begun(units(aging_s=1.0), model("a", 4), 0.0).deploy(model("m", 4))
    assert cluster.wait(1.0).where("a#0")[1] == "loading"
    assert begun(units(), model("a", 4), 0.0).deploy(model("m", 4, dedicated=True)).where("a#0")[1] == "loading"


def test_a_model_loses_no_second_load_in_a_row():
    cluster = begun(units(), model("a", 4), 1.0).deploy(model("m", 4, priority=1))
    cluster.join("n2", 4).deploy(model("a", 4))
    assert cluster["a#2"].node_id == "n2"
    cluster.deploy(model("u", 4, priority=2))
    assert cluster.where("a#2")[1] == "loading"
    cluster.now += 4.0
    cluster.answer([each for each in cluster.pending if each.replica_id == "a#2"][-1])
    assert not cluster.state.broken_off


def test_a_promise_to_one_whose_load_is_broken_off_is_told_to_be_none():
    cluster = loaded(units(), model("a", 3)).deploy(model("m", 4))
    cluster.wait(3.0).answer(cluster.pending[-1])
    assert cluster["m#1"].due_at is not None
    cluster.deploy(model("u", 4, priority=1))
    assert cluster["m#1"].due_at is None
    assert said(cluster, "slipped") == [("m#1", "its load is broken off for u#2")]


@pytest.mark.parametrize("reserves", [True, False])
def test_a_load_that_begins_while_an_urgent_one_waits_is_broken_off_in_the_same_step(reserves):
    """Who waits could not displace m as long as somebody made room for it; and is first in line nowhere: t is, if anybody."""
    cluster = loaded(units((4,), (8,), reserves=reserves), model("a", 4), calls=0)
    cluster = loaded(cluster, model("b", 8))
    cluster.deploy(model("t", 8, priority=9))
    cluster.deploy(model("m", 4, priority=1)).deploy(model("u", 4, priority=2))
    assert [type(each).__name__ for each in cluster.pending] == ["UnloadFromGpu"]
    cluster.answer()
    moves = [(type(each).__name__, each.replica_id) for each in cluster.pending]
    assert moves == [("LoadToGpu", "m#3"), ("UnloadFromGpu", "m#3")]
    assert [*cluster.state.broken_off] == ["m"]
    assert cluster.answer(cluster.pending[-1]).where("u#4")[1] == "loading"


def test_the_first_in_line_takes_what_its_node_turns_out_to_have_more_before_anybody_else():
    """It joins again with 7 where it had 4: with the 1 that it holds m waits for a no longer, and s does not overtake it."""
    cluster = loaded(units(), model("a", 3)).deploy(model("m", 4)).deploy(model("s", 3))
    assert [cluster.where(each)[1] for each in ("m#1", "s#2")] == ["reserving", "waiting"]
    cluster.join("n1", 7)
    assert [cluster.where(each)[1] for each in ("a#0", "m#1", "s#2")] == ["serving", "loading", "reserving"]
    assert said(cluster, "slipped") == []
