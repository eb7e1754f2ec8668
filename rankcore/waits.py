"""What an update waits for, in words for who is on call. Nothing is decided by it but whether one is under way."""

from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from typing import TYPE_CHECKING

from rankcore.spec import DeploymentSpec
from rankcore.values import (
    DELETED,
    DELETING,
    DEPLOY_FAILED,
    DRAINING,
    PREPARED,
    PREPARING,
    RECOVERING,
    REQUESTED,
    UPDATING,
    DeploymentStatus,
    ReplicaState,
)

if TYPE_CHECKING:
    from rankcore.state import Replica, TableFields, Unready

SHOWN = 4
REASON_MAX = 120
RUN = (ReplicaState.RUNNING, ReplicaState.RECONFIGURING)
UNDECIDED = (DEPLOY_FAILED, DELETING, DELETED)
"""With these no update is under way, whatever is left to be replaced."""


def is_under_way(spec: DeploymentSpec, status: DeploymentStatus, tables: "TableFields") -> bool:
    """Whether something is to be replaced or reconfigured, and the partition lets it; or a recovery has still to find out."""
    if status is not UPDATING and (status is RECOVERING or status in UNDECIDED):
        return status is RECOVERING
    return is_changing(spec, status, tables) and (tables.previous is None or spec.partition < spec.target_replicas)


def is_behind(tables: "TableFields") -> bool:
    """Whether somebody runs another build, or another generation, than is wanted."""
    rollout = tables.rollout
    return bool(rollout.running.size or rollout.unstarted.size or rollout.stale_config)


def is_changing(spec: DeploymentSpec, status: DeploymentStatus, tables: "TableFields") -> bool:
    """Whether somebody is behind, or not as many as are wanted run all of the spec yet; evictions keep up no update."""
    if status is UPDATING:
        serving = tables.available - tables.early  # who is there early, and all run, succeeds somebody who is evicted
        all_run = serving == spec.target_replicas == len(tables.slots) and not tables.configuring and not _matures(tables)
        if not all_run or tables.bundles.misfits.size:
            return True
    return is_behind(tables)


def _matures(tables: "TableFields") -> bool:
    """Whether somebody who runs has not been ready for long enough yet. O(1) but while somebody is there early."""
    if not tables.early:
        return bool(tables.maturing.items)
    return any(tables.replicas[each.replica_id].state in RUN for each in tables.maturing.items.values())


def cause(spec: DeploymentSpec, status: DeploymentStatus, tables: "TableFields", now: float) -> str:
    """What holds a deployment up: the first of these that there is, with `SHOWN` ranks at most; empty: nothing. O(N).

    What has failed and who has no other place to go to are said beside it: neither is to hide the other.
    """
    first = next(filter(None, (look(spec, status, tables, now) for look in _CAUSES)), "")
    also = (look(spec, status, tables, now) for look in (_resting, _evicted))
    return "; ".join(dict.fromkeys(filter(None, (first, *also))))


def without_place(spec: DeploymentSpec, status: DeploymentStatus, tables: "TableFields", now: float) -> str:
    """Which ranks were asked for in vain, or are kept from that by a lack of room the core knows of; else empty."""
    shown = _lacking_place(spec, status, tables, now)
    return f"{_ranks(shown)} no place: {_places(tables)} of {spec.target_replicas} have one" if shown else ""


def _lacking_place(spec: DeploymentSpec, status: DeploymentStatus, tables: "TableFields", now: float) -> list[int]:
    """The first of these ranks, one more than is shown."""
    asked_at = now - spec.repeat_period_s
    lacking: Iterable[int] = (rank for rank in tables.requested if tables.slots[rank].unplaced_at <= asked_at)
    if spec.placement == "pack_ranks" and not tables.nodes_by_room:
        lacking = chain(tables.ready, tables.taken.taken.free_below(spec.target_replicas))
    shown = list(islice(lacking, SHOWN + 1))
    return [] if status in (DELETING, DELETED) or tables.recovery.unreported else shown


def _who_has_it(spec: DeploymentSpec, tables: "TableFields", rank: int) -> str:
    """Who has the place that a rank below the partition lacks: without a rank, not wanted there, and needed all the same."""
    unwanted = tables.rollout.unwanted
    if tables.previous is None or rank >= spec.partition or not unwanted.size:
        return ""
    those = (tables.replicas[tables.slots[each].successor or ""] for each in unwanted)
    who = _listed((f"{each.replica_id} of version {each.version}" for each in those), ", ")
    ends = f"one more place ends that, or a higher max_unavailable, or a partition of {rank} at most"
    return f"it is taken by {who}, which serves without a rank and has to, with max_unavailable={spec.unavailable_max}; {ends}"


def _places(tables: "TableFields") -> int:
    return len(tables.slots) - tables.requested.size - tables.vacant.size


