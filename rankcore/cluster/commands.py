"""What should happen in a cluster, as the machine tells an executor, in the order in which it is to happen.

`WakeAt` is that of `rankcore.commands`: the least of what all parts ask for.
"""

from typing import TypeAlias

import attrs

from rankcore import commands
from rankcore.autoscaling.policies import View
from rankcore.cluster.names import DeploymentId
from rankcore.cluster.records import Record


@attrs.frozen
class SaveRecord:
    """Put a record into the store; answer `RecordSaved` once it survives a crash. First in a step; repeated until answered.

    A record that says `deleted` is to be kept like any other: see `records`.
    """

    record: Record
    epoch: int


@attrs.frozen
class CarryOut:
    """A command about the ranks of one deployment. What it depends on has been saved: the machine holds it back until then."""

    deployment: DeploymentId
    command: commands.Command

    @property
    def epoch(self) -> int:
        """Of the controller that gave it."""
        return self.command.epoch


@attrs.frozen
class AskPolicy:
    """Ask the user's scaling policy how many replicas a load calls for; answer `PolicyAnswered`.

    Attributes:
        ask: Number of the question; it goes into the answer.
        target_number: Of the target that the view shows; it goes into the answer.
        policy: Its name (`EntrySpec.policy`).
    """

    deployment: DeploymentId
    ask: int
    target_number: int
    policy: str
    view: View
    epoch: int


ClusterCommand: TypeAlias = SaveRecord | CarryOut | AskPolicy | commands.WakeAt
