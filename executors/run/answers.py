"""What users ask of a local controller, and what it answers: the verbs of the one on Ray, with the same words and checks.

`executors.operations` makes events of them, and `executors.node_reports` says what becomes of a node's replicas.
"""

import json
import signal
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import attrs
import msgspec

from executors import operations
from executors.apps.said import spec_options
from executors.deployment_ids import split
from executors.engine.recent_notes import Notes, RecentNotes
from executors.maintenance import Cordon, Maintenance, says_more
from executors.node_reports import Place, report
from executors.ray_gpu.declaration import option_of
from executors.ray_gpu.errors import InvalidDeploymentError, UnknownNameError, not_one
from executors.ray_gpu.overview import CordonedNode, Status
from rankcore.cluster import ClusterState, Entry
from rankcore.cluster.events import ClusterEvent
from rankcore.errors import InvalidSpecError, RankcoreError
from rankcore.events import NodeCordoned, NodeDrainRequested, NodeUncordoned, ReplaceRequested, StopRequested
from rankcore.values import NodeId, ReplicaId


class Addressee(Protocol):
    """The controller, as far as it can be asked.

    Attributes:
        maintenance: What was asked of nodes and replicas before.
        nodes: Those that this machine is divided into.
        application: MODULE:APP.
        notes: The newest of them.
    """

    maintenance: Maintenance
    application: str
    notes: RecentNotes
    nodes: tuple[NodeId, ...]

    @property
    def entry(self) -> Entry | None:
        """The deployment; None: it is gone."""

    @property
    def state(self) -> ClusterState:
        """Of the machine."""

    def now(self) -> float:
        """Seconds on its clock."""

    def status(self) -> Status:
        """How it is."""

    def check(self, event: ClusterEvent) -> None:
        """Raise what `request` would raise."""

    def request(self, event: ClusterEvent) -> None:
        """Have the machine take an event; it is stored when this returns.

        Raises:
            RankcoreError: It is refused, or cannot be stored.
        """

    def check_code(self, version: str) -> None:
        """Whether replicas of a version can be started by now.

        Raises:
            InvalidDeploymentError: They cannot.
        """

    def close_nodes(self) -> None:
        """Nothing new comes to nodes that are cordoned, from now on."""

    def forget_gone(self) -> None:
        """What was asked of nodes and replicas that there are no more is over."""


