"""Rollouts in a controller that has Kubernetes' API: pods with ranks. UNTESTED ON A CLUSTER.

    pip install 'rankcore[kubernetes]'
    python examples/embed_in_kubernetes.py

It has run against `kubernetes_fake.py` alone, a few lines that answer as the API server does as far as this asks, and whose
kubelet runs `entrypoint` in threads. What a real one does besides is not tried. On the fake it keeps what the conformance kit
asks (`kubernetes_bench.py`), but for what it does not claim: capacities, and with them `pack_ranks`; readiness; health checks,
so one that hangs is not suspected; a lease, so of a node that is cut off no end is told until its object is deleted; static
placements. What carries over is where each line of the contract (docs/embedding.md) goes:

fence                   the epoch in a ConfigMap, raised by a replace with its resourceVersion
record                  in the same ConfigMap, replaced before the commands of a step are carried out
an older controller     Each write to a pod names the resourceVersion that was read, and the pod says the newest epoch. A newer
                        controller stamps all pods before it begins: the older one's write is a conflict, and then it sees why
who comes up late       `entrypoint` reads the epoch when its pod is there, and ends if it is of an older one
messages to a replica   annotations, numbered, since one may be said again: the newest of a kind is enough, since (epoch,
                        revision) orders them, and an older one does not replace it
an end that is true     The phase of the pod: the kubelet says that its containers have terminated, or its node's object was
                        deleted, which is for who knows that the machine is gone. A pod that is only deleted, or a node that
                        is silent, is no end; `grace_period_seconds=0` is never used, since it takes the kubelet's word away
an end is never lost    A finalizer keeps the pod until its end was told, also while no controller is there
one life                A pod is made by the controller in whose epoch its id is, which remembers whose end it has told
routes                  a label, for the selector of a Service
"""

import json
import math
import queue
import sys
import threading
import time
from collections import deque
from itertools import count

import attrs
from kubernetes import client, watch
from kubernetes.client.exceptions import ApiException

from executors import Driver
from executors.engine.deployments import Deployed, Recovered
from rankcore import DeploymentSpec, DeploymentStatus, codec
from rankcore.commands import AnnounceWorldSize, KillReplica, PublishRoutes, QueryReplica, StartReplica, StopReplica, WakeAt
from rankcore.events import (
    ClockAdvanced,
    Event,
    ReplicaDied,
    ReplicaMissing,
    ReplicaPlaced,
    ReplicaStartFailed,
    ReplicaStopped,
    SpecChanged,
)
from rankcore.replica.messages import Message, receive, started, user_code_ended
from rankcore.replica.replica import Drain, End, Refused, RunUserCode

NAMESPACE, CONTAINER = "default", "replica"
OURS = "rankcore.example/"
FINALIZER = OURS + "end-was-told"
CONFLICT, GONE, NOT_FOUND = 409, 410, 404
OVER = ("Failed", "Succeeded")
KINDS = ("world-size", "change", "query")
SAID_MAX = 8


class ReplacedError(Exception):
    """A newer controller has begun."""


def pod_name(replica_id: str) -> str:
    """A name that Kubernetes takes."""
    return replica_id.replace("#", "-")


def notes_of(pod: client.V1Pod) -> dict[str, str]:
    """What was written on a pod, by us."""
    return {key.removeprefix(OURS): text for key, text in (pod.metadata.annotations or {}).items() if key.startswith(OURS)}


def is_newer(there: str | None, text: str) -> bool:
    """Whether a change or a world size that is there is newer than the one that would replace it."""
    stamps = [json.loads(each.partition(" ")[2] or "{}") for each in (there or "", text)]
    there_revision, revision = (each.get("revision") if isinstance(each, dict) else None for each in stamps)
    if there_revision is None or revision is None:
        return False
    return (stamps[0]["epoch"], there_revision) > (stamps[1]["epoch"], revision)


# -- in the container


