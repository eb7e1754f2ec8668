"""How far an update has come, as a status says it."""

from rankcore import StaticPlacement
from rankcore.progress import progress_of
from rankcore.waits import replica_in_words
from tests.scripted import Deployment


def said(d: Deployment) -> str:
    """Phase and what is updated."""
    return str(progress_of(d.state)).partition(",")[0]


def waits(d: Deployment, now: float | None = None) -> str:
    return progress_of(d.state, now).because


def on_bundles(**spec: object) -> Deployment:
    """Two ranks that have one place each, on n0 and n1."""
    placement = StaticPlacement(bundles={0: (0,), 1: (1,)}, bundle_count=2, group="pg")
    d = Deployment(2, placement=placement, **spec)
    d.bundle_nodes = {0: "n0", 1: "n1"}
    d.settle()
    return d


def test_an_update_counts_what_runs_all_of_the_spec() -> None:
    d = Deployment(2, max_unavailable=1)
    assert said(d) == "rolling: 0 of 2 updated"
    d.settle()
    assert said(d) == ""
    d.change(version="2")
    d.stopped("llm#1.0")
    d.place("llm#1.2")
    assert said(d) == "rolling: 0 of 2 updated"
    d.ready("llm#1.2")
    assert said(d) == "rolling: 1 of 2 updated"
    d.settle()
    assert said(d) == ""


def test_a_crash_is_no_update() -> None:
    d = Deployment.running(3)
    d.die("llm#1.1")
    assert str(progress_of(d.state)) == "2 of 3 available, waits: not available: rank 1 requested for 0 s"


def test_a_partition_says_how_many_it_has_reached_and_a_pause_that_it_is_one() -> None:
    d = Deployment.running(10)
    d.change(version="2", partition=8)
    assert said(d) == "rolling: 0 of 10 updated"
    d.settle()
    assert said(d) == "partitioned: 2 of 10 updated"
    d.change(partition=10)
    assert said(d) == "paused: 2 of 10 updated"
    d.change(partition=0, user_config={"a": 1})
    d.settle()
    assert said(d) == ""
    d.change(partition=8)
    assert said(d) == "", "nobody is behind"


def test_a_failed_version_is_said_to_be_one() -> None:
    d = Deployment.running(2, max_start_failures=1, max_unavailable=1)
    d.change(version="2")
    d.stopped("llm#1.0")
    d.place("llm#1.2")
    d.start_fails("llm#1.2")
    assert said(d) == "failed: 0 of 2 updated"


def test_the_line_says_all_that_somebody_on_call_asks_for() -> None:
    d = Deployment.running(4, max_unavailable=1, progress_deadline_s=100.0)
    d.change(version="2")
    d.stopped("llm#1.0")
    d.find_no_room()
    d.wait(160.0)
    assert str(progress_of(d.state, now=200.0)) == (
        "stalled for 100 s: 0 of 4 updated, 3 of 4 available, "
        "waits: no room, 3 of 4: rank 3 has no place (all places are taken)"
    )


def test_an_update_that_cannot_begin_for_want_of_room_says_so() -> None:
    """M16: three fit, four are wanted, and one may be unavailable."""
    d = Deployment(4, max_unavailable=1)
    for serial in range(3):
        d.place(f"llm#1.{serial}")
        d.ready(f"llm#1.{serial}")
    d.wait(10.0)
    d.change(version="2")
    d.stopped("llm#1.3")
    d.find_no_room()
    d.wait(10.0)
    assert (
        str(progress_of(d.state))
        == "rolling: 0 of 4 updated, 3 of 4 available, waits: no room, 3 of 4: rank 3 has no place (all places are taken)"
    )


