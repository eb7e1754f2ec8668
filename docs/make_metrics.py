"""Write docs/metrics.md, and docs/dashboard.json for Grafana, from the table of metrics.

python docs/make_metrics.py           write both
python docs/make_metrics.py --check   say whether they are current (exit status 1 if not)
"""

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from executors.ray_gpu.metrics.catalogue import CATALOGUE, COUNTER, HISTOGRAM, Metric  # noqa: E402

PAGE, DASHBOARD = Path(__file__).with_name("metrics.md"), Path(__file__).with_name("dashboard.json")
SOURCES = {
    "router": "Calls, in the process that makes them: drivers, replicas, proxies",
    "replica": "Calls, in the replica that answers them",
    "proxy": "Requests from outside",
    "controller": "Ranks, decisions and weights, in the controller",
}
TITLES = {"router": "Callers", "replica": "Replicas", "proxy": "Proxies", "controller": "Ranks and decisions"}
UNITS = {"_ms": "ms", "_bytes": "bytes", "_percent": "percent"}
PANEL_WIDTH, PANEL_HEIGHT, ROW_WIDTH = 8, 7, 24

TEXT = """\
# Metrics

Written by `make docs` from `executors/ray_gpu/metrics/catalogue.py`; a test checks that it is current.

Every process that serves, calls or decides publishes these through Ray's own metrics, so that a Prometheus that scrapes a Ray
cluster has them without further ado, with Ray's labels (`NodeAddress`, `WorkerId`, ...) beside those below. Where the thing is
the same as in Ray Serve, so are name and labels, and dashboards and alerts that were made for that go on; ours begin with
`ray_rankcore_`. [dashboard.json](dashboard.json) is a dashboard for Grafana with a panel for each: import it, and choose the
Prometheus that scrapes the cluster.

```text
ray start --head --metrics-export-port=8080
curl -s localhost:8080/metrics | grep -E '^ray_(serve|rankcore)_'
```

| variable of the environment | |
|---|---|
| `RANKCORE_METRICS=0` | this process publishes nothing |
| `RANKCORE_METRICS_EVERY_S=5` | how often (s) a process looks for changes; Ray's `metrics_report_interval_ms` comes on top |

Requests add to plain numbers, and a thread publishes what has changed: what that costs stands in
[bench/README.md](../bench/README.md). A histogram is published as three gauges, `_bucket`, `_sum` and `_count`, with the
numbers as they are: `histogram_quantile(0.99, sum by (le, deployment) (rate(..._bucket[1m])))` says what it does of Serve's.

{tables}
Ray's endpoints ask nobody who they are: whoever reaches a node's port reads them. The REST server ([rest](rest.md)) has the
metrics of all nodes at `GET /metrics`, behind its token.

## What is otherwise than in Ray Serve

- Calls by handles have the route "", and so has `serve_num_router_requests` for all calls: the route of the request that led to
  them does not travel with them.
- `handle` is the number (pid) of the process that calls: it has one router for each deployment, whatever the number of handles.
- `serve_deployment_replica_healthy` counts the replicas of a deployment, as Serve's does where it names no replicas.
- Gauges of what is gone stand at 0, since Ray keeps each series as long as its process lives.
- `serve_handle_request_counter` counts what `serve_num_router_requests` does, and its `handle` is that pid too.
- `serve_batch_wait_time_ms` is of the oldest call of a batch, from its arrival until the batch begins; Serve's begins when the
  batch before has been formed.
- `serve_replica_reconfigure_latency_ms` counts changes of ranks too. A controller counts what it began itself.
- `serve_proxy_status` is 1 to 3: proxies that are to end are not listed any more.
- Not there, though there is such a thing: `serve_autoscaling_desired_replicas`,
  `serve_deployment_max_processing_latency_ms`, and how long scaling policies and reports of load take
  (`serve_autoscaling_policy_execution_time_ms`, `serve_autoscaling_replica_metrics_delay_ms`,
  `serve_autoscaling_handle_metrics_delay_ms`).
- Not there, since there is no such thing: Serve's of its control loop, long poll, event loops, request router's
  queue, and HAProxy.
"""


