"""Applications: applied as a whole, told apart by name, each of them only itself."""

from typing import Any

import pytest
from msgspec.structs import replace

from rankcore import DeploymentSpec
from rankcore.autoscaling import AutoscalingSpec
from rankcore.cluster import ApplicationSpec, EntrySpec, cluster_step
from rankcore.cluster.commands import CarryOut
from rankcore.cluster.events import ApplyRequested, ChangeRequested, DeletionRequested, ScaleRequested
from rankcore.cluster.names import deployment_id
from rankcore.commands import StopReplica
from rankcore.errors import InvalidEventError, InvalidSpecError, UnknownDeploymentError
from rankcore.events import ReplicaDied, ReplicasLeave, StopRequested
from rankcore.routing.spec import RoutingSpec
from tests.clusters import Cluster, application, entry


def test_what_ranks_say_of_themselves_does_not_hide_what_went_wrong() -> None:
    cluster = Cluster()
    cluster.apply(application(entry("a/model")))
    troubled = replace(cluster.state.deployments["a/model"], trouble="its record cannot be stored")
    assert troubled.message() == "its record cannot be stored"
    assert troubled.message("a roll-out waits") == "a roll-out waits; its record cannot be stored"


def test_one_class_in_two_applications_is_two_deployments() -> None:
    cluster = Cluster()
    cluster.apply(application(entry("a/model", 2)), application(entry("b/model", 1)))
    other = cluster.state.deployments["b/model"]
    cluster.tell(ScaleRequested(deployment="a/model", target_replicas=1, at=1.0))
    cluster.tell(DeletionRequested(applications=("a",), at=2.0))
    assert set(cluster.state.deployments) == {"b/model"}
    assert cluster.state.deployments["b/model"] is other
    assert set(cluster.processes) == {"b/model#1.0"}


def test_the_same_again_commands_nothing() -> None:
    cluster = Cluster()
    wanted = application(entry("a/x", 2), entry("a/y", 1), prefix="/a")
    cluster.apply(wanted)
    done = len(cluster.done)
    cluster.apply(wanted)
    assert cluster.done[done:] == []


def test_the_same_again_leaves_a_target_that_was_written_since() -> None:
    cluster = Cluster()
    cluster.apply(application(entry("a/d", 2)))
    cluster.tell(ReplicasLeave(replica_ids=("a/d#1.0",), at=1.0))
    cluster.apply(application(entry("a/d", 2)))
    assert cluster.target("a/d") == 1
    cluster.apply(application(entry("a/d", 2, version="2")))
    assert cluster.target("a/d") == 1, "another version is no other wish for replicas"
    assert cluster.state.deployments["a/d"].ranks.spec.version == "2"
    cluster.apply(application(entry("a/d", 3, version="2")))
    assert cluster.target("a/d") == 3


def test_the_same_again_restarts_nothing_once_more() -> None:
    """V10: what is applied without a token keeps the one that there is, and with another one it is restarted."""
    cluster = Cluster()
    cluster.apply(application(entry("a/d", 2)))
    ranks = cluster.state.deployments["a/d"].spec.ranks
    restarted = entry("a/d", 2, restart_token="monday")
    cluster.tell(ChangeRequested(spec=restarted, at=1.0))
    done = len(cluster.done)
    cluster.apply(application(entry("a/d", 2)))
    assert cluster.done[done:] == []
    cluster.apply(application(entry("a/d", 2, version="2")))
    assert cluster.state.deployments["a/d"].ranks.spec.generation == ("2", "monday")
    cluster.apply(application(entry("a/d", 2, version="2", restart_token="tuesday")))
    assert cluster.state.deployments["a/d"].ranks.spec.generation == ("2", "tuesday")
    assert ranks.restart_token == ""


def test_what_an_application_has_no_more_is_deleted_and_the_rest_stays() -> None:
    cluster = Cluster()
    cluster.apply(application(entry("a/x"), entry("a/y")))
    kept = set(cluster.processes) - {"a/y#1.0"}
    cluster.apply(application(entry("a/x")))
    assert set(cluster.processes) == kept
    assert cluster.state.applications["a"].deployments == ("a/x",)


def test_applications_that_are_not_named_stay_unless_they_are_pruned() -> None:
    cluster = Cluster()
    cluster.apply(application(entry("a/d"), prefix="/"), application(entry("b/d")))
    cluster.apply(application(entry("b/d")))
    assert set(cluster.state.applications) == {"a", "b"}
    cluster.apply(application(entry("b/d"), prefix="/"), prune=True)
    assert set(cluster.state.applications) == {"b"}
    assert cluster.state.applications["b"].route_prefix == "/"


