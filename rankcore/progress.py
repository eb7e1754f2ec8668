"""How far an update has come, and what it waits for, in one line for who is on call. Nothing is decided by it."""

from enum import StrEnum

import attrs

from rankcore.book.slots import RUNNING
from rankcore.state import DeploymentState
from rankcore.values import DeploymentStatus, NodeId
from rankcore.waits import SHOWN, cause, is_changing


class RolloutPhase(StrEnum):
    """What an update is about."""

    IDLE = "idle"
    """All that is wanted runs, or is being repaired."""
    ROLLING = "rolling"
    STALLED = "stalled"
    """It has made no progress for `progress_deadline_s`."""
    PARTITIONED = "partitioned"
    """All ranks that the spec reaches have it, and some below the partition have not."""
    PAUSED = "paused"
    """The partition is not below the target: the spec reaches nobody."""
    FAILED = "failed"


@attrs.frozen(kw_only=True)
class Progress:
    """How far an update has come.

    Attributes:
        updated: How many replicas run with version, restart token and user_config of the spec.
        available: How many serve, not being unready, that have been ready for `min_ready_s` on their build.
        wanted: The target.
        evicting: How many are to be replaced elsewhere.
        leaving: The nodes that are to be left for that, a few of them; none: they are to be replaced by name.
        stalled_since: Since when there was no progress for too long, in seconds on the executor's clock; None: there was.
        stalled_for_s: For how long by now.
        because: What it waits for; empty: nothing.
    """

    phase: RolloutPhase
    updated: int
    available: int
    wanted: int
    evicting: int = 0
    leaving: tuple[NodeId, ...] = ()
    stalled_since: float | None = None
    stalled_for_s: float = 0.0
    because: str = ""

    def __str__(self) -> str:
        """Such as "rolling: 2 of 10 updated, 9 of 10 available, waits: no room, 9 of 10"; empty where all is well."""
        if self.phase is RolloutPhase.IDLE and not self.because:
            return ""
        parts = [f"{self.available} of {self.wanted} available"]
        if self.phase is not RolloutPhase.IDLE:
            since = f" for {self.stalled_for_s:.0f} s" if self.stalled_since is not None else ""
            parts.insert(0, f"{self.phase}{since}: {self.updated} of {self.wanted} updated")
        if self.evicting:
            nodes = f"draining {', '.join(self.leaving)}: " if self.leaving else ""
            parts.append(f"{nodes}{self.evicting} to be replaced elsewhere")
        if self.because:
            parts.append(f"waits: {self.because}")
        return ", ".join(parts)


def progress_of(state: DeploymentState, now: float | None = None) -> Progress:
    """Look at all replicas: O(N).

    Args:
        now: In seconds on the executor's clock; None: when the last event came.
    """
    spec, updated, available, behind = state.spec, 0, 0, False
    clock = state.clock if now is None or now < state.clock else now
    for replica in state.replicas.values():
        runs = replica.state in RUNNING
        available += replica.routed and replica.ready_at is not None and replica.ready_at + spec.min_ready_s <= state.clock
        if (*replica.generation, replica.config_id) == (*spec.generation, spec.config_id):
            updated += runs
        elif runs and replica.slot is not None:
            behind = behind or replica.slot < state.kept_below
    return Progress(
        phase=_phase(state, behind),
        updated=updated,
        available=available,
        wanted=spec.target_replicas,
        evicting=state.tables.evictions.ranks.size,
        leaving=_leaving(state),
        stalled_since=state.stalled_since,
        stalled_for_s=clock - state.stalled_since if state.stalled_since is not None else 0.0,
        because=cause(spec, state.status, state.tables, clock),
    )


def _leaving(state: DeploymentState) -> tuple[NodeId, ...]:
    """Nodes that are drained, of which somebody is not told to go yet: `SHOWN` at most."""
    holders = (state.holder_of(rank) for rank in state.tables.evictions.ranks)
    places = {state.replicas[each].node_id or "" for each in holders if each is not None}
    return tuple(sorted(each for each in places if state.nodes[each].drain is not None))[:SHOWN]


def is_anything_to_retry(state: DeploymentState, ranks: tuple[int, ...], now: float) -> bool:
    """Whether a `RetryRequested` of these ranks, or of all, changes anything."""
    asked = ranks or state.tables.slots
    rests = (state.tables.slots[rank].retry_at > now for rank in asked if rank in state.tables.slots)
    return state.status is DeploymentStatus.DEPLOY_FAILED or any(rests)


def _phase(state: DeploymentState, behind: bool) -> RolloutPhase:
    if state.stalled_since is not None:
        return RolloutPhase.STALLED
    if state.status is DeploymentStatus.DEPLOY_FAILED:
        return RolloutPhase.FAILED
    if is_changing(state.spec, state.status, state.tables):
        return RolloutPhase.ROLLING
    if not behind:
        return RolloutPhase.IDLE
    return RolloutPhase.PAUSED if state.kept_below >= state.spec.target_replicas else RolloutPhase.PARTITIONED
