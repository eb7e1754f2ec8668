"""Options are given as config objects: autoscaling between bounds, from an initial number."""

from ray import serve
from ray.serve.config import AutoscalingConfig


@serve.deployment(
    autoscaling_config=AutoscalingConfig(
        min_replicas=1,
        initial_replicas=2,
        max_replicas=3,
        target_ongoing_requests=2,
        upscale_smoothing_factor=0.5,
        downscale_delay_s=600,
    ),
    graceful_shutdown_wait_loop_s=0.1,
    graceful_shutdown_timeout_s=5,
    health_check_period_s=5,
    health_check_timeout_s=20,
    max_constructor_retry_count=3,
    ray_actor_options={"num_cpus": 0},
)
class Model:
    def __call__(self) -> str:
        return "here"


def main() -> object:
    handle = serve.run(Model.bind(), route_prefix=None)
    states = serve.status().applications["default"].deployments["Model"].replica_states
    return [handle.remote().result(), {getattr(state, "value", state): count for state, count in states.items()}]


EXPECTED = ["here", {"RUNNING": 2}]
