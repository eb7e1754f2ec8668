"""The fields of `DeploymentSpec` as a scenario file has them: what each takes, in the words of scenarios.

`DeploymentSpec` checks itself; this table says the same in a form that a schema and a reference can be made of. A test
holds the two equal, but for periods: virtual time costs nothing, so that a simulation needs a shortest one.
"""

import attrs

from executors.simulator.fields import PERIOD_MIN_S, Amounts, Check, Text, choice, flag, integer, number, optional
from executors.simulator.scenario.placements import Placement
from rankcore import DeploymentSpec
from rankcore.checks import COUNT_MAX, DEPLOYMENT_LENGTH_MAX, SECONDS_MAX
from rankcore.spec import CHOICES


def _choice_of(field: str) -> Check:
    options = choice(*(option for option in CHOICES[field] if option is not None))
    return optional(options) if None in CHOICES[field] else options


_POSITIVE_SECONDS = number(above=0.0, most=SECONDS_MAX)
_PERIOD = number(least=PERIOD_MIN_S, most=SECONDS_MAX)

SPEC_CHECKS: dict[str, Check | None] = {
    "name": Text(without="#", most=DEPLOYMENT_LENGTH_MAX),
    "target_replicas": integer(0, COUNT_MAX),
    "user_config": None,  # anything that JSON can hold
    "version": Text(what="text"),
    "compaction": _choice_of("compaction"),
    "victims": _choice_of("victims"),
    "placement": Placement(),
    "graceful_shutdown_timeout_s": number(least=0.0, most=SECONDS_MAX),
    "health_check_period_s": _PERIOD,
    "health_check_timeout_s": _POSITIVE_SECONDS,
    "start_timeout_s": _POSITIVE_SECONDS,
    "repeat_period_s": _PERIOD,
    "max_start_failures": integer(1, COUNT_MAX),
    "start_backoff_s": _PERIOD,
    "start_backoff_max_s": _PERIOD,
    "max_unavailable": optional(Amounts(0)),
    "max_surge": Amounts(0),
    "rollback": flag,
    "surge_patience_s": _POSITIVE_SECONDS,
    "scarcity_after_s": optional(number(least=0.0, most=SECONDS_MAX)),
    "stable_after_s": _POSITIVE_SECONDS,
    "config_rollout": _choice_of("config_rollout"),
    "min_ready_s": number(least=0.0, most=SECONDS_MAX),
    "node_memory_s": _POSITIVE_SECONDS,
    "restart_token": Text(least=0, what="text"),
    "update_order": _choice_of("update_order"),
    "partition": integer(0, COUNT_MAX),
    "progress_deadline_s": optional(_POSITIVE_SECONDS),
    "hand_over": _choice_of("hand_over"),
}
"""What each field takes, by its name."""

SPEC_ATTRIBUTES = {field.name: field for field in attrs.fields(DeploymentSpec) if field.init}
