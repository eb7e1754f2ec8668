"""A revision names what users want: who writes by what has been read is refused once another writer came first."""

import attrs
import pytest

pytest.importorskip("ray", reason="Ray is not installed: pip install 'rankcore[ray]'")

from executors.ray_gpu.errors import ConflictError
from executors.ray_gpu.grpc_proxy.options import GrpcOptions
from executors.ray_gpu.http.options import HttpOptions
from executors.ray_gpu.in_force import outside_of
from executors.ray_gpu.proxies.options import ProxyOptions
from executors.revisions import check_revision, revision_of
from rankcore.autoscaling import AutoscalingSpec
from rankcore.cluster.events import DeletionRequested, ScaleRequested
from tests.clusters import Cluster, application, entry


def test_the_same_wish_has_the_same_revision_and_any_other_has_another() -> None:
    cluster, seen = Cluster(), set()
    seen.add(revision_of(cluster.state))
    wishes = [
        [application(entry("a/x", 2))],
        [application(entry("a/x", 3))],
        [application(entry("a/x", 3), prefix="/")],
        [application(entry("a/x", 3), entry("a/y"))],
        [application(entry("b/x"))],
    ]
    for number, wish in enumerate(wishes, start=2):
        cluster.apply(*wish)
        seen.add(revision_of(cluster.state))
        assert len(seen) == number
        cluster.apply(*wish)
        assert revision_of(cluster.state) in seen
    cluster.tell(ScaleRequested(deployment="b/x", target_replicas=4, at=1.0))
    assert revision_of(cluster.state) not in seen
    before = revision_of(cluster.state)
    cluster.restart()
    assert revision_of(cluster.state) == before
    cluster.tell(DeletionRequested(applications=("a",), at=2.0))
    assert revision_of(cluster.state) not in {*seen, before}


def test_what_proxies_serve_is_a_part_of_it_and_their_secrets_are_not() -> None:
    state = Cluster().state
    token, http = "0123456789abcdef", HttpOptions(port=8001, bearer_token="a-0123456789abcdef")
    wanted = [
        None,
        ProxyOptions(),
        ProxyOptions(http=HttpOptions(port=8001)),
        ProxyOptions(http=http),
        ProxyOptions(grpc=GrpcOptions(servicer_functions=("a.b",))),
        ProxyOptions(logging={"log_level": "DEBUG"}),
    ]
    found = [revision_of(state, outside_of(each)) for each in wanted]
    assert len(set(found)) == len(wanted)
    assert revision_of(state, outside_of(ProxyOptions(http=attrs.evolve(http, bearer_token=token)))) == found[3]
    with pytest.raises(ConflictError):
        check_revision(state, found[0], outside_of(wanted[1]))


def test_what_the_load_decides_is_no_writer() -> None:
    cluster = Cluster()
    cluster.apply(application(entry("a/d", 1, autoscaling=AutoscalingSpec(min_replicas=1, max_replicas=5))))
    before = revision_of(cluster.state)
    for _ in range(60):
        cluster.call("a/d", 50)
        cluster.wait(1.0)
    assert cluster.target("a/d") > 1
    assert revision_of(cluster.state) == before


def test_who_comes_second_is_told_the_revision_that_won() -> None:
    cluster = Cluster()
    cluster.apply(application(entry("a/x")))
    read = revision_of(cluster.state)
    check_revision(cluster.state, read)
    check_revision(cluster.state, None)
    cluster.apply(application(entry("a/x", 2)))
    with pytest.raises(ConflictError) as refused:
        check_revision(cluster.state, read)
    assert refused.value.revision == revision_of(cluster.state)
    assert str(refused.value).startswith(f"revision must be {revision_of(cluster.state)}, which is in force, got {read}: ")
