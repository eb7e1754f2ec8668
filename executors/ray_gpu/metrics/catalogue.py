"""The table of metrics: name, labels, meaning. docs/metrics.md and the dashboard are made from it; nothing else is published.

At Ray's endpoint each name begins with `ray_`, a counter ends with `_total`, and a histogram is three series. Where the thing
is the same as in Ray Serve, so are name and labels; ours begin with `rankcore_`.

**Why a histogram is published as gauges.** Ray records each value of a histogram by itself, twice, and rounds its sum to the
middles of buckets. Here what fell into each bucket is counted where it happens, and the counts are published, as
`name_bucket`, `name_sum` and `name_count`: what PromQL makes of them is the same, and the numbers are exact.
"""

from typing import NamedTuple

COUNTER, GAUGE, HISTOGRAM = "counter", "gauge", "histogram"


class Metric(NamedTuple):
    """One of them.

    Attributes:
        source: Which process has it: a "router", which each process that calls has; "replica", "proxy", "controller".
        per: What the dashboard sums it by.
    """

    name: str
    kind: str
    source: str
    labels: tuple[str, ...]
    meaning: str
    per: tuple[str, ...] = ()

    @property
    def is_of_serve(self) -> bool:
        """Whether Ray Serve has it too."""
        return self.name.startswith("serve_")

    @property
    def series(self) -> tuple[str, ...]:
        """Its names at Ray's endpoint."""
        if self.kind == HISTOGRAM:
            return tuple(f"ray_{self.name}_{part}" for part in HISTOGRAM_PARTS)
        return (f"ray_{self.name.removesuffix('_total')}_total" if self.kind == COUNTER else f"ray_{self.name}",)


HISTOGRAM_PARTS = ("bucket", "sum", "count")
HANDLE = ("deployment", "application", "handle", "actor_id")
REPLICA = ("deployment", "replica", "application")
DEPLOYMENT = ("deployment", "application")
BATCH, FUNCTION = (*REPLICA, "function_name"), ("deployment", "function_name")
NODE = ("node_id", "node_ip_address")
PROXY_ANSWER = ("method", "route", "application", "status_code")
PROXY_ERROR = ("route", "error_code", "method", "application")


def _of_protocol(protocol: str, label: str) -> tuple[Metric, ...]:
    per = ("route", "status_code")
    return (
        Metric(
            f"serve_num_{protocol}_requests",
            COUNTER,
            "proxy",
            ("route", "method", "application", "status_code"),
            f"{label} requests that were answered",
            per,
        ),
        Metric(
            f"serve_num_{protocol}_error_requests",
            COUNTER,
            "proxy",
            PROXY_ERROR,
            f"{label} requests that were answered with an error",
            ("route", "error_code"),
        ),
        Metric(
            f"serve_num_deployment_{protocol}_error_requests",
            COUNTER,
            "proxy",
            ("deployment", "error_code", "method", "route", "application"),
            f"the same, of those that reached a deployment ({label})",
            ("deployment", "error_code"),
        ),
        Metric(
            f"serve_{protocol}_request_latency_ms",
            HISTOGRAM,
            "proxy",
            PROXY_ANSWER,
            f"from a {label} request's head to the end of its answer, in milliseconds",
            ("route",),
        ),
        Metric(
            f"serve_num_ongoing_{protocol}_requests",
            GAUGE,
            "proxy",
            NODE,
            f"{label} requests that are being answered",
            ("node_ip_address",),
        ),
    )


