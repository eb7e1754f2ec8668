"""One case against one system: begin, disturb, wait until it is healthy again, and compare what the replicas say."""

from collections.abc import Callable
from typing import Any
from unittest import SkipTest

import attrs

from rankcore.spec import DeploymentSpec
from rankcore.testing.conformance.system import SelfReport, System
from rankcore.testing.conformance.witness import Witness
from rankcore.values import DeploymentStatus, NodeId, ReplicaId, ReplicaRank

NAME = "conformance"


class NonconformityError(AssertionError):
    """The system did not do what the case says, or its replicas believed what they must not."""


class NotTriedError(SkipTest):
    """The bench cannot do what a case needs; pytest counts it as skipped, and says why."""


class Trial:
    """A case in progress.

    Attributes:
        spec: What the deployment is wanted to be now.
        witness: All that its replicas said so far.
    """

    def __init__(self, system: System, *, crash_controller: bool) -> None:
        self.system = system
        self.spec = DeploymentSpec(name=NAME, target_replicas=0)
        self.witness = Witness()
        self._crash_controller = crash_controller

    def deploy(self, target: int, **fields: Any) -> None:
        """Begin the deployment."""
        self.spec = DeploymentSpec(name=NAME, target_replicas=target, **(DEFAULTS | fields))
        self.system.deploy(self.spec)

    def change(self, **fields: Any) -> None:
        """Want something else of it."""
        self.spec = attrs.evolve(self.spec, **fields)
        self.system.change(self.spec)

    def disturbed(self) -> None:
        """In the variant with a crash of the controller: this is when it crashes."""
        if self._crash_controller:
            self.system.crash_controller()

    def observe(self) -> list[SelfReport]:
        """Ask everybody, and remember what they say; the oldest id first."""
        reports = sorted(self.system.reports(NAME), key=lambda report: report.replica_id)
        self.witness.hear(reports)
        return reports

    def serving(self) -> dict[ReplicaId, SelfReport]:
        """Who takes requests now."""
        return {report.replica_id: report for report in self.observe() if report.ready and not report.draining}

    def places(self) -> dict[int, NodeId]:
        """Where those are who take requests now, by their global ranks."""
        return {report.rank.rank: report.node_id for report in self.serving().values() if report.rank is not None}

    def room(self) -> Callable[[NodeId], int]:
        """What says how many replicas a node can hold in all.

        Raises:
            NotTriedError: Nobody tells.
        """
        room: Callable[[NodeId], int] | None = getattr(self.system, "room", None)
        if room is None:
            raise NotTriedError("no `room` is told, or that may get lost")
        return room

    def ranks(self) -> dict[ReplicaId, int]:
        """The global ranks of those who take requests now."""
        return {replica_id: report.rank.rank for replica_id, report in self.serving().items() if report.rank is not None}

    def settle(self) -> dict[ReplicaId, int]:
        """Wait until the deployment is healthy and its replicas say what they should; returns their global ranks.

        Raises:
            NonconformityError: It does not come to that.
        """

        def settled() -> bool:
            complaints = self._complaints()
            return self.system.status(NAME) is DeploymentStatus.HEALTHY and not complaints

        self.until(settled, "HEALTHY, and every replica saying so")
        return self.ranks()

    def until(self, condition: Callable[[], bool], waiting_for: str) -> None:
        """Let the world go on until the condition holds.

        Raises:
            NonconformityError: It does not come to that.
        """
        try:
            self.system.until(condition, waiting_for)
        except TimeoutError as error:
            found = "; ".join(self._complaints()) or "nothing that the replicas say is wrong"
            raise NonconformityError(f"{error}: the status is {self.system.status(NAME)}, and {found}") from error

    def check_beliefs(self) -> None:
        """No two replicas have believed the same at the same time (R3).

        Raises:
            NonconformityError: Two have.
        """
        self.observe()
        conflicts = self.witness.conflicts()
        if conflicts:
            raise NonconformityError("R3: " + "; ".join(conflicts))

    def _complaints(self) -> list[str]:
        """What keeps the replicas from being what the spec wants (R1, R2, R9, R12)."""
        reports = self.observe()
        wrong = [f"{each.replica_id} is draining" for each in reports if each.draining]
        wrong += [f"{each.replica_id} is not ready" for each in reports if not each.ready]
        wrong += [
            f"{each.replica_id} says {field} {getattr(each, field)!r}, expected {expected!r}"
            for each in reports
            for field, expected in (
                ("world_size", self.spec.target_replicas),
                ("version", self.spec.version),
                ("user_config", self.spec.user_config),
            )
            if getattr(each, field) != expected
        ]
        return wrong + gaps({each.replica_id: (each.node_id, each.rank) for each in reports}, self.spec.target_replicas)


DEFAULTS = {
    "graceful_shutdown_timeout_s": 1.0,
    "health_check_timeout_s": 5.0,
    "start_backoff_s": 0.1,
    "start_backoff_max_s": 0.5,
    "repeat_period_s": 0.5,
}
"""Short times: the suite is run on real clocks too."""


def gaps(ranks: dict[ReplicaId, tuple[NodeId, ReplicaRank | None]], target: int) -> list[str]:
    """How these ranks differ from 0..N-1, 0..M-1 over the nodes, and 0..K-1 on each node (R1), in words."""
    known = [(node_id, rank) for node_id, rank in ranks.values() if rank is not None]
    nodes = sorted({node_id for node_id, _ in known})
    wanted: list[tuple[str, list[int], int]] = [
        ("ranks", [rank.rank for _, rank in known], target),
        ("node ranks", sorted({(node_id, rank.node_rank): rank.node_rank for node_id, rank in known}.values()), len(nodes)),
        *(
            (f"local ranks on {node}", locals_, len(locals_))
            for node in nodes
            for locals_ in [[rank.local_rank for node_id, rank in known if node_id == node]]
        ),
    ]
    return [
        f"{what} are {sorted(found)}, expected 0..{count - 1}"
        for what, found, count in wanted
        if sorted(found) != list(range(count))
    ]


@attrs.frozen
class Case:
    """One thing that a conforming executor does.

    Attributes:
        name: What happens.
        crash_controller: Whether the controller is crashed in the middle of it.
        play: Plays it, and raises `NonconformityError` where the outcome is another than promised.
    """

    name: str
    crash_controller: bool
    play: Callable[[Trial], None]

    def __str__(self) -> str:
        return self.name + (" while the controller crashes" if self.crash_controller else "")


def run(case: Case, system: System) -> None:
    """Play a case on a fresh system.

    Raises:
        NonconformityError: The system does not conform; the text says in what.
    """
    trial = Trial(system, crash_controller=case.crash_controller)
    case.play(trial)
    trial.check_beliefs()
