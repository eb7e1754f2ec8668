"""The conformance kit against `embed_in_kubernetes.py`, on the fake: `python examples/kubernetes_bench.py [WORDS]`.

A line for each case that has all the words; exit status 1 if a line of the contract is broken. For a cluster of your own,
`FakeCluster` is what has to be replaced, and how a bench reaches into replicas there.
"""

import sys
import threading
import time
from collections import Counter

from embed_in_kubernetes import PodExecutor, Record, Replica, pod_name
from kubernetes import client
from kubernetes_fake import FakeCluster

from rankcore.replica.replica import Drain
from rankcore.spec import config_id_of
from rankcore.testing.conformance import Belief, NonconformityError, SelfReport, tries
from rankcore.testing.conformance.running import NotTriedError

NAME = "conformance"


class ObedientReplica(Replica):
    """Its user code is slow, or fails, as the bench says."""

    def __init__(self, bench, api, name, terminate) -> None:
        super().__init__(api, name, terminate)
        self.bench, self.ranks, self.user_config = bench, [], None
        bench.replicas_there[name] = self

    def hear(self, message):
        """Write down what it believes."""
        before = self.half.rank
        reactions = super().hear(message)
        if self.half.rank != before:
            self.ranks.append(Belief(time.time(), self.half.rank))
        return reactions

    def user_code(self, what):
        """Take as long as it is to take."""
        if isinstance(what, Drain):
            return time.sleep(min(what.timeout_s, self.bench.slow_s))
        if what.command.user_config is not None or what.command.config_id == config_id_of(None):
            self.user_config = what.command.user_config
        time.sleep(self.bench.slow_s)
        return self.bench.failure() if what.starting else None

    def report(self) -> SelfReport:
        """What it says of itself."""
        half = self.half
        return SelfReport(
            replica_id=half.replica_id,
            node_id=half.node_id,
            at=time.time(),
            beliefs=tuple(self.ranks),
            world_size=half.world_size,
            version=half.version,
            user_config=self.user_config,
            ready=half.ready,
            draining=half.draining,
        )


class KubernetesBench:
    """Controllers of this process on a fake cluster, whose containers are threads."""

    patience_s = 120.0

    def __init__(self) -> None:
        self.cluster = FakeCluster(self.entrypoint)
        self.api = client.CoreV1Api(client.ApiClient(client.Configuration(host=self.cluster.url)))
        self.replicas_there, self.executors = {}, []
        self.slow_s, self.failing, self.lock = 0.0, 0, threading.Lock()

    def __enter__(self) -> "KubernetesBench":
        self.cluster.__enter__()
        return self

    def __exit__(self, *_) -> None:
        for executor in self.executors:
            executor.close()
        self.cluster.__exit__()

    def entrypoint(self, api, name, terminate) -> str:
        return ObedientReplica(self, api, name, terminate).run()

    def failure(self):
        with self.lock:
            self.failing -= 1
            return "told to fail" if self.failing >= 0 else None

    # -- what the kit asks for

    def open(self, epoch):
        Record.read(self.api, NAME).write(epoch=str(epoch))
        self.executors.append(PodExecutor(self.api, NAME, epoch))
        return self.executors[-1]

    def crash(self, executor) -> None:
        executor.close()

    def survivors(self):
        return self.executors[-1].survivors()

    def now(self) -> float:
        return time.time()

    def advance(self) -> None:
        time.sleep(0.01)

    def nodes(self):
        return [each.metadata.name for each in self.api.list_node().items]

    def replicas(self):
        return [self.replicas_there[name].report() for name in [*self.cluster.running] if name in self.replicas_there]

    def kill(self, replica_id) -> None:
        self.cluster.kill(pod_name(replica_id))

    def lose_node(self, node_id) -> None:
        self.cluster.lose_node(node_id)

    def fail_starts(self, count) -> None:
        self.failing = count

    def slow(self, by_s) -> None:
        self.slow_s = by_s


def main(words) -> int:
    """How many lines are broken."""
    counts = Counter()
    for one in tries(seeds=(1,)):
        if not all(word in one.name for word in words):
            continue
        began, came, why = time.monotonic(), "kept", ""
        with KubernetesBench() as bench:
            try:
                one.play(bench)
            except NotTriedError as error:
                came, why = "skipped", f" ({error})"
            except NonconformityError as error:
                came, why = "BROKEN", f"\n{error}"
        counts[came] += 1
        print(f"{came:8}{time.monotonic() - began:6.1f} s  {one.name}{why}", flush=True)
    print(", ".join(f"{count} {came}" for came, count in sorted(counts.items())))
    return counts["BROKEN"]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]) > 0)