def test_two_applications_on_one_prefix_are_refused_and_nothing_changes() -> None:
    cluster = Cluster()
    cluster.apply(application(entry("a/d"), prefix="/x"))
    before = cluster.state
    for wanted in ((entry("b/d"),), (entry("b/d"), entry("c/d"))):
        specs = tuple(application(each, prefix="/x" if len(wanted) == 1 else "/y") for each in wanted)
        with pytest.raises(InvalidSpecError, match=r"route_prefix must be one that application '[ab]' does not have"):
            cluster.apply(*specs)
    with pytest.raises(InvalidSpecError, match="a name that occurs once"):
        cluster.apply(application(entry("b/d")), application(entry("b/e")))
    assert cluster.state is before


def test_the_prefix_of_what_is_being_deleted_is_free() -> None:
    cluster = Cluster()
    cluster.apply(application(entry("a/d"), entry("a/e"), prefix="/x"))
    cluster.step(DeletionRequested(deployments=("a/e", "a/d"), at=1.0))
    cluster.step(ApplyRequested(applications=(application(entry("b/d"), prefix="/x"),), at=1.0))
    assert cluster.state.applications["a"].route_prefix is None
    cluster.settle()
    assert set(cluster.state.applications) == {"b"}


def test_a_route_prefix_alone_can_change() -> None:
    cluster = Cluster()
    cluster.apply(application(entry("a/d"), prefix="/x"))
    before = cluster.state.deployments["a/d"].ranks
    cluster.apply(application(entry("a/d"), prefix="/y"))
    assert cluster.state.applications["a"].route_prefix == "/y"
    assert cluster.state.deployments["a/d"].ranks is before
    cluster.restart()
    assert cluster.state.applications["a"].route_prefix == "/y"
    assert cluster.state.applications["a"].ingress == "a/d"


def test_what_is_being_deleted_cannot_be_changed_and_is_deleted_once() -> None:
    cluster = Cluster()
    cluster.apply(application(entry("a/d")))
    cluster.step(DeletionRequested(applications=("a",), at=1.0))
    for event in (
        ApplyRequested(applications=(application(entry("a/d", 2)),), at=1.0),
        ScaleRequested(deployment="a/d", target_replicas=2, at=1.0),
    ):
        with pytest.raises(InvalidEventError, match="not being deleted"):
            cluster.step(event)
    step = cluster.step(DeletionRequested(applications=("a",), at=1.0))
    assert step.commands == ()
    cluster.settle()
    assert dict(cluster.state.applications) == {}


def test_a_name_that_is_used_again_gets_replicas_and_revisions_of_its_own() -> None:
    cluster = Cluster()
    cluster.apply(application(entry("a/d", 2)))
    newest = max(each.command.revision for each in cluster.done if hasattr(getattr(each, "command", None), "revision"))
    cluster.tell(DeletionRequested(applications=("a",), at=1.0))
    done = len(cluster.done)
    cluster.apply(application(entry("a/d", 1)))
    assert set(cluster.processes) == {"a/d#1.2"}
    assert all(
        each.command.revision > newest for each in cluster.done[done:] if hasattr(getattr(each, "command", None), "revision")
    )


def test_a_change_of_one_deployment_leaves_all_else_of_its_application_as_it_is() -> None:
    cluster = Cluster()
    cluster.apply(application(entry("a/x", 2), entry("a/y"), prefix="/a"))
    application_before, other = cluster.state.applications["a"], cluster.state.deployments["a/y"]
    cluster.tell(ChangeRequested(spec=entry("a/x", 2, version="2"), at=1.0))
    assert cluster.state.deployments["a/x"].ranks.spec.version == "2"
    assert (cluster.state.applications["a"], cluster.state.deployments["a/y"]) == (application_before, other)
    assert cluster.state.deployments["a/x"].outbox.record.applied == entry("a/x", 2, version="2")
    with pytest.raises(UnknownDeploymentError, match="a/z"):
        cluster.tell(ChangeRequested(spec=entry("a/z"), at=2.0))
    with pytest.raises(InvalidEventError, match="an EntrySpec"):
        ChangeRequested(spec=DeploymentSpec(name="a/x", target_replicas=1), at=2.0)  # type: ignore[arg-type]
    cluster.tell(DeletionRequested(deployments=("a/y",), at=3.0))
    cluster.tell(ChangeRequested(spec=entry("a/x", 3, version="2"), at=4.0))
    assert (cluster.target("a/x"), cluster.state.applications["a"].route_prefix) == (3, "/a")


