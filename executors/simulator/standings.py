"""S2 and S4 against where replicas stand, not against the controller's book."""

from rankcore import DeploymentSpec
from rankcore.invariants import Violation
from rankcore.placement import Bundles, Place
from rankcore.values import ReplicaId, ReplicaRank


class Standings:
    """Who of one deployment's live replicas stands on which bundles of a placement group, draining ones included."""

    def __init__(self) -> None:
        self._places: dict[ReplicaId, Place] = {}
        self._users: dict[tuple[str | None, int], ReplicaId] = {}

    def began(self, replica_id: ReplicaId, group_id: str | None, bundles: Bundles) -> list[Violation]:
        """A replica stands there from now on; what that breaks, if anything (S4)."""
        found = []
        for bundle in bundles:
            other = self._users.setdefault((group_id, bundle), replica_id)
            if other != replica_id:
                found.append(Violation("S4", f"replicas {other} and {replica_id} are both on bundle {bundle} of {group_id}"))
        if bundles:
            self._places[replica_id] = (group_id, bundles)
        return found

    def ended(self, replica_id: ReplicaId) -> None:
        """A replica is gone."""
        group_id, bundles = self._places.pop(replica_id, (None, ()))
        for bundle in bundles:
            self._users.pop((group_id, bundle), None)

    def check(self, spec: DeploymentSpec, believed: dict[ReplicaId, ReplicaRank]) -> list[Violation]:
        """Whether everybody is where their rank belongs, and nowhere else, once a deployment is healthy (S2)."""
        found = []
        for replica_id, rank in believed.items():
            place, wanted = self._places.get(replica_id, (None, ())), spec.place_of(rank.rank)
            if place != wanted:
                text = f"HEALTHY, and {replica_id} believes rank {rank.rank} and is on {place}, where {wanted} is its place"
                found.append(Violation("S2", text))
        return found
