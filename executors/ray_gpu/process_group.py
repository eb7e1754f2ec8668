"""torch.distributed for replicas: what it wants to know, and a process group that follows ranks and world size.

Ranks change and replicas are replaced while a deployment lives; a process group cannot change. So every complete world (a
holder for each rank) has a generation of its own, and a group of its own: `ensure_process_group` forms it when the
generation is another than that of the group at hand. All replicas have to call it; `wait_for_world_change` says when.
"""

import json
import os
import socket
import threading
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import attrs
import ray
from ray.exceptions import RayError
from ray.experimental import internal_kv

from executors.ray_gpu import names
from executors.ray_gpu.context import ReplicaContext, get_replica_context
from executors.ray_gpu.errors import ProcessGroupError
from executors.ray_gpu.membership import Membership

if TYPE_CHECKING:
    import torch.distributed as dist

ATTEMPT_S = 20.0
"""How long the members of one generation have to find each other, before the controller is asked again who they are."""
POLL_S = 0.02
ANSWER_S = 1.0


@attrs.frozen
class _Meeting:
    """Where the members of a generation meet."""

    membership: Membership
    address: str
    port: int


def torch_env(*, timeout_s: float = 60.0) -> dict[str, str]:
    """What `torch.distributed.init_process_group("gloo", init_method="env://")` reads from the environment.

    Waits until every rank has a holder and rank 0 has told where to meet. Rank 0 tells when it calls this. Each call is
    for the world of that moment: when a rank or the world size changes, a new group is needed (see `ensure_process_group`,
    which does all of it).

    Returns:
        RANK, LOCAL_RANK, GROUP_RANK (the node's rank), WORLD_SIZE, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT.

    Raises:
        NotInReplicaError: This process is no replica.
        ProcessGroupError: The world was not complete in time.
    """
    deadline = time.monotonic() + timeout_s
    membership = _complete_world(deadline)
    rank, node_rank, local_rank = _own_ranks(membership)
    if rank == 0:
        address = ray.util.get_node_ip_address()
        with socket.socket() as probe:
            probe.bind((address, 0))
            _publish(membership, address, probe.getsockname()[1])
    meeting = _find_meeting(membership, deadline)
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(local_rank),
        "GROUP_RANK": str(node_rank),
        "WORLD_SIZE": str(membership.world_size),
        "LOCAL_WORLD_SIZE": str(membership.local_world_size(node_rank)),
        "MASTER_ADDR": meeting.address,
        "MASTER_PORT": str(meeting.port),
    }


_lock = threading.Lock()
_generation: str | None = None  # of this process's default group; None: it has none of ours


def ensure_process_group(*, backend: str | None = None, timeout_s: float = 60.0) -> "dist.ProcessGroup":
    """Torch's default process group, of all replicas as they are now; formed anew where ranks or members have changed.

    Blocks until all members have come. Call it in `__init__` (all replicas start together), in `reconfigure`, or on a
    thread of your own; on the latter also when `wait_for_world_change` returns, for those whom no rank change tells.

    Args:
        backend: "gloo", "nccl", ...; None: nccl where the replica has a GPU, else gloo.
        timeout_s: How long to wait for the others.

    Raises:
        NotInReplicaError: This process is no replica.
        ProcessGroupError: They have not come in time. There is no group then.
    """
    import torch
    import torch.distributed as dist

    global _generation
    deadline = time.monotonic() + timeout_s
    if backend is None:
        backend = "nccl" if torch.cuda.is_available() and dist.is_nccl_available() else "gloo"
    with _lock:
        while True:
            membership = _complete_world(deadline)
            if membership.generation == _generation and dist.is_initialized():
                return _default_group()
            _leave()
            try:
                _join(membership, backend, min(deadline, time.monotonic() + ATTEMPT_S))
                _generation = membership.generation
                return _default_group()
            except (RuntimeError, OSError, ProcessGroupError) as error:  # somebody left meanwhile, or was too slow
                _leave()
                if time.monotonic() > deadline:
                    raise ProcessGroupError(f"no process group was formed within {timeout_s:g} s: {error}") from error


