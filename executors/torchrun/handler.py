"""The rendezvous handler: what torchrun calls, as `rankcore.gang` has decided.

What an agent cannot be is said in one line, and torchrun ends with status 2, before any worker is started: so `create` joins at
once. After that methods raise errors of torchrun's own, and nothing else.

torchrun gives a round to its workers in four steps: it asks here, and then all agents exchange their numbers of workers over
the store, for which it waits up to 300 s. If one dies before, the others stand still. So an agent is given a round only when
all agents of it are there, and goes back for another one when one of them is gone by then.

Who is a spare to the end is told that the job is done by `RendezvousGracefulExitError`, as torchrun wants it. torchrun 2.13
then trips over its own missing result (`launch_agent`: `None.is_failed()`); `shutdown`, which it calls on its way out, ends
the process well in exactly this case.
"""

import atexit
import logging
import os
import socket
import sys
import time
import uuid
from collections.abc import Callable
from datetime import timedelta
from functools import partial, wraps
from typing import NoReturn, ParamSpec, TypeVar

from torch.distributed import DistError, PrefixStore, Store, TCPStore
from torch.distributed.elastic.multiprocessing import SignalException
from torch.distributed.elastic.rendezvous import (
    RendezvousClosedError,
    RendezvousError,
    RendezvousGracefulExitError,
    RendezvousHandler,
    RendezvousInfo,
    RendezvousParameters,
    RendezvousStateError,
    RendezvousStoreInfo,
    RendezvousTimeoutError,
)
from torch.distributed.elastic.rendezvous.utils import parse_rendezvous_endpoint
from torch.distributed.elastic.utils.distributed import get_free_port

from executors.torchrun.ending import MEMBER, kill_this, machine, processes_of, started_ticks, terminate_this
from executors.torchrun.lease import GRACE_S, LeaseGuard
from executors.torchrun.link import Link, member_of
from executors.torchrun.messages import MAY_ASK_AGAIN, VERSION, AgentPhase, AskToJoin, Hello, Standing
from executors.torchrun.options import PORT, AgentOptions, GangOptionError, options_of
from rankcore.gang import RefusalReason

BACKEND = "rankcore"
BAD_INPUT = 2
STORE_CONNECT_S = 5.0
STORE_S = 60.0
LOOK_EVERY_S = 0.02
LAST_WORD_S = 2.0
ASK_AGAIN_S = 0.5
THERE = "rankcore/there"

logger = logging.getLogger("rankcore.torchrun")

P = ParamSpec("P")
T = TypeVar("T")


def create(parameters: RendezvousParameters) -> RendezvousHandler:
    """Make the handler of this agent, which has joined. Exits with status 2 and one line if it cannot be of the gang."""
    try:
        options = options_of(parameters.config)
        host, port = parse_rendezvous_endpoint(parameters.endpoint, PORT)
    except (GangOptionError, ValueError) as error:
        _refuse(str(error))
    if options.nproc is None:
        logger.warning("--rdzv-conf nproc=N is missing: ranks move where agents have different --nproc-per-node")
    link = _linked(parameters, options, host, port)
    try:
        _join(link, options, f"{host}:{port}")
    except SystemExit:
        link.stop(LAST_WORD_S)
        raise
    return GangRendezvous(link, parameters.run_id, host, parameters.local_addr)


def _refuse(text: str) -> NoReturn:
    sys.stderr.write(f"rankcore: error: {text}\n")
    raise SystemExit(BAD_INPUT)


def _linked(parameters: RendezvousParameters, options: AgentOptions, host: str, port: int) -> Link:
    member = member_of(options.node_id, uuid.uuid4().hex[:12])
    os.environ[MEMBER] = member  # which workers inherit
    pid = os.getpid()
    hello = Hello(VERSION, parameters.run_id, member, options.node_id, machine(), pid, started_ticks(pid))
    join = AskToJoin(0, None, None, options.nproc, parameters.max_nodes)
    link = Link(host, port, hello, join, LeaseGuard(terminate_this, partial(kill_this, member)))
    atexit.register(_last_word, link, member)
    link.start()
    return link


def _last_word(link: Link, member: str) -> None:
    """An agent that was told to end (SIGTERM) says so, when none of its workers is left: nobody waits for its lease."""
    if not processes_of(member, os.getpid()):
        link.stop(LAST_WORD_S)


def _join(link: Link, options: AgentOptions, where: str) -> None:
    if not link.wait(options.connect_timeout_s, lambda: link.welcome is not None or link.is_closed):
        _refuse(f"no coordinator answers at {where} within {options.connect_timeout_s:g} s: start `rankcore gang serve`")
    patience_s = (link.welcome.lease_s if link.welcome is not None else 0) + 2 * GRACE_S
    until_s = time.monotonic() + patience_s
    while not link.is_closed:
        link.ask()
        link.wait(None, lambda: link.standing is not None)
        standing = link.standing
        if standing is None or standing.phase is not AgentPhase.REFUSED:
            return
        if standing.reason != MAY_ASK_AGAIN or time.monotonic() > until_s:
            break
        link.standing = None
        time.sleep(ASK_AGAIN_S)
    standing = link.standing
    if standing is not None and standing.reason not in (RefusalReason.DONE, RefusalReason.TIMED_OUT):
        _refuse(f"{where} refuses this agent: {standing.detail}")