CATALOGUE: tuple[Metric, ...] = (
    Metric("serve_num_router_requests", COUNTER, "router", (*HANDLE, "route"), "calls that a process has begun", DEPLOYMENT),
    Metric(
        "serve_handle_request_counter",
        COUNTER,
        "router",
        ("handle", "deployment", "route", "application"),
        "the same, as Serve counts them by handles",
        DEPLOYMENT,
    ),
    Metric("serve_deployment_queued_queries", GAUGE, "router", HANDLE, "calls that wait for a replica", DEPLOYMENT),
    Metric("serve_num_ongoing_requests_at_replicas", GAUGE, "router", HANDLE, "calls that were sent to a replica", DEPLOYMENT),
    Metric(
        "serve_request_router_fulfillment_time_ms",
        HISTOGRAM,
        "router",
        ("deployment", "actor_id", "application", "handle_source"),
        "how long calls have waited for a replica, in milliseconds",
        DEPLOYMENT,
    ),
    Metric(
        "rankcore_router_refused_calls",
        COUNTER,
        "router",
        (*DEPLOYMENT, "reason"),
        "calls that failed without an answer: overloaded (as many wait as may), unavailable, deadline, lost (with a replica)",
        ("deployment", "reason"),
    ),
    Metric("rankcore_router_retries", COUNTER, "router", DEPLOYMENT, "attempts at calls that were not the first", DEPLOYMENT),
    Metric(
        "serve_deployment_request_counter", COUNTER, "replica", (*REPLICA, "route"), "calls that raised nothing", DEPLOYMENT
    ),
    Metric(
        "serve_deployment_error_counter",
        COUNTER,
        "replica",
        (*REPLICA, "route", "exception_type"),
        "calls that raised",
        ("deployment", "exception_type"),
    ),
    Metric(
        "serve_deployment_processing_latency_ms",
        HISTOGRAM,
        "replica",
        (*REPLICA, "route"),
        "how long calls have taken at the replica, in milliseconds",
        DEPLOYMENT,
    ),
    Metric("serve_replica_processing_queries", GAUGE, "replica", REPLICA, "calls that are under way at the replica", REPLICA),
    Metric("serve_deployment_replica_starts", COUNTER, "replica", REPLICA, "1 for each start of a replica", DEPLOYMENT),
    Metric(
        "serve_replica_utilization_percent",
        GAUGE,
        "replica",
        REPLICA,
        "the time that calls took which ended within the last 600 s, of what `max_ongoing_requests` would take at once",
        REPLICA,
    ),
    Metric("serve_batches_processed", COUNTER, "replica", BATCH, "batches that have begun", FUNCTION),
    Metric("serve_actual_batch_size", HISTOGRAM, "replica", BATCH, "how large batches were", FUNCTION),
    Metric(
        "serve_batch_utilization_percent", HISTOGRAM, "replica", BATCH, "the same, as a share of `max_batch_size`", FUNCTION
    ),
    Metric(
        "serve_batch_wait_time_ms",
        HISTOGRAM,
        "replica",
        BATCH,
        "how long the oldest call of each batch has waited for it, in milliseconds",
        FUNCTION,
    ),
    Metric(
        "serve_batch_execution_time_ms", HISTOGRAM, "replica", BATCH, "how long batches have taken, in milliseconds", FUNCTION
    ),
    Metric("serve_batch_queue_length", GAUGE, "replica", BATCH, "calls that wait for a batch", FUNCTION),
    Metric(
        "serve_multiplexed_get_model_requests_counter",
        COUNTER,
        "replica",
        REPLICA,
        "how often a model was asked for",
        DEPLOYMENT,
    ),
    Metric("serve_multiplexed_models_load_counter", COUNTER, "replica", REPLICA, "loads of models", DEPLOYMENT),
    Metric("serve_multiplexed_models_unload_counter", COUNTER, "replica", REPLICA, "models that were given up", DEPLOYMENT),
    Metric(
        "serve_multiplexed_model_load_latency_ms",
        HISTOGRAM,
        "replica",
        REPLICA,
        "how long loads have taken that succeeded, in milliseconds",
        DEPLOYMENT,
    ),
    Metric(
        "serve_multiplexed_model_unload_latency_ms",
        HISTOGRAM,
        "replica",
        REPLICA,
        "how long it has taken to give models up, in milliseconds",
        DEPLOYMENT,
    ),
    Metric("serve_num_multiplexed_models", GAUGE, "replica", REPLICA, "models that are loaded", REPLICA),
    Metric(
        "serve_registered_multiplexed_model_id",
        GAUGE,
        "replica",
        (*REPLICA, "model_id"),
        "1: this one is loaded",
        ("deployment", "model_id"),
    ),
    *_of_protocol("http", "HTTP"),
    *_of_protocol("grpc", "gRPC"),
    Metric(
        "serve_deployment_replica_healthy",
        GAUGE,
        "controller",
        DEPLOYMENT,
        "replicas that take requests",
        DEPLOYMENT,
    ),
    Metric(
        "serve_deployment_status",
        GAUGE,
        "controller",
        DEPLOYMENT,
        "1 DEPLOY_FAILED, 2 UNHEALTHY, 3 UPDATING, 4 UPSCALING, 5 DOWNSCALING, 6 HEALTHY",
        DEPLOYMENT,
    ),
    Metric(
        "serve_application_status",
        GAUGE,
        "controller",
        ("application",),
        "1 DEPLOY_FAILED, 2 UNHEALTHY, 3 NOT_STARTED, 4 DELETING, 5 DEPLOYING, 6 RUNNING",
        ("application",),
    ),
    Metric("serve_autoscaling_target_replicas", GAUGE, "controller", DEPLOYMENT, "the target number of replicas", DEPLOYMENT),
    Metric(
        "serve_autoscaling_total_requests",
        GAUGE,
        "controller",
        DEPLOYMENT,
        "requests that wait or are under way, as the autoscaler has last seen it: over its look-back",
        DEPLOYMENT,
    ),
    Metric(
        "serve_autoscaling_target_ongoing_requests",
        GAUGE,
        "controller",
        DEPLOYMENT,
        "how many of them one replica is to have",
        DEPLOYMENT,
    ),
    Metric(
        "serve_replica_startup_latency_ms",
        HISTOGRAM,
        "controller",
        DEPLOYMENT,
        "from the start of a replica until it is ready, with its wait for room, in milliseconds",
        DEPLOYMENT,
    ),
    Metric(
        "serve_replica_initialization_latency_ms",
        HISTOGRAM,
        "controller",
        DEPLOYMENT,
        "of that, from its user code's start on, in milliseconds",
        DEPLOYMENT,
    ),
    Metric(
        "serve_replica_reconfigure_latency_ms",
        HISTOGRAM,
        "controller",
        DEPLOYMENT,
        "how long replicas have taken to adopt another user_config or rank, in milliseconds",
        DEPLOYMENT,
    ),
    Metric(
        "serve_replica_shutdown_duration_ms",
        HISTOGRAM,
        "controller",
        DEPLOYMENT,
        "from the command to stop a replica until it is gone, in milliseconds",
        DEPLOYMENT,
    ),
    Metric(
        "serve_health_check_latency_ms",
        HISTOGRAM,
        "controller",
        DEPLOYMENT,
        "how long health checks have taken, in milliseconds",
        DEPLOYMENT,
    ),
    Metric(
        "serve_health_check_failures_total",
        COUNTER,
        "controller",
        DEPLOYMENT,
        "health checks that failed, or were not answered in time",
        DEPLOYMENT,
    ),
    Metric(
        "serve_proxy_status",
        GAUGE,
        "controller",
        NODE,
        "1 STARTING, 2 HEALTHY, 3 UNHEALTHY",
        ("node_ip_address",),
    ),
    Metric(
        "serve_proxy_shutdown_duration_ms",
        HISTOGRAM,
        "controller",
        NODE,
        "how long proxies have taken to end in order, in milliseconds",
        ("node_ip_address",),
    ),
    Metric(
        "rankcore_ranks",
        GAUGE,
        "controller",
        (*DEPLOYMENT, "how"),
        "ranks of a deployment that are held (given to a replica that serves), believed (somebody may still have them), vacant",
        ("deployment", "how"),
    ),
    Metric(
        "rankcore_replicas",
        GAUGE,
        "controller",
        (*DEPLOYMENT, "state"),
        "replicas by their state, as docs/lifecycle.md has it",
        ("deployment", "state"),
    ),
    Metric(
        "rankcore_rank_gap_seconds",
        COUNTER,
        "controller",
        (*DEPLOYMENT, "rank"),
        "for how long a rank has had no replica that takes requests; of the first 1000 ranks of a deployment",
        ("deployment", "rank"),
    ),
    Metric(
        "rankcore_rank_moves",
        COUNTER,
        "controller",
        DEPLOYMENT,
        "replicas that were told another rank while they lived",
        DEPLOYMENT,
    ),
    Metric(
        "rankcore_decisions",
        COUNTER,
        "controller",
        (*DEPLOYMENT, "kind"),
        "notes of the machine of ranks, by their kind: replica lost, start failed, backed off, ...",
        ("kind",),
    ),
    Metric(
        "rankcore_calls_waiting",
        GAUGE,
        "controller",
        DEPLOYMENT,
        "calls that wait for a deployment whose weights may be COLD, as processes have reported",
        DEPLOYMENT,
    ),
    Metric(
        "rankcore_residents",
        GAUGE,
        "controller",
        (*DEPLOYMENT, "level"),
        "processes with weights by where these are: HOT, WARM, COLD, or LOADING",
        ("deployment", "level"),
    ),
    Metric(
        "rankcore_weights_free_bytes",
        GAUGE,
        "controller",
        ("node_id", "where"),
        "memory of a node that the planner may give to weights: of its GPUs, or of the host",
        ("node_id", "where"),
    ),
    Metric(
        "rankcore_planner_decisions",
        COUNTER,
        "controller",
        ("kind",),
        "notes of the planner of weights, by their kind: loads, evictions, displacements, ...",
        ("kind",),
    ),
    Metric("rankcore_steps", COUNTER, "controller", ("event",), "events that the machine has taken", ("event",)),
    Metric(
        "rankcore_step_time_ms", HISTOGRAM, "controller", (), "how long a step of the machine has taken, its journal included"
    ),
    Metric(
        "rankcore_journal_lag_seconds",
        GAUGE,
        "controller",
        (),
        "for how long the oldest record that is not stored yet has waited for that; 0: all are stored",
    ),
    Metric("rankcore_records_unsaved", GAUGE, "controller", (), "deployments with a record that is not stored yet"),
    Metric("rankcore_controller_epoch", GAUGE, "controller", (), "how many controllers there have been"),
)

BY_NAME = {metric.name: metric for metric in CATALOGUE}
