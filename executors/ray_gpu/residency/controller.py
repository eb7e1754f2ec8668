"""The controller of a fleet: one detached actor per namespace, which hosts the machine of `rankcore.dispatching`.

Ray restarts it when it dies: it then goes on from the state that it kept in the cluster's store.
"""

import asyncio
import time
from collections.abc import Iterable
from functools import partial

from msgspec.structs import replace

from executors.engine.fleets import FLEET
from executors.engine.journal import lenient_journal
from executors.ray_gpu.environment import hold, refer_to, uploaded
from executors.ray_gpu.errors import NameInUseError, UnknownNameError
from executors.ray_gpu.residency.hosts import Hosts
from executors.ray_gpu.residency.machine import Machine
from executors.ray_gpu.residency.moves import Moves
from executors.ray_gpu.residency.nodes import Nodes
from executors.ray_gpu.residency.options import FleetOptions
from executors.ray_gpu.residency.packing import opened
from executors.ray_gpu.residency.ranks import Ranks
from executors.ray_gpu.residency.requests import Requests
from executors.ray_gpu.residency.restart import go_on
from executors.ray_gpu.residency.store import FleetStore
from executors.ray_gpu.residency.words import Answer, Declared, FleetStanding, unpack
from executors.ray_gpu.versions import versions
from executors.ray_gpu.watched import Watched
from executors.ray_gpu.world import persist
from rankcore.codec import from_json, to_json
from rankcore.dispatching import FleetImage, FleetState, FleetStep, ServingChanged, fleet_of, image_of, open_fleet
from rankcore.residency import Level, Wanted
from rankcore.residency.events import DeployRequested, EvictRequested, ScaleRequested
from rankcore.values import ReplicaId