def _ranks(ranks: list[int]) -> str:
    """Such as "ranks 1, 2 have"; more than `SHOWN` are not told."""
    if len(ranks) == 1:
        return f"rank {ranks[0]} has"
    return f"ranks {_listed(map(str, ranks), ', ')} have"


def _listed(parts: Iterable[str], between: str = "; ") -> str:
    shown = list(islice(parts, SHOWN + 1))
    return between.join([*shown[:SHOWN], *(["..."] if len(shown) > SHOWN else [])])


def _reports(_spec: DeploymentSpec, _status: DeploymentStatus, tables: "TableFields", _now: float) -> str:
    unreported = sorted(tables.recovery.unreported, key=tables.recovery.unreported.__getitem__)
    return f"reports are outstanding of {_listed(unreported, ', ')}" if unreported else ""


def _room(spec: DeploymentSpec, status: DeploymentStatus, tables: "TableFields", now: float) -> str:
    lacking = without_place(spec, status, tables, now)
    if lacking:
        what = "no room" if tables.roomless.size or spec.placement == "pack_ranks" else "no place yet"
        first = _lacking_place(spec, status, tables, now)[0]
        has_it = _who_has_it(spec, tables, first)
        found = f"{what}, {_places(tables)} of {spec.target_replicas}: {lacking.partition(':')[0]}"
        if first in tables.slots and (why := _why_it_waits(tables.replicas.get(tables.slots[first].holder or ""))):
            found = f"{found} ({why})"
        return f"{found}; {has_it}" if has_it else found
    early = [rank for rank in tables.rollout.stoppable if rank not in tables.rollout.arrived]  # waited for in vain
    return f"no room yet for what is started early: {_ranks(early)} a successor without a place" if early else ""


def _recipe_of(rank: int, spec: DeploymentSpec, status: DeploymentStatus, tables: "TableFields") -> DeploymentSpec | None:
    """What would be started in a slot; None: nothing that works is known."""
    if tables.previous is not None and rank < spec.partition:
        return tables.previous
    return tables.proven if status is DEPLOY_FAILED else spec


def _rests(rank: int, spec: DeploymentSpec, status: DeploymentStatus, tables: "TableFields", now: float) -> bool:
    """Whether somebody is to be started for a rank, and what would be has just failed there."""
    slot, recipe = tables.slots[rank], _recipe_of(rank, spec, status, tables)
    if slot.retry_at <= now or recipe is None or slot.failed_build != recipe.build:
        return False
    outdated = slot.holder is None or tables.replicas[slot.holder].generation != recipe.generation
    return outdated or (rank in tables.evictions.ranks and slot.successor is None)


def _resting(spec: DeploymentSpec, status: DeploymentStatus, tables: "TableFields", now: float) -> str:
    def found() -> Iterator[str]:
        for rank, slot in sorted(tables.slots.items()):
            times = f"{slot.failures} {'failure' if slot.failures == 1 else 'failures'}"
            if _rests(rank, spec, status, tables, now):
                yield f"rank {rank} rests after {times}, next start in {_tenths(slot.retry_at - now)} s"
            elif slot.holder is None and slot.failures and _recipe_of(rank, spec, status, tables) is None:
                yield f"rank {rank} is not started again after {times}"

    return _listed(found())


def _draining(_spec: DeploymentSpec, _status: DeploymentStatus, tables: "TableFields", now: float) -> str:
    draining = [replica for replica in tables.replicas.values() if replica.state is DRAINING]
    draining.sort(key=lambda replica: replica.birth)
    return _listed(f"{_who(replica)} has been draining for {_since(replica, now)}" for replica in draining)


def _config(_spec: DeploymentSpec, _status: DeploymentStatus, tables: "TableFields", now: float) -> str:
    owing = sorted(tables.configuring, key=tables.configuring.__getitem__)
    unconfirmed = (tables.replicas[each] for each in owing)
    return _listed(f"{_who(each)} has not confirmed its user_config for {_since(each, now)}" for each in unconfirmed)


def _preparing(spec: DeploymentSpec, _status: DeploymentStatus, tables: "TableFields", now: float) -> str:
    def found() -> Iterator[str]:
        for rank in tables.rollout.surging:
            successor = tables.replicas[tables.slots[rank].successor or ""]
            if successor.state is REQUESTED:
                yield f"{_who(successor)} was asked for {_since(successor, now)} ago, and is not up yet"
            elif successor.state is PREPARING:
                yield f"{_who(successor)} has been coming up for {_since(successor, now)}"
            elif successor.state is PREPARED and successor.since + spec.min_ready_s > now:
                yield f"{_who(successor)} has been up for {_tenths(now - successor.since)} of {spec.min_ready_s:g} s"

    return _listed(found())


