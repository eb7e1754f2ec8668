"""The books, open for one step: the only code that writes records and nodes, so that what is held and what is free agree.

A ledger lives only while a step runs, so changing it in place is invisible from outside.
"""

from typing import Any

from msgspec.structs import replace

from rankcore.residency.commands import Command, WakeAt
from rankcore.residency.fit import Place
from rankcore.residency.index import Index, Shape, Shelf
from rankcore.residency.levels import MOVES, Level, Phase
from rankcore.residency.notes import ResidencyNote, ResidencyNoteKind
from rankcore.residency.queue import QueueDraft
from rankcore.residency.room import Books, RoomDraft
from rankcore.residency.roster import Group, RosterDraft, due_at, ripe_at
from rankcore.residency.spec import ModelSpec
from rankcore.residency.state import Gpu, ResidencyNode, ResidencyState, Resident, replica_id_of
from rankcore.values import NodeId, ReplicaId

UNPLACED = (Group.WAITING, Group.WARM, Group.COLD)
"""Who has no place on GPUs is in one of these."""


class Ledger:
    """The tables of a state, open for change, with what a step gives out.

    Attributes:
        commands, notes: Given out so far.
        places: Who has got a place, where, and whom it displaces at what cost.
        roomier: Nodes where something may fit now that did not fit before.
        departed: Who has begun to leave the GPUs, and whether another one is to be wanted in its place.
        head: The reservation of who is first in line.
        newcomers: Who has begun to wait.
        stirred: Whether another one may be first in line now.
        relieved: Whether bytes were freed on the node of the reservation, and not looked at since.
        heirs: Who has gone ahead of the first in line, to the place of who it succeeds.
    """

    def __init__(self, state: ResidencyState, at: float) -> None:
        self.policy = state.policy
        self.nodes = state.nodes
        self.replicas = state.replicas
        self.models = state.models
        self.asked = state.asked
        self.clock = max(state.clock, at)
        self.serial = state.serial
        self.moves = state.moves
        self.requests = state.requests
        self.waking = state.waking
        self.head = state.head
        self.broken_off = state.broken_off
        self.roster = RosterDraft(state.index.roster)
        self.queue = QueueDraft(state.index.queue)
        self.room = RoomDraft(state.index.room)
        self.commands: list[Command] = []
        self.notes: list[ResidencyNote] = []
        self.places: list[tuple[Resident, Place, tuple[ReplicaId, ...], int]] = []
        self.roomier: dict[NodeId, None] = {}
        self.departed: list[tuple[ReplicaId, bool]] = []
        self.newcomers: list[ReplicaId] = []
        self.stirred = False
        self.relieved = False
        self.heirs: list[ReplicaId] = []
        # Whose turn is over by now shows on the shelves from the beginning of the step.
        self._touched: dict[NodeId, None] = {self.node_of(each): None for each in self.roster.ripe_by(self.clock)}
        self._at_rest: dict[ReplicaId, None] = {}

    def close(self) -> ResidencyState:
        """The state that this ledger has come to."""
        self._refresh()
        return ResidencyState.of(
            Index(roster=self.roster.freeze(), queue=self.queue.freeze(), room=self.room.freeze()),
            policy=self.policy,
            nodes=self.nodes,
            replicas=self.replicas,
            models=self.models,
            asked=self.asked,
            clock=self.clock,
            serial=self.serial,
            moves=self.moves,
            requests=self.requests,
            head=self.head,
            broken_off=self.broken_off,
            waking=None if self.waking is not None and self.waking <= self.clock else self.waking,
        )

    # ---- records

    def new_record(self, model: str) -> Resident:
        """A record of one more replica: COLD, and RESTING."""
        record = Resident(replica_id=replica_id_of(model, self.serial), model=model, since=self.clock, last_used=self.clock)
        self.serial += 1
        self.put(record)
        return record

    def change(self, record: Resident, **fields: Any) -> Resident:
        """Write a record again with other fields; `since` follows its phase."""
        if "phase" in fields and fields["phase"] is not record.phase:
            assert (record.phase, fields["phase"]) in MOVES, f"{record.replica_id}: {record.phase} to {fields['phase']}"
            fields["since"] = self.clock
        changed = replace(record, **fields)
        self.put(changed)
        return changed

    def put(self, record: Resident) -> None:
        """Write a record; the books of the nodes follow."""
        old = self.replicas.get(record.replica_id)
        self.replicas = self.replicas.set(record.replica_id, record)
        self._book_gpus(old, record)
        self._book_cpu(old, record)
        spec = self.models[record.model]
        self.roster.change(old, record, spec)
        self.queue.change(old, record, spec, self.asked[record.model])
        ripe_before = ripe_at(old, spec) if old is not None else None
        ripe_after = ripe_at(record, spec)
        if ripe_before != ripe_after:
            self.roster.ripen(record.replica_id, ripe_before, ripe_after, self.clock)
            if ripe_before is not None and ripe_before > self.clock and record.phase is Phase.SERVING:
                assert record.node_id is not None
                self.roomier[record.node_id] = None
        if record.phase is Phase.WAITING and (old is None or old.phase is not Phase.WAITING):
            self.newcomers.append(record.replica_id)
            self.stirred = True
        if self.head is not None and self.head.replica_id == record.replica_id and record.phase is not Phase.RESERVING:
            self.head, self.stirred = None, True
        if record.gpus and record.node_id is not None:
            self._touched[record.node_id] = None
        if record.phase is Phase.RESTING and record.level is Level.COLD:
            self._at_rest[record.replica_id] = None

    def node_of(self, replica_id: ReplicaId) -> NodeId:
        """Where a replica is that has a place."""
        node_id = self.replicas[replica_id].node_id
        assert node_id is not None
        return node_id

    def spec_of(self, record: Resident) -> ModelSpec:
        """Of its model."""
        return self.models[record.model]

    def records(self, model: str, group: Group) -> list[Resident]:
        """The replicas of a model in a group, the oldest first."""
        return [self.replicas[replica_id_of(model, serial)] for serial in self.roster.members(model, group)]

    def set_spec(self, spec: ModelSpec) -> None:
        """The newest spec of a model; what it says of those that serve holds at once.

        Costs O(the replicas of the model) where its size is another one.
        """
        old = self.models.get(spec.model)
        self.models = self.models.set(spec.model, spec)
        if old is None or old == spec:
            return
        self.stirred = True
        self.queue.respecify(self.records(spec.model, Group.WAITING), spec, self.asked[spec.model])
        self.roomier |= {each: None for each in old.avoids if each in self.nodes and each not in spec.avoids}
        self._touched |= {self.node_of(each.replica_id): None for each in self.records(spec.model, Group.PLACED)}
        for record in self.records(spec.model, Group.SERVING):
            self.roster.ripen(record.replica_id, ripe_at(record, old), ripe_at(record, spec), self.clock)
            self.roomier[self.node_of(record.replica_id)] = None
        for record in (*self.records(spec.model, Group.SERVING), *self.records(spec.model, Group.WARM)):
            self.roster.time(record.replica_id, due_at(record, old), due_at(record, spec))
        if old.size_of != spec.size_of:
            # What was measured was another thing.
            measured = [each for group in UNPLACED for each in self.records(spec.model, group) if each.size_bytes]
            for record in measured:
                self.change(record, size_bytes=0)

    def ask(self, model: str, request: int) -> None:
        """A model is asked for by another request."""
        self.stirred = True
        self.asked = self.asked.set(model, request)
        self.queue.ask(model, request)

    def end_at_rest(self) -> None:
        """Records end that nobody wants and that hold nothing, and with the last one of a model what is known of it."""
        for replica_id in self._at_rest:
            record = self.replicas[replica_id]
            if record.phase is Phase.RESTING and record.level is Level.COLD:
                self.replicas = self.replicas.delete(replica_id)
                self.roster.end(record)
                if not any(self.roster.members(record.model, group) for group in Group):
                    self.models = self.models.delete(record.model)
                    self.asked = self.asked.delete(record.model)

    def nodes_of_moves(self) -> list[NodeId]:
        """Where somebody has begun to leave, or has got a place."""
        left = [self.replicas[replica_id].node_id for replica_id, _ in self.departed if replica_id in self.replicas]
        return [each for each in (*left, *(place.node_id for _, place, *_ in self.places)) if each is not None]

    def promised(self, replica_id: ReplicaId) -> bool:
        """Whether a replica is to leave for who is first in line."""
        return self.head is not None and replica_id in self.replicas[self.head.replica_id].waits_for

    # ---- nodes

    def set_node(self, node: ResidencyNode) -> None:
        """A node is new, or has other capacities: what it has more may be at the place of who is first in line."""
        self.nodes = self.nodes.set(node.node_id, node)
        self.relieved = True
        self._touched[node.node_id] = None

    def learn(self, node: ResidencyNode) -> None:
        """More is known of how fast weights come to a node: room there is as it was."""
        self.nodes = self.nodes.set(node.node_id, node)

    def delete_node(self, node_id: NodeId) -> None:
        """A node is gone; nobody holds anything there."""
        self.nodes = self.nodes.delete(node_id)
        self._touched[node_id] = None
        self.roomier.pop(node_id, None)

    def on_gpus(self, node_id: NodeId) -> list[Resident]:
        """Who has a place on the GPUs of a node, ids ascending."""
        return [self.replicas[replica_id] for replica_id in self.roster.on_gpus.get(node_id, ())]

    def with_copies(self, node_id: NodeId) -> list[Resident]:
        """Who holds bytes in the CPU memory of a node, ids ascending."""
        return [self.replicas[replica_id] for replica_id in self.roster.copies.get(node_id, ())]

    def shelf(self, shape: Shape, degree: int) -> Shelf:
        """The nodes of a shape by their room for so many GPUs, as they are now."""
        self._refresh()
        return self.room.shelf(shape, degree, self._books())

    def shapes(self) -> list[Shape]:
        """The shapes that nodes have now, in order."""
        self._refresh()
        return sorted(self.room.shapes)

    def _refresh(self) -> None:
        if self._touched:
            books = self._books()
            for node_id in self._touched:
                self.room.refresh(node_id, books)
            self._touched = {}

    def _books(self) -> Books:
        return Books(self.nodes, self.replicas, self.models, self.roster.on_gpus, self.policy, self.clock)

    def _book_gpus(self, old: Resident | None, new: Resident) -> None:
        if old is not None and (old.node_id, old.gpus, old.gpu_bytes) == (new.node_id, new.gpus, new.gpu_bytes):
            return
        self.relieved = True
        changes: dict[NodeId, dict[int, int]] = {}
        for record, sign in ((old, 1), (new, -1)):
            if record is not None and record.gpus:
                assert record.node_id is not None
                of_node = changes.setdefault(record.node_id, {})
                for gpu, held in zip(record.gpus, record.gpu_bytes, strict=True):
                    of_node[gpu] = of_node.get(gpu, 0) + sign * held
        for node_id, of_node in changes.items():
            node = self.nodes[node_id]
            gpus = list(node.gpus)
            for number, freed in of_node.items():
                gpus[number] = _freed(gpus[number], freed)
                if freed > 0:
                    self.roomier[node_id] = None
            self.nodes = self.nodes.set(node_id, replace(node, gpus=tuple(gpus)))
            self._touched[node_id] = None

    def _book_cpu(self, old: Resident | None, new: Resident) -> None:
        if old is not None and (old.copy_node_id, old.cpu_bytes) == (new.copy_node_id, new.cpu_bytes):
            return
        changes: dict[NodeId, int] = {}
        for record, sign in ((old, 1), (new, -1)):
            if record is not None and record.copy_node_id is not None:
                changes[record.copy_node_id] = changes.get(record.copy_node_id, 0) + sign * record.cpu_bytes
        for node_id, freed in changes.items():
            node = self.nodes[node_id]
            # The CPU's books are a GPU's: capacity, free, excess.
            books = _freed(Gpu(node.cpu_capacity_bytes, node.cpu_free_bytes, node.cpu_excess_bytes), freed)
            self.nodes = self.nodes.set(
                node_id,
                replace(
                    node,
                    cpu_capacity_bytes=books.capacity_bytes,
                    cpu_free_bytes=books.free_bytes,
                    cpu_excess_bytes=books.excess_bytes,
                ),
            )

    # ---- what a step gives out

    def next_move(self) -> int:
        """The number of the next command."""
        move = self.moves
        self.moves += 1
        return move

    def note(
        self,
        kind: ResidencyNoteKind,
        rule: str,
        record: Resident | None = None,
        because: str = "",
        *,
        model: str | None = None,
        node_id: NodeId | None = None,
        size: int = 0,
    ) -> None:
        """Say why something was decided."""
        self.notes.append(
            ResidencyNote(
                kind,
                rule,
                model=record.model if record is not None else model,
                replica_id=record.replica_id if record is not None else None,
                node_id=node_id if node_id is not None or record is None else record.node_id,
                because=because,
                bytes=size,
            )
        )

    def wake(self, due: float) -> None:
        """Ask to be woken, unless that was asked for an earlier time that is still to come."""
        if self.waking is None or due < self.waking or self.waking <= self.clock:
            self.waking = due
            self.commands.append(WakeAt(due))


def source_of(record: Resident) -> Level:
    """From where it can be loaded at its place."""
    stays = record.cpu_bytes and not record.dropping
    return Level.WARM if stays and record.copy_node_id == record.node_id else Level.COLD


def has_copy(record: Resident) -> bool:
    """Whether it has a copy in CPU memory that is there and stays."""
    return record.copy_node_id is not None and not record.dropping and record.phase is not Phase.LEAVING


def _freed(gpu: Gpu, freed: int) -> Gpu:
    """With so many bytes given up, or taken where `freed` is negative. An excess is paid off first."""
    paid = min(gpu.excess_bytes, freed) if freed > 0 else 0
    free = gpu.free_bytes + freed - paid
    assert free >= 0, f"{-freed} bytes are taken where {gpu.free_bytes} are free"
    return Gpu(gpu.capacity_bytes - paid, free, gpu.excess_bytes - paid)