def _raises_only_its_own(method: Callable[P, T]) -> Callable[P, T]:
    @wraps(method)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return method(*args, **kwargs)
        except (RendezvousError, SignalException):  # the second is torchrun's handler of SIGTERM, in the middle of a wait
            raise
        except Exception as error:
            raise RendezvousStateError(f"{type(error).__name__}: {error}") from error

    return guarded


class GangRendezvous(RendezvousHandler):
    """torchrun's side of a gang."""

    def __init__(self, link: Link, run_id: str, host: str, local_address: str | None) -> None:
        self._link, self._run_id, self._host, self._local_address = link, run_id, host, local_address
        self._is_spare_to_the_end = False

    def get_backend(self) -> str:
        """Its name."""
        return BACKEND

    def get_run_id(self) -> str:
        """The job's id."""
        return self._run_id

    @_raises_only_its_own
    def next_rendezvous(self) -> RendezvousInfo:
        """Wait for the next round, with all its agents."""
        while True:
            self._link.ask()
            self._link.wait(None, self._link.has_answer)
            standing = self._link.standing
            if standing is not None and standing.phase is AgentPhase.REFUSED:
                self._refused(standing)
            round_ = self._link.take()
            if round_ is None:
                continue
            info = self._met(round_)
            if info is not None:
                return info

    def is_closed(self) -> bool:
        """Whether there will be no more rounds."""
        return self._link.is_closed

    def set_closed(self) -> None:
        """The job is done."""
        self._link.close()

    def num_nodes_waiting(self) -> int:
        """1 if the round of this agent is over; agents that are parked are no reason for one."""
        return int(self._link.needs_round)

    def shutdown(self) -> bool:
        """This agent has ended: the job is done, if it had a rank; if it was a spare, nothing follows.

        A coordinator that is being restarted is waited for: else nobody would tell it, nor the spares.
        """
        if self._link.has_run and not self._link.is_closed and self._link.welcome is not None:
            self._link.has_no_workers()
            self._link.close()
            self._link.wait(self._link.welcome.lease_s, lambda: self._link.is_closed)
        self._link.stop(LAST_WORD_S)
        if self._is_spare_to_the_end and isinstance(sys.exc_info()[1], AttributeError):
            raise SystemExit(0)
        return True

    def _refused(self, standing: Standing) -> NoReturn:
        text = standing.detail or standing.reason
        if standing.reason == RefusalReason.TIMED_OUT:
            raise RendezvousTimeoutError(text)
        if standing.reason != RefusalReason.DONE:
            raise RendezvousStateError(f"refused: {text}")
        if self._link.has_run:
            raise RendezvousClosedError("the job is done")
        self._is_spare_to_the_end = True
        raise RendezvousGracefulExitError("the job is done, and this agent was a spare")

    def _met(self, standing: Standing) -> RendezvousInfo | None:
        """The round, once all its agents are there; None: another one is needed."""
        store = self._store(standing.round)
        if store is None:
            return None
        try:
            if standing.rank == 0:
                store.set(RendezvousStoreInfo.MASTER_ADDR_KEY, self._address())
                port = get_free_port()  # type: ignore[no-untyped-call]
                store.set(RendezvousStoreInfo.MASTER_PORT_KEY, str(port))
            there = store.add(THERE, 1)
            while there < standing.world_size:
                if self._link.needs_round or self._link.is_closed:
                    return None
                time.sleep(LOOK_EVERY_S)
                there = store.add(THERE, 0)
            address = store.get(RendezvousStoreInfo.MASTER_ADDR_KEY).decode()
            port = int(store.get(RendezvousStoreInfo.MASTER_PORT_KEY))
        except DistError:
            assert self._link.welcome is not None  # a coordinator that comes back within the lease has a round for all
            if self._link.wait(self._link.welcome.lease_s + GRACE_S, lambda: self._link.needs_round):
                return None
            raise
        return RendezvousInfo(store, standing.rank, standing.world_size, RendezvousStoreInfo(address, port))

    def _store(self, round_: int) -> Store | None:
        """The coordinator's store, what is of this round; None: another one is needed, since the coordinator has ended."""
        until_s = time.monotonic() + STORE_S
        while True:
            assert self._link.welcome is not None
            port = self._link.welcome.store_port
            try:
                store = TCPStore(self._host, port, is_master=False, timeout=timedelta(seconds=STORE_CONNECT_S))
            except DistError:
                if self._link.needs_round or self._link.is_closed:
                    return None
                if time.monotonic() > until_s:
                    raise
                continue
            store.set_timeout(timedelta(seconds=STORE_S))
            return PrefixStore(f"{self._run_id}/{round_}", store)

    def _address(self) -> str:
        """Where workers of other agents find this one's."""
        if self._local_address:
            return self._local_address
        is_loopback = self._link.local_address.startswith("127.") or self._link.local_address == "::1"
        return socket.getfqdn() if is_loopback else self._link.local_address
