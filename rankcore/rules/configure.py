"""Another user_config is sent in place to every replica of the current version, and takes no budget (R12, section 2.3)."""

from msgspec.structs import replace

from rankcore.book import slots
from rankcore.draft import Draft
from rankcore.frozen import EMPTY
from rankcore.notes import NoteKind
from rankcore.rules import leaving
from rankcore.rules.messages import reconfigure
from rankcore.spec import DeploymentSpec
from rankcore.state import Replica
from rankcore.values import DEPLOY_FAILED


def change_build(draft: Draft, spec: DeploymentSpec, failed: Replica | None = None) -> None:
    """Take over a spec with another version or user_config. What waits or backs off for the old one goes straight on.

    Args:
        failed: Whose failure is the reason, if any: it is gone, or about to be killed, and not told to stop as well.
    """
    draft.spec = spec
    slots.begin_rollout(draft)
    draft.configs = draft.configs.set(spec.config_id, spec.user_config)
    draft.ready = draft.vacant
    for rank in draft.rollout.surging:
        if failed is None or draft.slots[rank].successor != failed.replica_id:
            _check_successor(draft, rank)
    holders = [holder for holder in slots.holders(draft, slots.RUNNING) if holder.version == spec.version]
    losers = [loser for loser in draft.those(draft.recovery.losers) if loser.state in slots.RUNNING]
    draft.rollout = replace(draft.rollout, stale_config=EMPTY)
    for replica in (*holders, *losers):
        notice_config(draft, replica)
    if any(replica.build == spec.build for replica in holders):
        draft.proven = spec
    elif draft.previous is not None and draft.previous.build == spec.build:
        draft.proven = draft.previous


def _check_successor(draft: Draft, rank: int) -> None:
    successor_id, holder = draft.slots[rank].successor, slots.holder_of(draft, rank)
    assert successor_id is not None, f"rank {rank} is indexed as surging, and has no successor"
    successor = draft.replicas[successor_id]
    if successor.version != draft.spec.version or holder.version == draft.spec.version:
        leaving.dismiss_successor(draft, rank, "its version is no longer wanted here")


def notice_config(draft: Draft, replica: Replica) -> None:
    """Remember a replica that came up with another user_config than the one in force."""
    if replica.version == draft.spec.version and replica.config_id != draft.spec.config_id:
        noticed = draft.rollout.stale_config.set(replica.replica_id, replica.birth)
        draft.rollout = replace(draft.rollout, stale_config=noticed)


def configure(draft: Draft) -> None:
    """Send the user_config in force to those that still lack it. A failed build is sent to nobody else."""
    if not draft.rollout.stale_config or draft.status is DEPLOY_FAILED:
        return
    for replica in draft.those(draft.rollout.stale_config):
        if replica.replica_id in draft.recovery.losers:
            continue  # it travels along with its move, since until then it has no rank to be confirmed
        assert replica.told is not None, f"{replica.replica_id} runs, and was never told a rank"
        sent = reconfigure(draft, replica, replica.told, draft.spec.config_id)
        draft.note(NoteKind.CONFIG_SENT, "R12", sent.replica_id, f"user_config is now {sent.config_id}")
