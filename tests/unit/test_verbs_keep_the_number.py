"""A number of replicas that was set by hand outlasts the same file, whatever else is changed by hand beside it."""

import pytest

from executors import operations
from tests.clusters import Cluster, application, entry

FILE = application(entry("a/x", 3))


def asked(cluster, **fields):
    for event in operations.changed(cluster.state.deployments["a/x"], fields, cluster.now):
        cluster.tell(event)


def deployed_and_scaled(replicas):
    cluster = Cluster()
    cluster.join(8)
    cluster.apply(FILE)
    asked(cluster, target_replicas=replicas)
    assert len(cluster.ranks("a/x")) == replicas
    return cluster


@pytest.mark.parametrize("fields", [operations.restarted("once"), operations.resumed(), {"min_ready_s": 1.0}])
def test_the_same_file_leaves_the_number_that_was_scaled_to_also_after_another_verb(fields):
    cluster = deployed_and_scaled(5)
    asked(cluster, **fields)
    cluster.apply(FILE)
    assert len(cluster.ranks("a/x")) == 5


def test_a_number_that_is_changed_with_other_options_is_that_from_then_on_also_where_the_file_says_it():
    cluster = deployed_and_scaled(5)
    asked(cluster, target_replicas=3, min_ready_s=1.0)
    assert len(cluster.ranks("a/x")) == 3
    assert cluster.state.deployments["a/x"].ranks.spec.min_ready_s == 1.0


def test_another_number_in_the_file_is_what_holds():
    cluster = deployed_and_scaled(5)
    asked(cluster, **operations.restarted("once"))
    cluster.apply(application(entry("a/x", 4)))
    assert len(cluster.ranks("a/x")) == 4