def test_what_an_update_waits_for_is_the_first_of_what_there_is() -> None:
    d = Deployment.running(4, max_unavailable=2, min_ready_s=10.0, start_backoff_s=8.0, max_start_failures=9)
    d.change(version="2")
    d.wait(10.0)
    assert waits(d, now=12.0) == "rank 0 (llm#1.0) has been draining for 2 s; rank 1 (llm#1.1) has been draining for 2 s"
    d.stopped("llm#1.0")
    d.stopped("llm#1.1")
    d.place("llm#1.4")
    d.place("llm#1.5")
    assert waits(d, now=13.0) == "not available (2 may be): rank 0 starting for 3 s; rank 1 starting for 3 s"
    d.ready("llm#1.4")
    assert waits(d, now=12.5) == "not available (2 may be): rank 0 ready for 2.5 of 10 s; rank 1 starting for 2.5 s"
    d.die("llm#1.5")
    assert waits(d, now=14.0) == "rank 1 rests after 1 failure, next start in 4 s"
    d.wait(8.0)
    d.place("llm#1.6")
    d.ready("llm#1.6")
    d.wait(10.0)
    assert waits(d) == "rank 2 (llm#1.2) has been draining for 8 s; rank 3 (llm#1.3) has been draining for 0 s"
    d.settle()
    d.wait(10.0)
    assert waits(d) == ""


def test_times_are_said_to_the_tenth_of_a_second_however_long_they_are() -> None:
    d = Deployment.running(2, max_unavailable=1)
    d.change(version="2")
    assert waits(d, now=0.00135) == "rank 0 (llm#1.0) has been draining for 0 s"
    assert waits(d, now=12345.67) == "rank 0 (llm#1.0) has been draining for 12345.7 s"


def test_no_more_than_four_ranks_are_told() -> None:
    d = Deployment(6)
    assert waits(d).endswith("rank 3 requested for 0 s; ...")
    d.wait(10.0)
    assert waits(d) == "no place yet, 0 of 6: ranks 0, 1, 2, 3, ... have no place"
    d.find_no_room()
    assert waits(d) == "no room, 0 of 6: ranks 0, 1, 2, 3, ... have no place (all places are taken)"


def test_what_a_replica_waits_for_is_said_in_the_executors_words_until_it_has_a_place() -> None:
    d = Deployment(1)

    def why(now: float = 12.5) -> str:
        return replica_in_words(d.state.replicas["llm#1.0"], now)

    assert why() == ""
    d.pending("llm#1.0", "Slurm says Resources")
    assert why() == "no room for 12.5 s: Slurm says Resources"
    assert waits(d) == "not available (1 may be): rank 0 requested for 0 s (Slurm says Resources)"
    d.pending("llm#1.0", "")
    assert why() == "no room for 12.5 s"
    d.pending("llm#1.0", "Slurm says BeginTime", no_room=False)
    assert why() == "Slurm says BeginTime"
    d.place("llm#1.0")
    assert why() == ""
    d.ready("llm#1.0")
    d.unready("llm#1.0", "no licence")
    assert why() == "unready for 12.5 s: no licence"


def test_ranks_that_no_node_has_room_for_have_no_place_where_the_core_packs_them() -> None:
    d = Deployment(3, placement="pack_ranks")
    d.node("n0", 2)
    d.settle()
    assert waits(d) == "no room, 2 of 3: rank 2 has no place"


def test_that_there_is_no_room_for_a_successor_is_said_once_it_was_waited_for_in_vain() -> None:
    d = Deployment.running(4, nodes=("n0", "n1"), max_surge=1, hand_over="prepared", max_unavailable=1)
    d.change(version="2")
    assert waits(d, now=3.0) == "rank 0 (llm#1.4) was asked for 3 s ago, and is not up yet"
    d.pending("llm#1.4", reason="it waits for room")
    assert waits(d).startswith("no room yet for what is started early: rank 0 has a successor without a place")
    d.place("llm#1.4")
    assert "no room" not in waits(d)


def test_who_is_to_be_replaced_elsewhere_is_counted() -> None:
    d = Deployment.running(2)
    d.drain("n0")
    assert "2 of 2 available, draining n0: 2 to be replaced elsewhere, waits: rank 0 (llm#1.2) was asked for 0 s ago" in str(
        progress_of(d.state)
    )


def test_of_a_drain_only_who_nobody_can_be_started_for_has_no_room_elsewhere() -> None:
    d = Deployment.running(4, nodes=("n0", "n1"), max_unavailable=1)
    d.drain("n0")
    d.place("llm#1.4", "n1")
    assert waits(d) == "rank 0 (llm#1.0) has been draining for 0 s", "rank 2 comes after it"


def test_a_failure_and_a_drain_do_not_hide_each_other() -> None:
    d = on_bundles(start_backoff_s=8.0, max_start_failures=9)
    d.drain("n0")
    elsewhere = "no room elsewhere for what is to be replaced: rank 0 has no successor"
    assert waits(d) == elsewhere
    d.die("llm#1.1")
    d.start_fails("llm#1.2")
    assert waits(d) == f"rank 1 rests after 2 failures, next start in 16 s; {elsewhere}"