def test_a_scale_names_whom_to_stop_first() -> None:
    cluster = Cluster()
    cluster.apply(application(entry("a/d", 3)))
    cluster.tell(ScaleRequested(deployment="a/d", target_replicas=2, stop_first=("a/d#1.0",), at=1.0))
    assert set(cluster.processes) == {"a/d#1.1", "a/d#1.2"}
    done = len(cluster.done)
    cluster.tell(ScaleRequested(deployment="a/d", target_replicas=2, at=1.0))
    assert cluster.done[done:] == []


def test_replicas_are_stopped_by_name_in_several_deployments() -> None:
    cluster = Cluster()
    cluster.apply(application(entry("a/d", 2)), application(entry("b/d", 2)))
    cluster.tell(StopRequested(replica_ids=("a/d#1.1", "b/d#1.0"), at=1.0))
    assert {"a/d#1.1", "b/d#1.0"}.isdisjoint(cluster.processes)
    assert cluster.ranks("a/d") == cluster.ranks("b/d") == [0, 1]


def test_requests_about_what_there_is_not_say_what_there_is() -> None:
    cluster = Cluster()
    with pytest.raises(UnknownDeploymentError, match="there is nothing"):
        cluster.step(DeletionRequested(applications=("a",), at=1.0))
    cluster.apply(application(entry("a/d")), application(entry("b/d")))
    with pytest.raises(UnknownDeploymentError, match="one of a, b"):
        cluster.step(DeletionRequested(applications=("c",), at=1.0))
    with pytest.raises(UnknownDeploymentError, match="one of a/d, b/d"):
        cluster.step(ScaleRequested(deployment="d", target_replicas=1, at=1.0))
    with pytest.raises(UnknownDeploymentError, match="one of a/d, b/d"):
        cluster.step(StopRequested(replica_ids=("c/d#1.0",), at=1.0))
    with pytest.raises(UnknownDeploymentError, match="an id of deployment 'a/d'"):
        cluster.step(ScaleRequested(deployment="a/d", target_replicas=1, stop_first=("b/d#1.0",), at=1.0))
    assert cluster.state.find("a/d") == ("a/d",)


def test_nobody_has_more_replicas_than_one_controller_can_start() -> None:
    """A zero too many once ended one controller after the other, each of which found it stored."""
    cluster = Cluster()
    cluster.apply(application(entry("a/d")))
    many = 100_001
    with pytest.raises(InvalidSpecError, match="target_replicas must be an integer from 0 to 100000"):
        cluster.step(ScaleRequested(deployment="a/d", target_replicas=many, at=1.0))
    with pytest.raises(InvalidSpecError, match="target_replicas must be an integer from 0 to 100000"):
        entry("a/d", many)
    with pytest.raises(InvalidSpecError, match="max_replicas must be an integer from 1 to 100000"):
        entry("a/d", 1, autoscaling=AutoscalingSpec(max_replicas=many))
    assert cluster.target("a/d") == 1


def test_an_autoscaled_deployment_is_not_scaled_by_hand() -> None:
    cluster = Cluster()
    cluster.apply(application(entry("a/d", 1, autoscaling=AutoscalingSpec(min_replicas=2, max_replicas=4))))
    assert cluster.target("a/d") == 2
    with pytest.raises(InvalidEventError, match="left to the autoscaler"):
        cluster.step(ScaleRequested(deployment="a/d", target_replicas=3, at=1.0))
    cluster.apply(application(entry("a/d", 1, autoscaling=AutoscalingSpec(min_replicas=3, max_replicas=4))))
    assert cluster.target("a/d") == 3
    cluster.apply(application(entry("a/d", 1)))
    assert cluster.target("a/d") == 1
    assert cluster.state.deployments["a/d"].scaler is None


def test_a_death_is_one_deployments_business() -> None:
    cluster = Cluster()
    cluster.apply(application(entry("a/d", 2)), application(entry("b/d", 1)))
    del cluster.processes["a/d#1.0"]
    before = cluster.state
    step = cluster_step(before, ReplicaDied(replica_id="a/d#1.0", at=1.0))
    assert step.state.deployments["b/d"] is before.deployments["b/d"]
    assert {each.deployment for each in step.commands if isinstance(each, CarryOut)} == {"a/d"}