def table(source: str) -> str:
    """Of one source's metrics."""
    rows = [
        f"| `{' '.join(metric.series) if metric.kind != HISTOGRAM else f'ray_{metric.name}'}` | {metric.kind} | "
        f"{', '.join(f'`{label}`' for label in metric.labels)} | {metric.meaning} | {'same' if metric.is_of_serve else ''} |\n"
        for metric in CATALOGUE
        if metric.source == source
    ]
    head = "| name | kind | labels | what it is | Ray Serve |\n|---|---|---|---|---|\n"
    return f"## {SOURCES[source]}\n\n{head}{''.join(rows)}"


def page() -> str:
    """docs/metrics.md."""
    return TEXT.format(tables="\n".join(table(source) for source in SOURCES))


def query(metric: Metric) -> str:
    """What a panel shows."""
    by = ", ".join(metric.per)
    match metric.kind:
        case "counter":
            return f"sum by ({by}) (rate({metric.series[0]}[$__rate_interval]))"
        case "histogram":
            labels = ", ".join(("le", *metric.per))
            return f"histogram_quantile(0.99, sum by ({labels}) (rate({metric.series[0]}[$__rate_interval])))"
        case _:
            return f"sum by ({by}) ({metric.series[0]})"


def panel(number: int, metric: Metric, x: int, y: int) -> dict[str, Any]:
    """Of one metric."""
    unit = next(
        (unit for end, unit in UNITS.items() if metric.name.endswith(end)), "ops" if metric.kind == COUNTER else "short"
    )
    return {
        "id": number,
        "type": "timeseries",
        "title": metric.name,
        "description": metric.meaning + {HISTOGRAM: "; 99 of 100 are below", COUNTER: "; a second"}.get(metric.kind, ""),
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
        "gridPos": {"x": x, "y": y, "w": PANEL_WIDTH, "h": PANEL_HEIGHT},
        "targets": [{"refId": "A", "expr": query(metric), "legendFormat": " ".join(f"{{{{{each}}}}}" for each in metric.per)}],
    }


def panels() -> list[dict[str, Any]]:
    """A row for each source."""
    found: list[dict[str, Any]] = []
    y = 0
    for source, title in TITLES.items():
        grid = {"x": 0, "y": y, "w": ROW_WIDTH, "h": 1}
        found.append({"id": len(found) + 1, "type": "row", "title": title, "gridPos": grid, "collapsed": False, "panels": []})
        y += 1
        own = [metric for metric in CATALOGUE if metric.source == source]
        for index, metric in enumerate(own):
            place = index * PANEL_WIDTH
            found.append(panel(len(found) + 1, metric, place % ROW_WIDTH, y + place // ROW_WIDTH * PANEL_HEIGHT))
        y += -(-len(own) * PANEL_WIDTH // ROW_WIDTH) * PANEL_HEIGHT
    return found


def dashboard() -> str:
    """docs/dashboard.json."""
    board = {
        "title": "rankcore",
        "uid": "rankcore",
        "schemaVersion": 38,
        "tags": ["ray", "rankcore"],
        "time": {"from": "now-30m", "to": "now"},
        "refresh": "10s",
        "templating": {"list": [{"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Prometheus"}]},
        "panels": panels(),
    }
    return json.dumps(board, indent=1) + "\n"


MADE = {PAGE: page, DASHBOARD: dashboard}


def main() -> int:
    if "--check" in sys.argv[1:]:
        stale = [path.name for path, make in MADE.items() if not path.exists() or path.read_text() != make()]
        print(f"not current: {', '.join(stale)}" if stale else "current")
        return bool(stale)
    for path, make in MADE.items():
        path.write_text(make())
    return 0


if __name__ == "__main__":
    sys.exit(main())
