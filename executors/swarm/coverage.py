"""What of the core a swarm has exercised, and which faults, alone and in pairs."""

from collections import Counter
from collections.abc import Iterable
from itertools import combinations

from executors.swarm.scenarios import FAULTS as SIMULATED_FAULTS
from rankcore import DeploymentState, Step
from rankcore.events import Event
from rankcore.testing.model.coverage import NOTE_NAMES, REPLICA_ROW_NAMES, STATUS_NAMES, Coverage
from rankcore.testing.schedules import HAPPENINGS

NETWORK_FAULTS = ("loss", "duplication", "reorder")
WISHES = ("target_replicas", "version", "user_config", "placement", "compaction", "delete")
FAULTS = {
    "pure": HAPPENINGS,
    "simulator": (*SIMULATED_FAULTS, *NETWORK_FAULTS, *(f"change of {wish}" for wish in WISHES)),
}
"""What can go wrong, or be asked for, in each part."""


def _pair(one: str, other: str) -> str:
    return " + ".join(sorted((one, other)))


PAIRS = {part: tuple(_pair(*pair) for pair in combinations(faults, 2)) for part, faults in FAULTS.items()}
KINDS: dict[str, tuple[str, ...]] = {
    "moves of a replica": REPLICA_ROW_NAMES,
    "moves of the deployment": STATUS_NAMES,
    "kinds of notes": NOTE_NAMES,
    **{f"faults, {part}": tuple(f"{part}: {fault}" for fault in faults) for part, faults in FAULTS.items()},
    **{f"pairs of faults, {part}": tuple(f"{part}: {pair}" for pair in pairs) for part, pairs in PAIRS.items()},
}
"""All that can be seen, by kind."""


class Witness:
    """Counts what steps exercise; a core's life is followed by `tell`."""

    def __init__(self) -> None:
        self._coverage = Coverage()

    @property
    def counts(self) -> Counter[str]:
        """By name, how often it was seen."""
        return self._coverage.counts

    def tell(self, before: DeploymentState, event: Event | None, step: Step) -> None:
        """A controller has stepped; without an event, it has just begun."""
        if not (step.commands or step.notes or before.tables.replicas is not step.state.tables.replicas):
            return
        self._coverage.count(before, event, step)


def of_faults(part: str, seen: Iterable[str]) -> Counter[str]:
    """One seed in which these faults were seen."""
    present = sorted(set(seen) & set(FAULTS[part]))
    names = [*present, *(_pair(*pair) for pair in combinations(present, 2))]
    return Counter(f"{part}: {name}" for name in names)