class FleetController:
    """What callers talk to."""

    async def __init__(self, namespace: str, options: bytes, journal: str | None) -> None:  # type: ignore[misc]
        """Go on from what an earlier controller has kept, or begin."""
        self._watched = Watched()
        self._watched.begin()
        self._store = FleetStore(namespace)
        kept = await persist(lambda: self._store.get("options"))
        if kept is None:
            await persist(lambda: self._store.put("options", options))
        chosen: FleetOptions = unpack(kept or options)
        origin = await persist(self._store.origin)
        epoch = await persist(self._store.raise_epoch)
        self._models = await persist(self._store.models)
        text = await persist(lambda: self._store.get("state"))
        state = _first_state(chosen, text)
        writer = lenient_journal(f"{journal}.{epoch}", kind=FLEET) if journal is not None else None
        if writer is not None:
            writer.begin(image_of(state), FleetStep(state, (), ()))
        self._unsaved = asyncio.Event()
        self._machine = machine = Machine(state, lambda: time.time() - origin, writer, self._placed)
        self._hosts = Hosts(namespace, epoch, lambda *lost: self._moves.on_host_lost(*lost))
        self._nodes = Nodes(machine, chosen, namespace)
        self._moves = Moves(machine, self._hosts, self._models, self._nodes.places, epoch)
        self._requests = Requests(machine, self._hosts, epoch, self._moves.restart)
        ranks = Ranks(machine, self._hosts, self._moves, epoch)
        machine.handlers |= self._moves.handlers | self._requests.handlers | ranks.handlers
        if epoch > 1:
            await go_on(machine, self._hosts, self._nodes, self._moves, self._requests, epoch)
            self._end_unneeded(replica_id for replica_id, _ in self._hosts)
        machine.spawn(self._keep_state())
        machine.spawn(hold(self._packages))
        machine.spawn(self._nodes.watch())

    # -- what callers want

    async def hello(self) -> dict[str, str]:
        """Which versions speak here."""
        return versions()

    async def deploy(self, declared: tuple[Declared, ...], takes_names: bool) -> None:
        """Have models HOT, so many replicas of each. One request. Repeatable.

        Args:
            declared: The models. Their code is not loaded here: it may need an environment that this process does not have.
            takes_names: Whether a model may replace one of another class that has its name.

        Raises:
            NameInUseError: A name belongs to another class. Nothing was deployed.
        """
        machine = self._machine
        packed = [opened(each.packed) for each in declared]
        asked = tuple(
            Wanted(spec=replace(each.spec, version=model.version), replicas=each.replicas)
            for each, model in zip(declared, packed, strict=True)
        )
        DeployRequested(wanted=asked, at=machine.now())  # refused before anything is changed
        await persist(partial(refer_to, frozenset().union(*(uploaded(model.runtime_env) for model in packed))))
        for each, model in zip(declared, packed, strict=True):
            self._check_name(each.spec.model, model.class_name, takes_names)
        self._models.update({each.spec.model: each.packed for each in declared})  # nobody else is asked in between
        for each in declared:
            await persist(partial(self._store.put, f"model/{each.spec.model}", each.packed))
            machine.tell(ServingChanged(spec=each.serving, at=machine.now()))
        machine.tell(DeployRequested(wanted=asked, at=machine.now()))

    def _check_name(self, name: str, class_name: str, takes_names: bool) -> None:
        there_is = opened(self._models[name]).class_name if name in self._models else class_name
        if there_is != class_name and not takes_names:
            raise NameInUseError(
                f"{name} is the name of a model of {there_is} already: deploy {class_name} with another "
                "Model(name=...), or pass replace=True to deploy()"
            )

    def _packages(self) -> frozenset[str]:
        return frozenset().union(*(uploaded(opened(packed).runtime_env) for packed in self._models.values()))

    async def scale(self, model: str, replicas: int) -> None:
        """Have so many replicas of a model HOT."""
        self._check(model)
        self._machine.tell(ScaleRequested(model=model, replicas=replicas, at=self._machine.now()))

    async def evict(self, model: str | None, replica_id: str | None, keep: str) -> None:
        """Take a model, or one of its replicas, off the GPU."""
        if model is not None:
            self._check(model)
        elif replica_id not in self._machine.state.residency.replicas:
            raise UnknownNameError(f"there is no replica {replica_id!r}: `rankcore where MODEL` shows which there are")
        self._machine.tell(EvictRequested(model=model, replica_id=replica_id, keep=Level(keep), at=self._machine.now()))

    async def standing(self) -> FleetStanding:
        """Where everything is, and why."""
        return self._machine.memory.standing(self._machine.state)

    async def ask(self, request_id: str, model: str, call: bytes, timeout_s: float | None, again: bool) -> Answer:
        """Answer a request, once its model is HOT. Repeatable as long as it has not been answered."""
        return await self._requests.ask(request_id, model, call, timeout_s, again)

    async def told(self, request_id: str, after: int) -> object:
        """How a request stands, once that has changed; None: nothing new for long, or it is over."""
        return await self._requests.told(request_id, after)

    async def cancel(self, request_id: str) -> None:
        """Nobody waits for the answer any more."""
        self._requests.cancel(request_id)

    async def shut_down(self) -> None:
        """End all replicas and forget everything. The actor itself is ended by whoever asked."""
        self._machine.close()
        await asyncio.gather(*(self._hosts.end(*key) for key in self._hosts))
        await self._nodes.forget()
        await persist(self._store.forget)

    def _check(self, model: str) -> None:
        if model not in self._machine.state.residency.models:
            known = ", ".join(sorted(self._machine.state.residency.models)) or "none"
            raise UnknownNameError(f"there is no model {model!r}; deployed are: {known}")

    # -- what follows from each step

    def _placed(self, replica_ids: frozenset[ReplicaId]) -> None:
        self._unsaved.set()
        self._end_unneeded(replica_ids)

    def _end_unneeded(self, replica_ids: Iterable[ReplicaId]) -> None:
        for key in self._hosts.unneeded(replica_ids, self._machine.state.residency.replicas.get):
            self._machine.spawn(self._hosts.end(*key))

    async def _keep_state(self) -> None:
        while True:
            await self._unsaved.wait()
            self._unsaved.clear()
            text = to_json(image_of(self._machine.state)).encode()
            await persist(lambda text=text: self._store.put("state", text))  # type: ignore[misc]


def _first_state(options: FleetOptions, kept: bytes | None) -> FleetState:
    if kept is None:
        return open_fleet(options.dispatch, options.residency)
    return fleet_of(from_json(kept.decode(), FleetImage))