class Replica:
    """A replica, in its container: reads what it is told, and writes what it says, until it ends.

    Args:
        terminate: SIGTERM has come.
    """

    def __init__(self, api: client.CoreV1Api, name: str, terminate: threading.Event) -> None:
        self._api, self._name, self._terminate = api, name, terminate
        self._heard, self._said, self._ended = {}, [], queue.SimpleQueue()
        self.pod = api.read_namespaced_pod(name, NAMESPACE)
        self.start = codec.from_json(notes_of(self.pod)["start"], StartReplica)
        self.half = started(self.start, self.pod.spec.node_name)

    def user_code(self, what: RunUserCode | Drain) -> str | None:
        """Load the model, or tell it what has changed, or finish what is under way. Returns what went wrong; None: nothing."""

    def run(self) -> str:
        """Returns what went wrong in the start, for the termination message; "": nothing."""
        if Record.read(self._api, self.start.replica_id.partition("#")[0]).epoch > self.start.epoch:
            return ""
        while True:
            for reaction in self._reactions():
                match reaction:
                    case RunUserCode() | Drain():
                        threading.Thread(target=self._run, args=[reaction], daemon=True).start()
                    case End():
                        return ""
                    case ReplicaStartFailed(reason=reason):
                        return reason
                    case Refused():
                        pass
                    case event:
                        number = self._said[-1][0] + 1 if self._said else 0
                        self._said = [*self._said, [number, codec.to_plain(event)]][-SAID_MAX:]
            if notes_of(self.pod).get("said", "[]") != json.dumps(self._said):
                said = {"annotations": {OURS + "said": json.dumps(self._said)}}
                self._api.patch_namespaced_pod(self._name, NAMESPACE, {"metadata": said})
            time.sleep(0.02)  # a watch would do

    def _run(self, what: RunUserCode | Drain) -> None:
        self._ended.put((what, self.user_code(what)))

    def _reactions(self) -> list[object]:
        reactions = []
        self.pod = self._api.read_namespaced_pod(self._name, NAMESPACE)
        for kind, text in notes_of(self.pod).items():
            if kind in KINDS and text != self._heard.get(kind):
                self._heard[kind] = text
                reactions += self.hear(codec.from_json(text.partition(" ")[2], Message))
        if self._terminate.is_set() and not self.half.draining:
            within_s = float(self.pod.metadata.deletion_grace_period_seconds or 1)
            reactions += self.hear(StopReplica(self.start.replica_id, within_s, self.half.epoch))
        while not self._ended.empty():
            what, failure = self._ended.get()
            if isinstance(what, Drain):
                return [*reactions, End()]
            self.half, more = user_code_ended(self.half, time.time(), failure)
            reactions += more
        return reactions

    def hear(self, message: Message) -> tuple[object, ...]:
        """What it does about a message."""
        self.half, reactions = receive(self.half, message, time.time())
        return reactions


def entrypoint(api: client.CoreV1Api, name: str, terminate: threading.Event) -> str:
    """What a container runs."""
    return Replica(api, name, terminate).run()


# -- the controller


class Record:
    """A ConfigMap: the epoch, and what outlives a controller. The driver's journal: written before commands are carried out."""

    def __init__(self, api: client.CoreV1Api, found: client.V1ConfigMap) -> None:
        self._api, self._found = api, found

    @classmethod
    def read(cls, api: client.CoreV1Api, deployment: str) -> "Record":
        """As it is now; made where there is none."""
        try:
            return cls(api, api.read_namespaced_config_map(deployment, NAMESPACE))
        except ApiException as error:
            if error.status != NOT_FOUND:
                raise
        made = client.V1ConfigMap(metadata=client.V1ObjectMeta(name=deployment), data={"epoch": "0"})
        return cls(api, api.create_namespaced_config_map(NAMESPACE, made))

    @property
    def epoch(self) -> int:
        """Of the newest controller; 0: there was none."""
        return int(self._found.data["epoch"])

    @property
    def last(self) -> Recovered | None:
        """What the controllers before have left."""
        text = self._found.data.get("record")
        return codec.from_json(text, Recovered) if text else None

    def begin(self, _how: object, first) -> None:
        """A controller begins."""
        self.append(None, first)

    def append(self, _event: object, result) -> None:
        """A step is about to be taken."""
        text = codec.to_json(Recovered.of(result.state))
        if text != self._found.data.get("record"):
            self.write(record=text)

    def write(self, **data: str) -> None:
        """Compare and set.

        Raises:
            ReplacedError: Somebody else has written meanwhile.
        """
        self._found.data = {**self._found.data, **data}
        try:
            self._found = self._api.replace_namespaced_config_map(self._found.metadata.name, NAMESPACE, self._found)
        except ApiException as error:
            if error.status == CONFLICT:
                raise ReplacedError(f"epoch {self.epoch} has been replaced") from error
            raise