def test_a_successor_that_fails_to_start_on_another_node_is_said_to_rest() -> None:
    d = Deployment.running(4, nodes=("n0", "n1"), start_backoff_s=8.0, max_start_failures=9, surge_patience_s=1.0)
    d.drain("n0")
    d.start_fails("llm#1.4")
    assert waits(d) == "rank 0 rests after 1 failure, next start in 8 s"
    d.pending("llm#1.5")
    assert waits(d) == (
        "no room yet for what is started early: rank 2 has a successor without a place; "
        "rank 0 rests after 1 failure, next start in 8 s"
    )


def test_what_was_given_up_has_no_next_start() -> None:
    d = Deployment.running(2, max_start_failures=1, max_unavailable=1)
    d.change(version="2")
    d.stopped("llm#1.0")
    d.place("llm#1.2")
    d.start_fails("llm#1.2")
    assert waits(d) == "not available: rank 0 requested for 0 s", "what was healthy last has started at once"
    d = Deployment(2, max_start_failures=1)
    d.start_fails("llm#1.0")
    assert waits(d) == "rank 0 is not started again after 1 failure"


def test_a_vacant_rank_without_a_failure_is_told_to_be_one() -> None:
    d = on_bundles()
    d.die("llm#1.1")
    d.restart(found=["llm#1.0"])
    d.lose_bundles(1, at=1.0)
    d.report("llm#1.0")
    assert waits(d) == "not available: rank 1 vacant"
    d.delete()
    d.stopped("llm#1.0")
    assert waits(d) == ""


def about_to_be_healthy(**spec: object) -> Deployment:
    """All run version 2, on n0 and n1, and wait for min_ready_s; then n1 is drained, and there is no other place."""
    d = Deployment.running(2, nodes=("n0", "n1"), min_ready_s=5.0, progress_deadline_s=20.0, max_unavailable=1, max_surge=1)
    d.wait(10.0)
    d.change(version="2", max_surge=0)
    for old, new, node_id in (("llm#1.0", "llm#1.2", "n0"), ("llm#1.1", "llm#1.3", "n1")):
        d.stopped(old)
        d.place(new, node_id)
        d.ready(new)
        d.wait(4.0)
        assert d.status == "UPDATING"
        if new == "llm#1.2":
            d.wait(1.0)
    d.change(max_surge=1, **spec)
    d.drain("n1")
    d.wait(1.0)
    assert d.status == "UPDATING"
    return d


def test_a_drain_that_alone_keeps_a_deployment_updating_is_said_and_is_no_update() -> None:
    """V9: nothing is rolled, so nothing is stalled, however long there is no other place."""
    d = about_to_be_healthy()
    assert str(progress_of(d.state)) == (
        "2 of 2 available, draining n1: 1 to be replaced elsewhere, "
        "waits: rank 1 (llm#1.4) was asked for 1 s ago, and is not up yet"
    )
    d.wait(100.0)
    assert said(d) == "2 of 2 available"
    assert "no room yet for what is started early: rank 1 has a successor without a place" in waits(d)
    assert d.state.stalled_since is None


def test_nor_is_it_an_update_while_the_one_who_comes_takes_requests_already() -> None:
    d = about_to_be_healthy(hand_over="overlap", min_ready_s=50.0)
    d.wait(60.0)
    d.place("llm#1.4", "n0")
    d.prepared("llm#1.4")
    d.wait(40.0)
    assert str(progress_of(d.state)) == (
        "2 of 2 available, draining n1: 1 to be replaced elsewhere, waits: rank 1 (llm#1.4) has been up for 40 of 50 s"
    )
    assert (d.status, d.state.stalled_since, d.state.tables.progress_at) == ("UPDATING", None, None)
    d.wait(10.0)
    d.settle()
    assert (d.status, d.serving) == ("HEALTHY", 2)


def test_those_who_are_replaced_by_name_leave_no_node() -> None:
    d = Deployment.running(2)
    d.replace("llm#1.1")
    assert "2 of 2 available, 1 to be replaced elsewhere" in str(progress_of(d.state))
