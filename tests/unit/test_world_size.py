"""R9: the world size equals the target at all times, and replicas learn of a change without delay."""

from rankcore import DeploymentStatus
from rankcore.commands import AnnounceWorldSize, InitializeReplica, ReconfigureReplica
from tests.scripted import Deployment


def test_world_size_is_the_target_at_all_times() -> None:
    """R9: changed the moment the target is, whatever runs."""
    d = Deployment(3)
    assert d.state.world_size == 3
    for target in (7, 2, 0, 5):
        d.resize(target)
        assert d.state.world_size == target
    d.settle()
    assert d.state.world_size == len(d.ranks) == 5


def test_a_new_target_is_announced_in_the_same_step() -> None:
    """R9: replicas learn of it without delay."""
    d = Deployment.running(2)
    step = d.resize(4)
    assert [said.world_size for said in step.commands if isinstance(said, AnnounceWorldSize)] == [4]


def test_a_deployment_and_a_recovery_begin_with_the_announcement() -> None:
    """Section 2.4: recover announces too."""
    assert [said.world_size for said in Deployment(2).sent(AnnounceWorldSize)] == [2]
    d = Deployment.recovered(3, {"llm#1.0": (0, 0, 0)})
    assert [said.world_size for said in d.sent(AnnounceWorldSize)] == [3]


def test_a_new_target_is_announced_while_reports_are_outstanding() -> None:
    """R9, section 2.4: announcements go on."""
    d = Deployment.recovered(3, {"llm#1.0": (0, 0, 0)})
    d.forget()
    d.resize(5)
    assert [said.world_size for said in d.sent(AnnounceWorldSize)] == [5]


def test_nothing_is_announced_where_the_target_stays() -> None:
    """R9."""
    d = Deployment.running(2)
    d.forget()
    d.change(version="2")
    d.settle()
    assert d.sent(AnnounceWorldSize) == []


def test_messages_to_replicas_carry_the_world_size_of_the_moment() -> None:
    """R9, section 2.1."""
    d = Deployment(2)
    d.resize(3)
    d.place("llm#1.0")
    assert d.sent(InitializeReplica)[-1].world_size == 3
    d.settle()
    d.resize(2, stop_first=["llm#1.0"])
    d.settle()
    assert d.sent(ReconfigureReplica)[-1].world_size == 2


def test_announcements_and_messages_share_one_revision_counter() -> None:
    """Section 2.4: so that a replica keeps the newest world size in whatever order they reach it."""
    d = Deployment(2)
    d.resize(3)
    d.settle()
    d.resize(2, stop_first=["llm#1.0"])
    d.settle()
    d.resize(4)
    kinds = (AnnounceWorldSize, InitializeReplica, ReconfigureReplica)
    revisions = [said.revision for said in d.commands if isinstance(said, kinds)]
    assert len(revisions) == 3 + 1 + 3 + 1  # three targets and the first, three starts, one move
    assert revisions == sorted(set(revisions))


def test_a_message_repeated_after_an_upscale_is_older_than_the_announcement() -> None:
    """R9: it says the old world size again, identical to the first time, and the higher revision stands."""
    d = Deployment(1)
    d.place("llm#1.0")
    d.resize(2)
    d.wait(6.0)
    first, again = d.sent(InitializeReplica, "llm#1.0")
    assert first == again
    assert again.world_size == 1
    assert again.revision < d.sent(AnnounceWorldSize)[-1].revision


def test_a_later_controller_announces_with_a_higher_revision() -> None:
    """R9: a replica keeps the one with the highest (epoch, revision)."""
    d = Deployment.running(2)
    for target in (3, 4, 5):
        d.resize(target)
    before = d.sent(AnnounceWorldSize)[-1]
    d.restart()
    after = d.sent(AnnounceWorldSize)[-1]
    assert (after.epoch, after.revision) > (before.epoch, before.revision)
    assert after.revision > before.revision


def test_a_deployment_scaled_to_nothing_is_healthy_with_a_world_size_of_zero() -> None:
    """R1, R9."""
    d = Deployment.running(2)
    d.resize(0)
    assert d.state.world_size == 0
    d.settle()
    assert d.status is DeploymentStatus.HEALTHY
    assert d.ranks == {}