class Answers:
    """Answers requests, one after the other."""

    def __init__(self, asked: Addressee) -> None:
        self._asked = asked

    def line(self, line: str) -> str:
        """The answer to a line: what was asked is done, or nothing is."""
        try:
            request = json.loads(line)
            answer = _VERBS[request["verb"]](self, *request["arguments"])
        except InvalidSpecError as error:
            return _refusal(option_of(error))
        except RankcoreError as error:
            return _refusal(error)
        except OSError as error:
            return _refusal(InvalidDeploymentError(f"it is as it was, since nothing can be written: {error}"))
        except (ValueError, KeyError, TypeError) as error:
            text = f"the controller, which may be of another release, cannot be asked so: {type(error).__name__}: {error}"
            return _refusal(InvalidDeploymentError(text))
        return msgspec.json.encode({"answer": answer}).decode()

    # -- deployments

    def status(self) -> Status:
        """How it is."""
        return self._asked.status()

    def config(self) -> dict[str, Any]:
        """Its application, as a file of applications says it."""
        spec = self._entry.spec.ranks
        app_name, name = split(spec.name)
        options = {"num_replicas": self._entry.target.replicas, **spec_options(spec)}
        return {"name": app_name, "import_path": self._asked.application, "deployments": [{"name": name, **options}]}

    def notes(self, after: int) -> Notes:
        """What was decided after the note of this number of this epoch."""
        return attrs.evolve(self._asked.notes.after(after), epoch=self._asked.state.epoch, now=self._asked.now())

    def delete(self) -> None:
        """The command that runs it ends it, as by Ctrl-C there: once this is answered."""
        ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN  # as for what a script starts in the background
        signal.raise_signal(signal.SIGTERM if ignored else signal.SIGINT)

    def change(self, fields: operations.Fields, stop_first: list[ReplicaId]) -> None:
        """Other fields of the spec; who is to be stopped first by a downscale."""
        if "restart_token" in fields:  # all are started anew
            self._asked.check_code(fields.get("version", self._entry.ranks.spec.version))
        for event in operations.changed(self._entry, fields, self._asked.now(), stop_first=tuple(stop_first)):
            self._asked.request(event)

    def rollback(self) -> None:
        """What was healthy last is wanted again."""
        self.change(operations.rolled_back(self._entry), [])

    def retry(self, ranks: list[int]) -> None:
        """What failed is tried again now."""
        self._asked.request(operations.retried(self._entry, tuple(ranks), self._asked.now()))

    # -- replicas

    def stop_replicas(self, replica_ids: list[str]) -> None:
        """These are stopped at once, and replaced."""
        self._asked.request(StopRequested(replica_ids=self._meant(replica_ids), at=self._asked.now()))

    def replace_replicas(self, replica_ids: list[str], deadline_s: float | None) -> None:
        """Each of these is replaced once its successor has a place."""
        meant, now = self._meant(replica_ids), self._asked.now()
        deadline_at = now + deadline_s if deadline_s is not None else None
        event = ReplaceRequested(replica_ids=meant, deadline_at=deadline_at, at=now)
        self._asked.check(event)
        self._asked.forget_gone()
        self._asked.maintenance.ask(event)
        self._asked.request(event)

    # -- nodes

    def cordon(self, name: str) -> CordonedNode:
        """Nothing new comes to a node."""
        return self._shut(NodeCordoned(node_id=self._node(name), at=self._asked.now()))

    def drain(self, name: str, deadline_s: float | None, reason: str) -> CordonedNode:
        """A node is left by all, by a deadline or once there is another place."""
        now = self._asked.now()
        deadline_at = now + deadline_s if deadline_s is not None else None
        return self._shut(NodeDrainRequested(node_id=self._node(name), deadline_at=deadline_at, reason=reason, at=now))

    def uncordon(self, name: str) -> CordonedNode:
        """Cordon and drain are over."""
        node_id = self._node(name)
        self._asked.maintenance.forget(nodes=(node_id,))
        return self._tell(NodeUncordoned(node_id=node_id, at=self._asked.now()))

    def _shut(self, event: Cordon) -> CordonedNode:
        if not says_more(event, self._asked.maintenance.cordons.get(event.node_id)):
            return self._report(event.node_id)
        self._asked.maintenance.ask(event)
        return self._tell(event)

    def _tell(self, event: Cordon | NodeUncordoned) -> CordonedNode:
        self._asked.close_nodes()
        self._asked.request(event)
        return self._report(event.node_id)

    def _node(self, name: str) -> NodeId:
        if name not in self._asked.nodes:
            raise UnknownNameError(not_one("node", name, (), self._asked.nodes))
        return name

    def _report(self, node_id: NodeId) -> CordonedNode:
        return report_of(self._asked, node_id)

    # -- whom names mean

    @property
    def _entry(self) -> Entry:
        """A deployment that is to stay."""
        entry = self._asked.entry
        if entry is None or entry.deleting:
            raise InvalidDeploymentError("it is being deleted")
        return entry

    def _meant(self, replica_ids: list[str]) -> tuple[ReplicaId, ...]:
        return operations.replicas_meant(replica_ids, {each: each for each in self._entry.ranks.replicas})


def report_of(asked: Addressee, node_id: NodeId) -> CordonedNode:
    """How it stands with a node."""
    shown = [] if asked.entry is None else [(asked.entry, str)]
    return report(node_id, Place(), asked.state, asked.now(), shown)


def _refusal(error: Exception) -> str:
    return json.dumps({"error": str(error), "kind": type(error).__name__})


VERBS = (
    *("status", "config", "notes", "delete", "change", "rollback", "retry"),
    *("stop_replicas", "replace_replicas", "cordon", "drain", "uncordon"),
)
_VERBS: Mapping[str, Callable[..., object]] = {name: getattr(Answers, name) for name in VERBS}
