"""Telling a replica its ranks and its user_config; the belief that it may still have stays taken (R3)."""

from typing import Any

from msgspec.structs import replace

from rankcore.book import nodes, readiness, replicas
from rankcore.commands import InitializeReplica, ReconfigureReplica
from rankcore.draft import Draft
from rankcore.frozen import FrozenJson
from rankcore.lifecycle import REPLICA_MOVES
from rankcore.spec import DeploymentSpec
from rankcore.state import Replica, without
from rankcore.timers import NO_TIMER
from rankcore.values import PREPARED, ReplicaRank


def initialize(draft: Draft, replica: Replica, rank: ReplicaRank, recipe: DeploymentSpec) -> Replica:
    """Give a placed replica its first ranks. From here on the start time-out runs, and the command counts as believed.

    Who takes requests already keeps its user_config for now, where those are rolled out: another one takes a part of the
    budget, and goes to it in its turn, once it runs (M7).
    """
    config_id, user_config, own = recipe.config_id, recipe.user_config, replica.config_id
    if replica.routed:
        if draft.spec.config_rollout == "rolling" and own is not None and own in draft.configs:
            config_id, user_config = own, draft.configs[own]
        if config_id != own:
            replica = replace(replica, **readiness.await_config(draft, replica))
    elif replica.state is PREPARED:
        readiness.end_prepared(draft, replica)
        replica = replace(replica, ready_timer=NO_TIMER)
    revision = draft.next_revision()
    command = InitializeReplica(
        replica.replica_id,
        rank,
        draft.spec.target_replicas,
        user_config,
        config_id,
        revision,
        draft.epoch,
    )
    told = replace(
        replica,
        state=REPLICA_MOVES[replica.state, InitializeReplica],
        rank=rank,
        told=rank,
        config_id=config_id,
        revision=revision,
        since=draft.clock,
        pending=command,
        sent_at=draft.clock,
        repeat_timer=replicas.give(draft, replica.replica_id, command),
        start_timer=replicas.arm_start_timer(draft, replica.replica_id),
    )
    replicas.write(draft, told)
    nodes.believe(draft, replica, told)
    return told


def reconfigure(draft: Draft, replica: Replica, rank: ReplicaRank, config_id: str | None) -> Replica:
    """Tell a replica other ranks, another user_config, or both, in one message.

    A user_config that waits to be sent to it travels along where those are sent at once, or where its own is not known. A
    replica without a rank in the book (the loser of a duplicate) gets one only with its acknowledgement.
    """
    wanted = draft.recipe
    if replica.replica_id in draft.rollout.stale_config and wanted is not None:
        if draft.spec.config_rollout == "at_once" or config_id not in draft.configs:
            config_id = wanted.config_id
        if config_id == wanted.config_id:
            draft.rollout = replace(draft.rollout, stale_config=without(draft.rollout.stale_config, replica.replica_id))
    ready = _await_config(draft, replica) if config_id != replica.config_id else {}
    revision = draft.next_revision()
    user_config: FrozenJson = draft.configs.get(config_id) if config_id is not None else None
    command = ReconfigureReplica(
        replica.replica_id, rank, draft.spec.target_replicas, user_config, config_id, revision, draft.epoch
    )
    believed = replica.believed
    if rank != replica.told and replica.told is not None:
        believed = (*(older for older in believed if older not in (rank, replica.told)), replica.told)
    told = replace(
        replica,
        state=REPLICA_MOVES[replica.state, ReconfigureReplica],
        rank=rank if replica.rank is not None else None,
        told=rank,
        believed=believed,
        config_id=config_id,
        revision=revision,
        **ready,
    )
    told = replicas.ask(draft, told, command)
    if rank != replica.told:
        replicas.believe(draft, replica, told)
    return told


def _await_config(draft: Draft, replica: Replica) -> dict[str, Any]:
    """It owes a user_config from now on, for `start_timeout_s` at most. Returns what its record says of it."""
    waits = readiness.await_config(draft, replica)
    replicas.disarm_start_timer(draft, replica)
    return {**waits, "since": draft.clock, "start_timer": replicas.arm_start_timer(draft, replica.replica_id)}