class PodExecutor:
    """Pods, by two threads: one does what is told, one watches. What fails is left to the core, which says it again."""

    def __init__(self, api: client.CoreV1Api, deployment: str, epoch: int) -> None:
        self._api, self._deployment, self._epoch = api, deployment, epoch
        self.woken, self._news, self._todo = threading.Event(), deque(), queue.SimpleQueue()
        self._world_size: AnnounceWorldSize | None = None
        self._alarm: WakeAt | None = None
        self._told: dict[str, set[object]] = {}  # of each pod
        self._numbers = count()
        self._closed = False
        for pod in self._list().items:  # nothing that an older controller has read can be written from here on
            self._write(pod.metadata.name, {})
        for work in (self._carry_out_all, self._watch):
            threading.Thread(target=work, daemon=True).start()

    def survivors(self) -> list[str]:
        """All whose end was not told."""
        return [codec.from_json(notes_of(pod)["start"], StartReplica).replica_id for pod in self._list().items]

    def close(self) -> None:
        """End the controller; pods live on."""
        self._closed = True

    def execute(self, command) -> None:
        """Begin to carry out a command."""
        if command.epoch >= self._epoch:
            self._todo.put(command)

    def poll(self) -> Event | None:
        """What has happened. Whose end was told before this call is in the record by now: its pod may go."""
        while self._news:
            event = self._news.popleft()
            if not isinstance(event, str):
                return event
            self._todo.put(event)
        return None

    # -- what is told

    def _tell(self, event: Event, *and_then: str) -> None:
        self._news.extend((event, *and_then))
        self.woken.set()

    def _watch(self) -> None:
        while not self._closed:
            try:
                pods = self._list()
                for pod in pods.items:
                    self._see(pod)
                version, of = pods.metadata.resource_version, f"app={self._deployment}"
                stream = watch.Watch().stream(
                    self._api.list_namespaced_pod, NAMESPACE, label_selector=of, resource_version=version, timeout_seconds=5
                )
                for event in stream:
                    if event["type"] != "DELETED":  # by then its end was told
                        self._see(event["object"])
            except ApiException as error:
                if error.status != GONE:  # else what came in between is in the next list
                    time.sleep(0.1)

    def _list(self) -> client.V1PodList:
        return self._api.list_namespaced_pod(NAMESPACE, label_selector=f"app={self._deployment}")

    def _see(self, pod: client.V1Pod) -> None:
        notes, now = notes_of(pod), time.time()
        name, replica_id = pod.metadata.name, codec.from_json(notes["start"], StartReplica).replica_id
        told = self._told.setdefault(name, set())
        if pod.spec.node_name and "placed" not in told:
            told.add("placed")
            self._tell(ReplicaPlaced(replica_id=replica_id, node_id=pod.spec.node_name, at=now))
        for number, plain in json.loads(notes.get("said", "[]")):
            if number not in told:
                told.add(number)
                self._tell(attrs.evolve(codec.from_plain(plain, Event), at=now))  # on the controller's clock
        if not pod.status or pod.status.phase not in OVER or "end" in told:
            return
        told.add("end")
        end = pod.status.container_statuses[0].state.terminated
        if end is None:
            told_end = ReplicaDied(replica_id=replica_id, reason=f"node {pod.spec.node_name} is gone", at=now)
        elif end.message:
            told_end = ReplicaStartFailed(replica_id=replica_id, reason=end.message, at=now)
        elif pod.metadata.deletion_timestamp is not None:
            told_end = ReplicaStopped(replica_id=replica_id, at=now)
        else:
            told_end = ReplicaDied(replica_id=replica_id, reason=f"exit code {end.exit_code}", at=now)
        self._tell(told_end, name)

    # -- what is done

    def _carry_out_all(self) -> None:
        while not self._closed:
            command = self._todo.get()
            try:
                self._carry_out(command)
            except (ApiException, ReplacedError) as error:
                print(f"epoch {self._epoch}, {type(command).__name__}: {type(error).__name__} {error}"[:120], file=sys.stderr)

    def _carry_out(self, command) -> None:
        match command:
            case str():  # its end was told
                self._api.patch_namespaced_pod(command, NAMESPACE, {"metadata": {"finalizers": None}})
                self._delete(command, 1)
            case StartReplica():
                self._start(command)
            case AnnounceWorldSize():
                if self._world_size is None or command.revision > self._world_size.revision:
                    self._world_size = command
                for pod in self._list().items:
                    self._write(pod.metadata.name, {"world-size": command})
            case WakeAt():
                self._alarm = command
                timer = threading.Timer(max(0.0, command.at - time.time()), self._ring, [command])
                timer.daemon = True
                timer.start()
            case PublishRoutes():
                for replica_id, serving in [(each, "yes") for each in command.added] + [
                    (each, "no") for each in command.removed
                ]:
                    self._write(pod_name(replica_id), {}, serving=serving)
            case QueryReplica(replica_id=replica_id):
                if not self._write(pod_name(replica_id), {"query": command}):
                    self._tell(ReplicaMissing(replica_id=replica_id, at=time.time()))
            case StopReplica(replica_id=replica_id, timeout_s=timeout_s):
                if not self._delete(pod_name(replica_id), max(1, math.ceil(timeout_s))):
                    self._tell(ReplicaStopped(replica_id=replica_id, at=time.time()))
            case KillReplica(replica_id=replica_id):
                if not self._delete(pod_name(replica_id), 1):
                    self._tell(ReplicaStopped(replica_id=replica_id, at=time.time()))
            case change:
                self._write(pod_name(change.replica_id), {"change": change})

    def _start(self, start: StartReplica) -> None:
        if start.node_id is not None and not self._is_node(start.node_id):
            reason = f"there is no node {start.node_id}"
            return self._tell(ReplicaStartFailed(replica_id=start.replica_id, reason=reason, at=time.time()))
        if "end" in self._told.get(pod_name(start.replica_id), ()):  # the command came twice, and a replica has one life
            return self._tell(ReplicaDied(replica_id=start.replica_id, reason="it has ended", at=time.time()))
        notes = {"start": codec.to_json(start), "epoch": str(self._epoch)}
        if self._world_size is not None:
            notes["world-size"] = self._numbered(self._world_size)
        metadata = client.V1ObjectMeta(
            name=pod_name(start.replica_id),
            labels={"app": self._deployment, "serving": "no", "version": start.version},
            annotations={OURS + kind: text for kind, text in notes.items()},
            finalizers=[FINALIZER],
        )
        containers = [client.V1Container(name=CONTAINER, image=f"{self._deployment}:{start.version}")]
        spec = client.V1PodSpec(containers=containers, restart_policy="Never", node_name=start.node_id)
        try:
            self._api.create_namespaced_pod(NAMESPACE, client.V1Pod(metadata=metadata, spec=spec))
        except ApiException as error:
            if error.status != CONFLICT:
                raise
            self._told.pop(metadata.name, None)  # it is there: what became of it is told once more
            self._see(self._api.read_namespaced_pod(metadata.name, NAMESPACE))

    def _is_node(self, node_id: str) -> bool:
        try:
            self._api.read_node(node_id)
        except ApiException as error:
            if error.status != NOT_FOUND:
                raise
            return False
        return True

    def _numbered(self, command) -> str:
        return f"{self._epoch}.{next(self._numbers)} {codec.to_json(command)}"

    def _write(self, name: str, notes: dict[str, object], **labels: str) -> bool:
        texts = {"epoch": str(self._epoch)} | {kind: self._numbered(command) for kind, command in notes.items()}

        def patch(pod: client.V1Pod) -> None:
            there = notes_of(pod)
            new = {kind: text for kind, text in texts.items() if not is_newer(there.get(kind), text)}
            about = {"annotations": {OURS + kind: text for kind, text in new.items()}, "labels": labels}
            about["resourceVersion"] = pod.metadata.resource_version
            self._api.patch_namespaced_pod(name, NAMESPACE, {"metadata": about})

        return self._behind_the_fence(name, patch)

    def _delete(self, name: str, grace_s: int) -> bool:
        def delete(pod: client.V1Pod) -> None:
            version = client.V1Preconditions(resource_version=pod.metadata.resource_version)
            options = client.V1DeleteOptions(preconditions=version)
            self._api.delete_namespaced_pod(name, NAMESPACE, grace_period_seconds=grace_s, body=options)

        return self._behind_the_fence(name, delete)

    def _behind_the_fence(self, name: str, act) -> bool:
        """Whether there is such a pod, and it was done.

        Raises:
            ReplacedError: A newer controller has stamped it.
        """
        while True:
            try:
                pod = self._api.read_namespaced_pod(name, NAMESPACE)
                if int(notes_of(pod)["epoch"]) > self._epoch:
                    raise ReplacedError(f"{name} is of epoch {notes_of(pod)['epoch']}")
                act(pod)
            except ApiException as error:
                if error.status == NOT_FOUND:
                    return False
                if error.status != CONFLICT:
                    raise
            else:
                return True

    def _ring(self, alarm: WakeAt) -> None:
        if alarm is self._alarm:
            self._tell(ClockAdvanced(at=time.time()))


