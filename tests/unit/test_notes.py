"""Notes carry cause and effect: what an operator asks about a replica is answered from the notes alone."""

from rankcore import Note, NoteKind, ReplicaRank
from tests.scripted import Deployment


def about(d: Deployment, replica_id: str) -> list[Note]:
    return [note for note in d.notes if note.replica_id == replica_id]


def test_why_did_a_replica_move_from_rank_3_to_rank_1() -> None:
    """Because ranks 1 was released by a downscale's victim, and R8 closes the gap."""
    d = Deployment.running(4)
    d.forget()
    d.resize(3, stop_first=["llm#1.1"])
    d.settle()
    (moved,) = [note for note in d.notes if note.kind is NoteKind.RANK_MOVED]
    assert (moved.replica_id, moved.rule) == ("llm#1.3", "R8")
    assert (moved.before, moved.after) == (ReplicaRank(3, 0, 3), ReplicaRank(1, 0, 1))
    assert "rank 3 is beyond the world size 3, and 1 is free" in moved.because
    kinds = [note.kind for note in d.notes]
    cause = [NoteKind.WORLD_SIZE_CHANGED, NoteKind.STOP_CHOSEN, NoteKind.RANK_RELEASED, NoteKind.RANK_MOVED]
    assert [kind for kind in kinds if kind in cause] == cause
    assert "target 4 -> 3" in d.noted(NoteKind.WORLD_SIZE_CHANGED)[0].because
    assert d.noted(NoteKind.RANK_RELEASED)[0].rank == 1
    assert d.noted(NoteKind.MOVE_ACKNOWLEDGED, "llm#1.3")[0].after == moved.after


def test_why_does_a_replacement_have_rank_1() -> None:
    """Because it inherited the slot of the replica that crashed."""
    d = Deployment.running(3)
    d.forget()
    d.die("llm#1.1", "exit code 137")
    d.settle()
    (lost,) = d.noted(NoteKind.REPLICA_LOST)
    assert (lost.replica_id, lost.rank, lost.before) == ("llm#1.1", 1, ReplicaRank(1, 0, 1))
    assert "exit code 137" in lost.because
    assert [(note.kind, note.rank) for note in about(d, "llm#1.1")][1:] == [(NoteKind.RANK_KEPT, 1)]
    assert [note.kind for note in about(d, "llm#1.3")] == [
        NoteKind.RANK_INHERITED,
        NoteKind.RANK_GIVEN,
        NoteKind.REPLICA_RUNNING,
    ]
    assert d.noted(NoteKind.RANK_GIVEN)[0].after == ReplicaRank(1, 0, 1)


def test_why_was_this_replica_stopped() -> None:
    d = Deployment.running(3, victims="newest")
    d.resize(2)
    assert d.noted(NoteKind.STOP_CHOSEN)[0].because == "chosen by the policy 'newest'"
    d.stop_by_name("llm#1.0")
    assert "by name" in d.noted(NoteKind.STOP_CHOSEN, "llm#1.0")[0].because
    d.unhealthy("llm#1.1", "no heartbeat")
    assert "no heartbeat" in d.noted(NoteKind.KILL_CHOSEN, "llm#1.1")[0].because


def test_why_did_the_deployment_change_its_status() -> None:
    d = Deployment.running(1)
    d.die("llm#1.0")
    d.settle()
    statuses = [note.because.partition(":")[0] for note in d.noted(NoteKind.STATUS_CHANGED)]
    assert statuses == ["UPDATING -> HEALTHY", "HEALTHY -> UNHEALTHY", "UNHEALTHY -> HEALTHY"]


def test_what_did_the_user_change() -> None:
    d = Deployment.running(2)
    d.change(version="2", max_surge=1)
    because = d.noted(NoteKind.SPEC_APPLIED)[-1].because
    assert "version" in because
    assert "max_surge" in because
    assert "target_replicas" not in because


def test_a_change_of_the_user_config_is_named_as_such() -> None:
    d = Deployment.running(1)
    d.change(user_config={"a": 1})
    assert "user_config" in d.noted(NoteKind.SPEC_APPLIED)[-1].because


def test_why_does_a_newcomer_wait_although_there_are_too_few() -> None:
    """R4: a draining replica keeps its rank, and the note says for which one."""
    d = Deployment.running(2)
    d.resize(1)
    d.forget()
    d.resize(2)
    assert len(d.noted(NoteKind.WAITING)) == 1


def test_a_repair_after_a_recovery_names_both_claimants() -> None:
    d = Deployment.recovered(2, {"llm#1.0": (0, 0, 0), "llm#1.1": (0, 0, 1)})
    d.settle()
    (found,) = d.noted(NoteKind.DUPLICATE_FOUND)
    assert (found.replica_id, found.rank) == ("llm#1.1", 0)
    assert "llm#1.0" in found.because
    (moved,) = d.noted(NoteKind.RANK_MOVED)
    assert (moved.rule, moved.before, moved.after) == ("R10", ReplicaRank(0, 0, 1), ReplicaRank(1, 0, 1))


def test_every_rank_that_changes_hands_leaves_a_note_in_the_same_step() -> None:
    """For all events of a long run: what the book says about a rank never changes in silence."""
    d = Deployment(4, nodes="ab", max_unavailable=1)
    telling = {NoteKind.RANK_GIVEN, NoteKind.RANK_MOVED, NoteKind.MOVE_ACKNOWLEDGED, NoteKind.REPORT_ADOPTED}
    leaving = {NoteKind.REPLICA_LOST, NoteKind.RANK_RELEASED, NoteKind.RANK_KEPT, NoteKind.RANK_INHERITED}

    def watch(run: object) -> None:
        before, marked = dict(d.state.ranks), len(d.notes)
        run()
        noted = {note.replica_id for note in d.notes[marked:] if note.kind in telling | leaving}
        after = dict(d.state.ranks)
        changed = {each for each in before.keys() | after.keys() if before.get(each) != after.get(each)}
        assert changed <= noted, changed - noted

    def settle() -> None:
        while d.outstanding:
            watch(lambda: d.answer(min(d.outstanding)))

    settle()
    for run in (
        lambda: d.die("llm#1.0"),
        lambda: d.resize(6),
        lambda: d.resize(3, stop_first=["llm#1.1"]),
        lambda: d.lose("a", at=1.0),
        lambda: d.change(version="2"),
    ):
        watch(run)
        settle()
    assert len(d.ranks) == 3


def test_every_note_names_its_rule() -> None:
    d = Deployment.running(3, nodes="ab")
    d.die("llm#1.0")
    d.resize(2)
    d.change(version="2")
    d.settle()
    d.restart()
    d.settle()
    d.delete()
    d.settle()
    rules = {f"R{number}" for number in range(1, 13)} | {"2", "2.2", "2.3", "2.4", "2.5"}
    assert {note.rule for note in d.notes} <= rules
    assert all(isinstance(note.because, str) for note in d.notes)
