"""One deployment's bug is one deployment's outage (P6).

An exception that no event may cause is a bug, in the rules of one deployment as a rule: whose handler ran is known
(`Worklist.running`). Taking back only what that handler did would tear a step apart: others may have acted on what it handed
on. So the step is discarded whole, and run once more from the state before with that deployment *frozen*: its replicas go on
as they are, routes included; news of it is dropped, since the same news would meet the same bug; its record is still saved.
Only a restart of the controller, which learns it anew from its replicas (R10), or its deletion lifts that.

A step that hands on events without an end is treated alike: the deployment that got most of them is the culprit, and the
event itself is not lost.

It ends: each further attempt freezes one more of the deployments, and a frozen one's handlers do not run. What is raised
where no deployment's handler ran, where a frozen one's record is concluded, or where a frozen one gets events without an end,
is the cluster's own bug and leaves the step.
"""

from collections.abc import Callable

from msgspec.structs import replace

from rankcore.cluster import tenures
from rankcore.cluster.draft import ClusterDraft
from rankcore.cluster.names import DeploymentId
from rankcore.cluster.notes import ClusterNoteKind
from rankcore.cluster.planner import PLANNER
from rankcore.cluster.state import ClusterStep
from rankcore.errors import ClusterDivergedError, PlannerFailedError, RankcoreError


def isolated(open_draft: Callable[[dict[DeploymentId, str]], ClusterDraft], run: Callable[[ClusterDraft], None]) -> ClusterStep:
    """Run a step; whoever's handler raises is frozen, and all is run again."""
    broken: dict[DeploymentId, str] = {}
    while True:
        draft = open_draft(broken)
        _freeze(draft)
        try:
            run(draft)
            return draft.close()
        except ClusterDivergedError as error:
            if error.part == PLANNER:
                raise PlannerFailedError(str(error)) from error
            if error.part in broken:
                raise
            culprit, why = str(error.part), str(error)
        except RankcoreError:
            raise
        except Exception as error:
            running = draft.worklist.running
            if running is None or running in broken:
                raise
            culprit, why = running, f"{type(error).__name__}: {error}"
        broken[culprit] = why


def _freeze(draft: ClusterDraft) -> None:
    for deployment, why in draft.broken.items():
        entry = draft.find(deployment)
        if entry is not None:  # else it begins in this step
            draft.put(deployment, replace(entry, frozen=why))
            draft.note(ClusterNoteKind.FROZEN, "P6", deployment, why)
            tenures.dedicate(draft, replace(entry, frozen=why))