class Controller:
    """One life of the controller of a deployment: `begin`, then `run_until` in a thread of its own."""

    def __init__(self, api: client.CoreV1Api, wanted: DeploymentSpec) -> None:
        record = Record.read(api, wanted.name)
        epoch, last = record.epoch + 1, record.last
        record.write(epoch=str(epoch))  # the fence, and only then who is there
        self.executor = PodExecutor(api, wanted.name, epoch)
        how = Deployed(spec=wanted, at=time.time(), epoch=epoch)
        if last is not None:
            how = attrs.evolve(last, replica_ids=tuple(self.executor.survivors()), at=time.time(), epoch=epoch)
        self.driver = Driver.begin(self.executor, how, journal=record)
        if last is not None and last.spec != wanted:
            self.driver.post(SpecChanged(spec=wanted, at=time.time()))

    def run_until(self, done) -> None:
        """The loop."""
        while True:
            self.driver.deliver_all()
            if done(self.driver.state):
                return
            self.executor.woken.wait()
            self.executor.woken.clear()


def healthy(state) -> bool:
    """Whether all that is wanted runs."""
    return state.status is DeploymentStatus.HEALTHY


def main() -> None:
    """One replica is killed; a controller hangs in an update, the next one ends it, and the first goes on too late."""
    from kubernetes_fake import FakeCluster

    with FakeCluster(entrypoint) as cluster:
        api = client.CoreV1Api(client.ApiClient(client.Configuration(host=cluster.url)))

        def show(what: str) -> None:
            pods = []
            while len(pods) != 3:  # the labels come after the news
                pods = [pod for pod in api.list_namespaced_pod(NAMESPACE).items if pod.metadata.labels["serving"] == "yes"]
            changes = [json.loads(notes_of(pod)["change"].partition(" ")[2]) for pod in pods]
            ranks = {change["rank"]["rank"]: pod.metadata for change, pod in zip(changes, pods, strict=True)}
            print(
                f"{what:32}",
                "  ".join(f"{rank}: {ranks[rank].name} v{ranks[rank].labels['version']}" for rank in sorted(ranks)),
            )

        spec = DeploymentSpec(name="llm", target_replicas=3, max_unavailable=1, min_ready_s=0.0)
        second_version = attrs.evolve(spec, version="2")
        first = Controller(api, spec)
        first.run_until(healthy)
        show("three pods")
        cluster.kill("llm-1.1")
        first.run_until(lambda state: healthy(state) and "llm#1.1" not in state.replicas)
        show("one is killed")
        first.driver.post(SpecChanged(spec=second_version, at=time.time()))
        first.run_until(lambda state: any(each.version == "2" for each in state.replicas.values()))
        second = Controller(api, second_version)
        cluster.compact()  # whoever watches has missed something: 410
        first.executor.execute(KillReplica("llm#1.2", epoch=1))
        second.run_until(lambda state: healthy(state) and all(each.version == "2" for each in state.replicas.values()))
        show("updated by the next controller")
        try:
            first.driver.deliver(SpecChanged(spec=attrs.evolve(spec, target_replicas=1), at=time.time()))
        except ReplacedError as error:
            print("the first one goes on:          ", error)
        first.executor.close()
        second.executor.close()


if __name__ == "__main__":
    main()