def wait_for_world_change(*, timeout_s: float | None = None) -> bool:
    """Wait until ranks, members or world size are others than those of the process group at hand.

    Returns:
        Whether they are; False: they were the same all the time.
    """
    deadline = time.monotonic() + (timeout_s if timeout_s is not None else 10 * 365 * 86400.0)
    try:
        _ask_for_world(_generation, deadline)
    except ProcessGroupError:
        return False
    return True


def _default_group() -> "dist.ProcessGroup":
    import torch.distributed as dist

    group: Any = dist.group.WORLD
    return group  # type: ignore[no-any-return]


def _leave() -> None:
    import torch.distributed as dist

    global _generation
    _generation = None
    if dist.is_initialized():
        dist.destroy_process_group()


def _join(membership: Membership, backend: str, deadline: float) -> None:
    import torch.distributed

    dist: Any = torch.distributed  # its stubs do not show the store
    rank, _, _ = _own_ranks(membership)
    timeout = timedelta(seconds=max(1.0, deadline - time.monotonic()))
    own_address = ray.util.get_node_ip_address()
    if own_address == "127.0.0.1":
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    if rank == 0:
        listener = socket.socket()
        listener.bind((own_address, 0))  # and not to all addresses, as torch would
        listener.listen(1024)
        port = listener.getsockname()[1]
        store = dist.TCPStore(
            own_address,
            port,
            membership.world_size,
            is_master=True,
            timeout=timeout,
            wait_for_workers=False,
            master_listen_fd=listener.detach(),
        )
        _publish(membership, own_address, port)
    else:
        meeting = _find_meeting(membership, deadline)
        store = dist.TCPStore(
            meeting.address, meeting.port, membership.world_size, is_master=False, timeout=timeout, wait_for_workers=False
        )
    dist.init_process_group(backend, store=store, rank=rank, world_size=membership.world_size, timeout=timeout)


# -- who, and where


def _complete_world(deadline: float) -> Membership:
    """The present world; waits until every rank has a holder, and this replica believes what the world says of it."""
    while True:
        membership = _ask_for_world(None, deadline)
        context = get_replica_context()
        if membership.ranks_of(context.replica_id) == context.ranks:
            return membership
        if time.monotonic() > deadline:
            raise ProcessGroupError(f"{context.replica_id} believes {context.ranks}, and the world has not agreed in time")
        time.sleep(POLL_S)


def _ask_for_world(seen: str | None, deadline: float) -> Membership:
    context = get_replica_context()
    while True:
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            raise ProcessGroupError(f"not every rank of {context.deployment_id} had a holder in time")
        try:
            controller = ray.get_actor(names.CONTROLLER, namespace=context.namespace)
            # Not ray.get, which warns of blocking an actor's event loop: this is another thread.
            asked = controller.world.options(max_task_retries=0).remote(context.deployment_id, seen, left_s).future()
            membership: Membership | None = asked.result(left_s + ANSWER_S)
        except TimeoutError:  # nothing has changed
            continue
        except (RayError, ValueError):  # the controller is down: it comes back
            time.sleep(POLL_S)
            continue
        if membership is None:
            raise ProcessGroupError(f"{context.deployment_id} does not exist (any more)")
        return membership


def _own_ranks(membership: Membership) -> tuple[int, int, int]:
    ranks = membership.ranks_of(get_replica_context().replica_id)
    assert ranks is not None, "a complete world has been checked to have this replica"
    return ranks


def _meeting_key(context: ReplicaContext) -> bytes:
    return names.meeting_key(context.namespace, context.deployment_id)


def _publish(membership: Membership, address: str, port: int) -> None:
    text = json.dumps({"generation": membership.generation, "address": address, "port": port}).encode()
    internal_kv._internal_kv_put(_meeting_key(get_replica_context()), text, overwrite=True, namespace=names.KV_NAMESPACE)


def _find_meeting(membership: Membership, deadline: float) -> _Meeting:
    key = _meeting_key(get_replica_context())
    while True:
        text = internal_kv._internal_kv_get(key, namespace=names.KV_NAMESPACE)
        if text is not None:
            found = json.loads(text)
            if found["generation"] == membership.generation:
                return _Meeting(membership, found["address"], found["port"])
        if time.monotonic() > deadline:
            raise ProcessGroupError("rank 0 has not come in time")
        time.sleep(POLL_S)
