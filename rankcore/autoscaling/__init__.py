"""Autoscaling: how many replicas a deployment should have, decided from its load.

    target, state, notes = autoscale(state, metrics, at)

Nothing in here reads a clock or touches a deployment: times come on the reports and with the call, and whoever calls asks
for the new target as a user would, with `SpecChanged`. The promises A1 to A10 are in docs/autoscaling.md.
"""

from rankcore.autoscaling.core import Decision, autoscale
from rankcore.autoscaling.notes import AutoscalingNote, AutoscalingNoteKind
from rankcore.autoscaling.policies import Policy, View, ongoing_requests
from rankcore.autoscaling.reports import HandleReport, Metrics, ReplicaReport, Report, rank_moves
from rankcore.autoscaling.spec import AutoscalingSpec, check_scalable
from rankcore.autoscaling.state import AutoscalerState

__all__ = [
    "AutoscalerState",
    "AutoscalingNote",
    "AutoscalingNoteKind",
    "AutoscalingSpec",
    "Decision",
    "HandleReport",
    "Metrics",
    "Policy",
    "ReplicaReport",
    "Report",
    "View",
    "autoscale",
    "check_scalable",
    "ongoing_requests",
    "rank_moves",
]
