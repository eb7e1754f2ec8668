"""A refusal carries the argument that it is about, as `field`, also from one process to another."""

import pickle

import pytest

from executors import operations
from executors.ray_gpu import changing
from executors.ray_gpu.declaration import option_of
from executors.ray_gpu.errors import MissingExtraError, RayExecutorError, refused
from rankcore.autoscaling import AutoscalingSpec
from rankcore.cluster.events import ScaleRequested
from rankcore.errors import InvalidEventError, InvalidSpecError
from rankcore.spec import DeploymentSpec
from tests.clusters import Cluster, application, entry


def running(**options):
    cluster = Cluster()
    cluster.join(8)
    cluster.apply(application(entry("a/x", 2, **options)))
    return cluster


def an_entry(**options):
    return running(**options).state.deployments["a/x"]


def of_another_deployment():
    first = ("a/x#1.0", "b#1")
    try:
        running().tell(ScaleRequested(deployment="a/x", target_replicas=1, stop_first=first, at=0.0))
    except InvalidEventError as error:
        raise refused(error) from None


def of_a_spec():
    try:
        DeploymentSpec(name="x", target_replicas=-1)
    except InvalidSpecError as error:
        raise option_of(error) from None


REFUSED = [
    ("replicas", lambda: operations.checked_reach("half")),
    ("ranks", lambda: operations.checked_ranks([-1])),
    ("ranks", lambda: operations.retried(an_entry(), (7,), 0.0)),
    ("ranks", lambda: operations.retried(an_entry(), (0, 1), 0.0)),
    (None, lambda: operations.retried(an_entry(), (), 0.0)),
    ("replica_ids", lambda: operations.checked_ids("stop_replicas", "a/x#1.0")),
    ("replica_ids[1]", lambda: operations.replicas_meant(["a/x#1.0", "a/x#9.9"], {"a/x#1.0": "a/x#1.0"})),
    ("replica_ids[0]", lambda: operations.replicas_meant(["x#1"], {"a/x#1": "a/x#1", "b/x#1": "b/x#1"})),
    ("deadline_s", lambda: operations.checked_deadline(-1)),
    ("reason", lambda: operations.checked_reason(1)),
    ("num_replicas", lambda: operations.changed(an_entry(autoscaling=AutoscalingSpec()), {"target_replicas": 1}, 0.0)),
    ("keep", lambda: changing.evict("a/x", keep="HOT")),
    ("namespace", lambda: changing.update_options("a/x", {"namespace": "x"})),
    ("ScaleRequested.stop_first[1]", of_another_deployment),
    ("num_replicas", of_a_spec),
]


@pytest.mark.parametrize(("field", "ask"), REFUSED)
def test_a_refusal_says_which_argument_it_is_about(field, ask):
    with pytest.raises(RayExecutorError) as found:
        ask()
    sent = pickle.loads(pickle.dumps(found.value))
    assert (sent.field, str(sent)) == (field, str(found.value))


def test_a_package_that_is_missing_keeps_its_name_on_the_way():
    sent = pickle.loads(pickle.dumps(MissingExtraError("grpc is not installed", name="grpc")))
    assert (sent.name, sent.field, str(sent)) == ("grpc", None, "grpc is not installed")