@pytest.mark.parametrize("name", ["", "a/b", "a#b", "a@b", " a", 3])
def test_names_are_free_of_what_separates_the_parts_of_ids(name: Any) -> None:
    with pytest.raises(InvalidSpecError):
        deployment_id(name, "d")
    with pytest.raises(InvalidSpecError):
        deployment_id("a", name)
    with pytest.raises(InvalidSpecError):
        ApplicationSpec(name=name, deployments=(entry("a/d"),))


def test_an_id_is_made_of_two_names() -> None:
    assert deployment_id("a", "d") == "a/d"


def _spec(**fields: Any) -> EntrySpec:
    return EntrySpec(**{"ranks": DeploymentSpec(name="a/d", target_replicas=1), **fields})


NO_PATHS = ("/x?y", "/x#y", "/x//y", "/{x}", "//")


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: _spec(ranks="x"), "EntrySpec.ranks"),
        (lambda: _spec(ranks=DeploymentSpec(name="d", target_replicas=1)), "EntrySpec.ranks.name"),
        (lambda: _spec(ranks=DeploymentSpec(name="a/b/c", target_replicas=1)), "EntrySpec.ranks.name"),
        (lambda: _spec(ranks=DeploymentSpec(name="a@b/c", target_replicas=1)), "EntrySpec.ranks.name"),
        (lambda: _spec(autoscaling=3), "EntrySpec.autoscaling"),
        (lambda: _spec(policy=""), "EntrySpec.policy"),
        (lambda: _spec(routing=3), "EntrySpec.routing"),
        (lambda: _spec(demand=3), "EntrySpec.demand"),
        (lambda: _spec(demand={"": 1}), "EntrySpec.demand"),
        (lambda: _spec(demand={"CPU": -1}), "EntrySpec.demand"),
        (lambda: _spec(extras={1: 2}), "EntrySpec.extras"),
        (lambda: ApplicationSpec(name="a", deployments=()), "ApplicationSpec.deployments"),
        (lambda: ApplicationSpec(name="a", deployments=(3,)), "ApplicationSpec.deployments"),  # type: ignore[arg-type]
        (lambda: ApplicationSpec(name="b", deployments=(_spec(),)), "ApplicationSpec.deployments"),
        (lambda: ApplicationSpec(name="a", deployments=(_spec(), _spec())), "ApplicationSpec.deployments"),
        (lambda: ApplicationSpec(name="a", deployments=(_spec(),), ingress="a/e"), "ApplicationSpec.ingress"),
        (lambda: ApplicationSpec(name="a", deployments=(_spec(),), route_prefix="/"), "ApplicationSpec.ingress"),
        (lambda: application(_spec(), prefix="x"), "ApplicationSpec.route_prefix"),
        (lambda: application(_spec(), prefix="/x/"), "ApplicationSpec.route_prefix"),
        (lambda: application(_spec(), prefix=""), "ApplicationSpec.route_prefix"),
        *((lambda x=x: application(_spec(), prefix=x), "ApplicationSpec.route_prefix") for x in NO_PATHS),
    ],
)
def test_a_spec_that_cannot_be_names_its_field(make: Any, field: str) -> None:
    with pytest.raises(InvalidSpecError) as caught:
        make()
    assert caught.value.field.startswith(field)


def test_what_an_executor_needs_rides_along() -> None:
    routing = RoutingSpec(name="a/d")
    spec = _spec(extras={"code": [1]}, routing=routing, demand={"GPU": 1})
    cluster = Cluster()
    cluster.apply(ApplicationSpec(name="a", deployments=[spec]))  # type: ignore[arg-type]
    cluster.restart()
    assert cluster.state.deployments["a/d"].spec == spec
    assert cluster.state.deployments["a/d"].spec.extras == {"code": (1,)}


def test_routes_go_before_the_replicas_they_lead_to() -> None:
    cluster = Cluster()
    cluster.apply(application(entry("a/d", 2)))
    done = len(cluster.done)
    cluster.tell(ScaleRequested(deployment="a/d", target_replicas=1, at=1.0))
    kinds = [type(each.command).__name__ for each in cluster.done[done:] if isinstance(each, CarryOut)]
    assert kinds.index("PublishRoutes") < kinds.index(StopReplica.__name__)


def test_extras_that_are_nested_too_deeply_are_refused_as_any_other() -> None:
    nested: Any = None
    for _ in range(5_000):
        nested = [nested]
    with pytest.raises(InvalidSpecError, match=r"EntrySpec.extras must be nested less deeply"):
        entry("a/d", extras=nested)