def _unavailable(spec: DeploymentSpec, status: DeploymentStatus, tables: "TableFields", now: float) -> str:
    def found() -> Iterator[str]:
        for rank in range(spec.target_replicas):
            slot = tables.slots.get(rank)
            holder = tables.replicas[slot.holder] if slot is not None and slot.holder is not None else None
            if holder is None:
                yield f"rank {rank} vacant"
            elif holder.ready_at is None:
                why = _why_it_waits(holder)
                yield f"rank {rank} {holder.state.lower()} for {_since(holder, now)}" + (f" ({why})" if why else "")
            elif holder.unready is not None:
                yield f"rank {rank} {unready_in_words(holder.unready, now)}"
            elif holder.ready_at + spec.min_ready_s > now:
                yield f"rank {rank} ready for {_tenths(now - holder.ready_at)} of {spec.min_ready_s:g} s"

    which = _listed(found()) if status not in (DELETING, DELETED) else ""
    budget = f" ({spec.unavailable_max} may be)" if is_under_way(spec, status, tables) else ""
    return f"not available{budget}: {which}" if which else ""


def replica_in_words(replica: "Replica", now: float) -> str:
    """Why a replica has no place yet, or gets no requests, such as "no room for 12.5 s: no node has 2 CPUs"; else empty."""
    if replica.unready is not None:
        return unready_in_words(replica.unready, now)
    why = _why_it_waits(replica)
    if replica.no_room_since is None or replica.state is not REQUESTED:
        return why
    return f"no room for {_tenths(now - replica.no_room_since)} s" + (f": {why}" if why else "")


def _why_it_waits(replica: "Replica | None") -> str:
    """What the executor has said last of one that has no place yet."""
    if replica is None or replica.state is not REQUESTED or replica.waiting is None:
        return ""
    return replica.waiting.reason[:REASON_MAX]


def unready_in_words(unready: "Unready", now: float) -> str:
    """Such as "unready for 12.5 s: RuntimeError: no licence"; of a traceback the line that it ends with."""
    said = unready.reason.strip().splitlines()
    why = f": {said[-1][:REASON_MAX]}" if said else ""
    return f"unready for {_tenths(now - unready.since)} s{why}"


def _evicted(spec: DeploymentSpec, status: DeploymentStatus, tables: "TableFields", now: float) -> str:
    """Those that nobody is started for; while somebody is started for one of them, the others' turn may come after it."""
    asked = tables.evictions.asked
    if not asked or any((tables.slots[rank].holder or "") in asked for rank in tables.rollout.surging):
        return ""
    stays = (rank for rank in tables.evictions.ranks if not _in_place(rank, spec, tables))
    shown = list(islice((rank for rank in stays if not _rests(rank, spec, status, tables, now)), SHOWN + 1))
    works = not shown or _recipe_of(shown[0], spec, status, tables) is not None
    why = "no room elsewhere for what is to be replaced" if works else "nothing that works is known for what is to be replaced"
    return f"{why}: {_ranks(shown)} no successor" if shown else ""


def _cordoned(spec: DeploymentSpec, _status: DeploymentStatus, tables: "TableFields", _now: float) -> str:
    """Those that an update passes over, since the core would find no place for who replaces them."""
    if spec.placement != "pack_ranks" or tables.nodes_by_room:
        return ""
    stays = (rank for rank in tables.rollout.running if rank not in tables.evictions.ranks)
    holders = ((rank, tables.replicas[tables.slots[rank].holder or ""]) for rank in stays)
    there = (f"rank {rank}" for rank, holder in holders if tables.nodes[holder.node_id or ""].cordoned)
    ranks = _listed(there, ", ")
    return f"no room elsewhere for what is to be updated on cordoned nodes: {ranks}" if ranks else ""


def _in_place(rank: int, spec: DeploymentSpec, tables: "TableFields") -> bool:
    """Whether a rank has no other place, and can be replaced in its own."""
    node = tables.nodes[tables.replicas[tables.slots[rank].holder or ""].node_id or ""]
    return spec.static_placement is not None and node.drain is None


def _who(replica: "Replica") -> str:
    return replica.replica_id if replica.slot is None else f"rank {replica.slot} ({replica.replica_id})"


def _since(replica: "Replica", now: float) -> str:
    return f"{_tenths(now - replica.since)} s"


def _tenths(seconds: float) -> str:
    return f"{max(0.0, seconds):.1f}".removesuffix(".0")


_CAUSES: tuple[Callable[[DeploymentSpec, DeploymentStatus, "TableFields", float], str], ...] = (
    _reports,
    _room,
    _resting,
    _draining,
    _config,
    _preparing,
    _unavailable,
    _cordoned,
    _evicted,
)
"""In the order in which they keep an update from going on."""
