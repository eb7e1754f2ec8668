"""Records: what of a deployment outlives its controller. Never ranks, places or loads, which are learnt again (R10).

A record is numbered, and the numbers of an epoch begin at `epoch << 32`, so the newest of a deployment is the one with the
greatest number, whichever controller wrote it. That is all that a store has to keep: a put may land late, twice, or after
its controller has been replaced, and is never a reason to forget a greater number. (One key for each number does that
without a compare-and-swap; the smaller ones may be removed once a greater one has landed.)

A deployment that is gone leaves a record that says so (`deleted`), which counts like any other: without it a put that lands
late would bring the deployment back. A store behind a fence, where no put of a controller that was replaced can land (a file
under a lock), may forget it at once. Any other store may once no record of its epoch or an earlier one counts any more: once
every record that was adopted has been saved under a later epoch, with none left alone, and the store *has first been told* that
all before that epoch is to be ignored, when it is read and when it lands. Nobody tells it so yet: it keeps them.
"""

from collections.abc import Iterable
from enum import StrEnum

import attrs

from rankcore.cluster.names import DeploymentId
from rankcore.cluster.spec import EntrySpec
from rankcore.errors import InvalidSpecError
from rankcore.spec import DeploymentSpec

EPOCH_BITS = 32


class Cause(StrEnum):
    """Who wrote the target last; see `targets`."""

    USER = "user"
    AUTOSCALER = "autoscaler"
    LEAVE = "leave"
    """Replicas were taken away for something else: preempted, evicted, idle."""


@attrs.frozen(kw_only=True)
class Record:
    """One deployment's record; one class for every executor.

    Attributes:
        deployment: Whose.
        number: Grows with every record of any deployment; its upper bits are the epoch.
        applied: What the user applied last.
        spec: In force: with the present target, and after a rollback with the build that is served instead.
        cause: Of the present target.
        previous: The last spec that was ever healthy.
        deleting: Whether it is to go.
        deleted: Whether it is gone. Such a record stands for none, and outlasts late puts of earlier ones.
        failed: Whether it was DEPLOY_FAILED.
        trouble: Why it was; "": it was not.
        route_prefix: Of its application, where it is the ingress.
        is_ingress: Whether it is the one of its application that requests from outside go to.

    Raises:
        InvalidSpecError: It is about several deployments.
    """

    __stored__ = True

    deployment: DeploymentId
    number: int
    applied: EntrySpec
    spec: DeploymentSpec
    cause: Cause = Cause.USER
    previous: DeploymentSpec | None = None
    deleting: bool = False
    deleted: bool = False
    failed: bool = False
    trouble: str = ""
    route_prefix: str | None = None
    is_ingress: bool = False

    def __attrs_post_init__(self) -> None:
        for field, name in (("applied.ranks.name", self.applied.deployment), ("spec.name", self.spec.name)):
            if name != self.deployment:
                raise InvalidSpecError(f"Record.{field}", name, f"{self.deployment!r}, of which the record is")

    @property
    def epoch(self) -> int:
        """Of the controller that wrote it."""
        return self.number >> EPOCH_BITS


def newest(records: Iterable[Record]) -> dict[DeploymentId, Record]:
    """The record of each deployment that counts, in the order of their ids."""
    found: dict[DeploymentId, Record] = {}
    for record in records:
        before = found.get(record.deployment)
        if before is None or record.number > before.number:
            found[record.deployment] = record
    return dict(sorted(found.items()))
