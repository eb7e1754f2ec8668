"""PublishRoutes (section 2.5): which replicas take requests. The scripted world refuses contradictions."""

from rankcore.commands import PublishRoutes
from tests.scripted import Deployment


def test_a_replica_is_routed_to_from_the_step_in_which_it_is_ready() -> None:
    d = Deployment(2)
    d.place("llm#1.0")
    assert d.routes == set()
    step = d.ready("llm#1.0")
    assert [(r.added, r.removed) for r in step.commands if isinstance(r, PublishRoutes)] == [(("llm#1.0",), ())]


def test_a_replica_is_routed_to_until_the_step_in_which_it_is_told_to_stop() -> None:
    d = Deployment.running(2)
    step = d.resize(1)
    assert [(r.added, r.removed) for r in step.commands if isinstance(r, PublishRoutes)] == [((), ("llm#1.1",))]


def test_a_dead_replica_is_routed_to_no_longer() -> None:
    d = Deployment.running(2)
    d.die("llm#1.0")
    assert d.routes == {"llm#1.1"}


def test_a_replica_that_is_reconfigured_keeps_its_requests() -> None:
    d = Deployment.running(3)
    d.forget()
    d.change(user_config={"a": 1})
    d.settle()
    d.resize(2, stop_first=["llm#1.0"])
    d.forget()
    d.settle()
    assert d.sent(PublishRoutes) == []
    assert d.routes == {"llm#1.1", "llm#1.2"}


def test_routes_are_published_only_when_they_change() -> None:
    d = Deployment.running(2)
    d.forget()
    d.wait(100.0)
    d.resize(3)
    assert d.sent(PublishRoutes) == []


def test_changes_of_one_step_are_one_publication_in_order_of_age() -> None:
    d = Deployment.running(12, nodes="ab")
    step = d.lose("a", at=1.0)
    (published,) = [command for command in step.commands if isinstance(command, PublishRoutes)]
    assert published.removed == ("llm#1.0", "llm#1.2", "llm#1.4", "llm#1.6", "llm#1.8", "llm#1.10")


def test_the_first_publication_of_a_controller_lists_all_that_run() -> None:
    d = Deployment.running(3)
    d.stop_by_name("llm#1.1")
    d.restart()
    for replica_id in ("llm#1.0", "llm#1.1", "llm#1.2"):
        d.report(replica_id)
    (published,) = [routes for routes in d.sent(PublishRoutes) if routes.epoch == 2]
    assert published.added == ("llm#1.0", "llm#1.2")
    assert d.routes == {"llm#1.0", "llm#1.2"}


def test_routes_follow_what_runs_through_an_update() -> None:
    d = Deployment.running(4, max_unavailable=2)
    d.change(version="2")
    while d.outstanding:
        d.answer(min(d.outstanding))
        assert len(d.routes) == d.serving
    assert d.routes == set(d.ranks)


def test_nothing_is_routed_to_once_the_deployment_is_deleted() -> None:
    d = Deployment.running(3)
    d.delete()
    assert d.routes == set()
