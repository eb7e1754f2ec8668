"""What routers, replicas and proxies publish of the requests that they saw."""

import os
import sys
from collections.abc import Iterator
from functools import cache
from typing import Protocol

import ray

from executors.deployment_ids import split
from executors.ray_gpu.metrics.counts import ModelCounts, ProxyCounts, ReplicaCounts, RouterCounts
from executors.ray_gpu.metrics.publisher import Sample

GOOD_HTTP = ("1", "2", "3")
"""What the status of an answer that is no error begins with."""


class Routes(Protocol):
    """A router."""

    counts: RouterCounts

    @property
    def load(self) -> dict[str, float]:
        """How its calls stand."""


class Serves(Protocol):
    """A replica's calls."""

    counts: ReplicaCounts
    under_way: int
    max_ongoing_requests: int


@cache
def actor_id() -> str:
    """Of this process; "": it is a driver."""
    return ray.get_runtime_context().get_actor_id() or ""


@cache
def handle_source() -> str:
    """What this process is, in Ray Serve's words."""
    if "executors.ray_gpu.proxies.proxy" in sys.modules:  # the controller imports it too, and calls nobody
        return "PROXY"
    return "REPLICA" if "executors.ray_gpu.replica" in sys.modules and actor_id() else "UNKNOWN"


def of_router(deployment: str, router: Routes) -> Iterator[Sample]:
    """Of the calls of one deployment by this process."""
    application, name = split(deployment)
    own = name, application, str(os.getpid()), actor_id()
    load, counts = router.load, router.counts
    yield Sample("serve_num_router_requests", (*own, ""), load["arrivals_total"])
    yield Sample("serve_handle_request_counter", (own[2], name, "", application), load["arrivals_total"])
    yield Sample("serve_deployment_queued_queries", own, load["waiting"])
    yield Sample("serve_num_ongoing_requests_at_replicas", own, load["in_flight"])
    yield Sample("serve_request_router_fulfillment_time_ms", (name, actor_id(), application, handle_source()), counts.all_waits)
    for why, count in list(counts.refused.items()):
        yield Sample("rankcore_router_refused_calls", (name, application, why), count)
    yield Sample("rankcore_router_retries", (name, application), counts.retried)


def of_replica(deployment: str, replica_id: str, server: Serves) -> Iterator[Sample]:
    """Of the calls that a replica has answered."""
    application, name = split(deployment)
    own = name, replica_id, application
    yield Sample("serve_deployment_replica_starts", own, 1)
    yield Sample("serve_replica_processing_queries", own, server.under_way)
    for route, counts in list(server.counts.routes.items()):
        total, errors = sum(counts.latency.counts), dict(counts.errors)
        if not total:
            continue
        yield Sample("serve_deployment_request_counter", (*own, route), total - sum(errors.values()))
        for kind, count in errors.items():
            yield Sample("serve_deployment_error_counter", (*own, route, kind), count)
        yield Sample("serve_deployment_processing_latency_ms", (*own, route), counts.latency)
    used = server.counts.utilization.percent(server.counts.all_latency.sum, server.max_ongoing_requests)
    yield Sample("serve_replica_utilization_percent", own, used)
    yield from _of_batches(own, server.counts)
    yield from _of_models(own, server.counts.models)


def _of_batches(own: tuple[str, ...], counts: ReplicaCounts) -> Iterator[Sample]:
    for function, each in list(counts.batches.items()):
        yield Sample("serve_batch_wait_time_ms", (*own, function), each.waits)
        yield Sample("serve_batch_execution_time_ms", (*own, function), each.took)
        yield Sample("serve_batch_utilization_percent", (*own, function), each.fills)
        yield Sample("serve_actual_batch_size", (*own, function), each.sizes)
        yield Sample("serve_batches_processed", (*own, function), each.sizes.count)
    batches = sys.modules.get("executors.ray_gpu.requests.batches")
    for function, waiting in batches.waiting_calls().items() if batches is not None else ():
        yield Sample("serve_batch_queue_length", (*own, function), waiting)


def _of_models(own: tuple[str, ...], counts: ModelCounts) -> Iterator[Sample]:
    if not counts.asked:
        return
    yield Sample("serve_multiplexed_get_model_requests_counter", own, counts.asked)
    yield Sample("serve_multiplexed_models_load_counter", own, counts.loads)
    yield Sample("serve_multiplexed_models_unload_counter", own, counts.unloads)
    yield Sample("serve_multiplexed_model_load_latency_ms", own, counts.loaded)
    yield Sample("serve_multiplexed_model_unload_latency_ms", own, counts.unloaded)
    multiplexing = sys.modules.get("executors.ray_gpu.requests.multiplexing")
    model_ids = multiplexing.loaded_model_ids() if multiplexing is not None else ()
    yield Sample("serve_num_multiplexed_models", own, len(model_ids))
    for model_id in model_ids:
        yield Sample("serve_registered_multiplexed_model_id", (*own, model_id), 1)


def of_proxy(protocol: str, node_id: str, address: str, counts: ProxyCounts) -> Iterator[Sample]:
    """Of the requests that a proxy has answered by one protocol, "http" or "grpc"."""
    yield Sample(f"serve_num_ongoing_{protocol}_requests", (node_id, address), counts.ongoing)
    for (route, deployment, method, status), answers in list(counts.answers.items()):
        application, name = split(deployment) if deployment else ("", "")
        yield Sample(f"serve_num_{protocol}_requests", (route, method, application, status), answers.count)
        yield Sample(f"serve_{protocol}_request_latency_ms", (method, route, application, status), answers.latency)
        if status == "OK" or status.startswith(GOOD_HTTP):
            continue
        yield Sample(f"serve_num_{protocol}_error_requests", (route, status, method, application), answers.count)
        if name:
            labels = name, status, method, route, application
            yield Sample(f"serve_num_deployment_{protocol}_error_requests", labels, answers.count)
