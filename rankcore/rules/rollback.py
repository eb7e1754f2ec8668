"""A build is given up for the last spec that was ever healthy (section 2.3, V9)."""

import attrs

from rankcore.draft import Draft
from rankcore.lifecycle import Milestone
from rankcore.notes import NoteKind
from rankcore.rules.configure import change_build
from rankcore.state import Replica
from rankcore.values import DeploymentStatus


def roll_back(draft: Draft, because: str, failed: Replica | None = None) -> bool:
    """Want what was healthy last again. Returns whether that is another build than is wanted.

    Args:
        failed: As in `change_build`.
    """
    previous = draft.previous
    if previous is None or previous.build == draft.spec.build:
        return False
    draft.note(NoteKind.ROLLED_BACK, "2.3", because=f"{because}; back to version {previous.version!r}")
    version, token = previous.generation
    back = attrs.evolve(draft.spec, version=version, restart_token=token, user_config=previous.user_config)
    change_build(draft, back, failed)
    draft.progressed = True
    if draft.status is not DeploymentStatus.RECOVERING:
        draft.reach(Milestone.VERSION_CHANGED, "rolled back")
    return True
