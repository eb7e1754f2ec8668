"""Ray Serve with ranks from rankcore: four faults of its own rank manager, before and after, in a running application.

    python examples/embed_in_ray_serve.py

First both rank managers are called directly, with the same calls; `examples/ray_serve_ranks.py` has ours. Then an application
of four replicas runs on a local cluster: under Serve's own controller, while replicas and controller crash; then, without a
restart of any replica, under a controller whose ranks come from rankcore, through the same crashes. docs/ray-serve.md explains
the rows. What `(raylet)` says in between is Ray's report of those crashes.
"""

import logging
import math
import os
import signal
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

os.environ.setdefault("RAY_SERVE_LOG_TO_STDERR", "0")
os.environ.setdefault("RAY_SERVE_SLOW_STARTUP_WARNING_S", "900")  # a replica may take its time to report, on a slow machine

import ray
from ray import serve
from ray.serve._private.common import DeploymentID
from ray.serve._private.deployment_state import DeploymentRankManager
from ray.serve.schema import ReplicaRank
from ray_serve_ranks import RankcoreRankManager, controller_options

CONTROLLER = "SERVE_CONTROLLER_ACTOR"
REPLICAS = 4
PATIENCE_S = 300.0
ROUNDS = 10  # of the controller's, which take a tenth of a second: enough to do what it is going to do


def replacements_of_3_and_1(manager):
    for rank in range(4):
        manager.assign_rank(f"replica-{rank}", "node")
    manager.release_rank("replica-3")
    manager.release_rank("replica-1")
    return [manager.assign_rank(f"replacement-of-{rank}", "node").rank for rank in (3, 1)]


def newcomer_after_a_recovery(manager):
    for rank in (0, 2, 3):  # rank 1 died together with the controller
        manager.recover_rank(f"replica-{rank}", "node", ReplicaRank(rank=rank, node_rank=0, local_rank=rank))
    return manager.assign_rank("newcomer", "node").rank


def ranks_after_a_duplicate_recovered(manager):
    for local_rank, name in enumerate(("older", "younger")):
        manager.recover_rank(name, "node", ReplicaRank(rank=0, node_rank=0, local_rank=local_rank))
    active = [SimpleNamespace(replica_id=SimpleNamespace(unique_id=name)) for name in ("older", "younger")]
    manager.check_rank_consistency_and_reassign_minimally(active)
    return [manager.get_replica_rank(name).rank for name in ("older", "younger")]


def rank_of_a_replica_that_has_none(manager):
    return manager.get_replica_rank("nobody").rank


CALLS = (
    replacements_of_3_and_1,
    newcomer_after_a_recovery,
    ranks_after_a_duplicate_recovered,
    rank_of_a_replica_that_has_none,
)


def answer(call, manager):
    """What a call returns, or the name of what it raises."""
    try:
        return str(call(manager(fail_on_rank_error=False)))  # as Serve runs by default
    except Exception as error:
        return type(error).__name__


def side_by_side():
    """(what is called, Serve's answer, ours) of each fault."""
    return [(call.__name__, answer(call, DeploymentRankManager), answer(call, RankcoreRankManager)) for call in CALLS]


class Gate:
    """Holds back replicas while they are loaded, before they get their ranks, so that a crash can meet every moment."""

    def __init__(self, folder):
        self.folder = folder

    def __reduce__(self):
        return pass_gate, (self.folder,)

    def open(self, replica_id="all"):
        (self.folder / f"open-{replica_id}").touch()

    def close(self):
        for path in self.folder.glob("open-*"):
            path.unlink()

    def at(self, what, known=frozenset()):
        """The replicas that came to the gate ("came"), or through it ("passed"), but those that are known."""
        return {path.name.partition("-")[2] for path in self.folder.glob(f"{what}-*")} - set(known)


def pass_gate(folder):
    name = ray.get_runtime_context().get_actor_name() or ""
    if name.startswith("SERVE_REPLICA::"):
        replica_id = name.rpartition("#")[2]
        (folder / f"came-{replica_id}").touch()
        while not any((folder / f"open-{which}").exists() for which in (replica_id, "all")):
            time.sleep(0.02)
        (folder / f"passed-{replica_id}").touch()
    return Gate(folder)


@serve.deployment(
    num_replicas=REPLICAS,
    user_config={},
    health_check_period_s=0.2,
    graceful_shutdown_timeout_s=1,
    ray_actor_options={"num_cpus": 0},
)
class Model:
    """Writes down, one to a line, which ranks it believed in the course of its life."""

    def __init__(self, gate):
        context = serve.get_replica_context()
        self.path = gate.folder / f"ranks-{os.getpid()}-{context.replica_id.unique_id}"
        self.rank = None
        self.believe(context.rank.rank if context.rank is not None else None)

    async def reconfigure(self, user_config, rank):
        self.believe(rank.rank)

    def believe(self, rank):
        if rank != self.rank:
            self.rank = rank
            with self.path.open("a") as lines:
                lines.write(f"{rank}\n")

    def __call__(self):
        return self.rank


class Application:
    """The running application, as seen from outside: what its replicas believe, and what can be done to it."""

    def __init__(self, folder):
        self.folder, self.gate = folder, Gate(folder)
        self.gate.open()

    def start(self, with_our_ranks=False):
        self.ranks_are_ours = with_our_ranks
        options = controller_options() if with_our_ranks else None
        serve.start(proxy_location="Disabled", logging_config={"log_level": "ERROR"}, controller_options=options)

    def deploy(self, user_config=None):
        # With a version, as it is deployed by a file: a new user_config is sent to the replicas, and restarts nobody.
        model = Model.options(user_config=user_config or {}, version="1", _internal=True)
        serve.run(model.bind(self.gate), name="app", route_prefix=None)

    def pids(self):
        return {path.name.split("-")[2]: int(path.name.split("-")[1]) for path in self.folder.glob("ranks-*")}

    def beliefs(self):
        """Of each replica that ever was: the ranks that it believed, one after the other."""
        found = {path.name.split("-")[2]: path.read_text().split("\n")[:-1] for path in self.folder.glob("ranks-*")}
        return {replica_id: [int(rank) for rank in ranks] for replica_id, ranks in found.items() if ranks}

    def book(self):
        """The ranks of the replicas that Serve knows, as its controller has them."""
        try:
            controller = ray.get_actor(CONTROLLER, namespace="serve")
            ranks = ray.get(controller._get_replica_ranks_mapping.remote(DeploymentID("Model", "app")), timeout=10)
        except (ValueError, ray.exceptions.RayError):
            return {}
        return {replica_id: rank.rank for replica_id, rank in ranks.items()}

    def rounds(self):
        """How often the controller has looked at everything since it was started."""
        controller = ray.get_actor(CONTROLLER, namespace="serve")
        return ray.get(controller.get_health_metrics.remote())["num_control_loops"]

    def running_replicas(self):
        """How many replicas run, or None while anything is under way."""
        model = serve.status().applications["app"].deployments["Model"]
        return model.replica_states.get("RUNNING") if model.status == "HEALTHY" and len(model.replica_states) == 1 else None

    def settled(self):
        """Wait until the deployment is healthy without a gap, and every replica believes what the controller's book says."""
        wait(self.is_settled, "the deployment is healthy")
        return self.book()

    def is_settled(self):
        book, beliefs = self.book(), self.beliefs()
        healthy = serve.status().applications["app"].deployments["Model"].status == "HEALTHY"
        whole = len(book) == REPLICAS and max(book.values()) < REPLICAS
        return healthy and whole and all(beliefs[each][-1] == rank for each, rank in book.items())

    def kill_controller(self, for_good=False):
        """End Serve's controller. Ray starts it again, unless it is for good."""
        if for_good:
            ray.kill(ray.get_actor(CONTROLLER, namespace="serve"))
            wait(lambda: not controller_exists(), "the controller is gone")
        else:
            os.kill(ray.get(ray.get_actor(CONTROLLER, namespace="serve").get_pid.remote()), signal.SIGKILL)

    @contextmanager
    def frozen(self, replica_ids):
        """These processes stand still meanwhile: they are alive, and answer nothing."""
        pids = [self.pids()[replica_id] for replica_id in replica_ids]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)

    def crash(self, replica_id):
        os.kill(self.pids()[replica_id], signal.SIGKILL)

    def newcomer(self, known):
        """Wait for a replica at the gate that is not known."""
        return wait(lambda: self.gate.at("came", known), "a newcomer is at the gate").pop()

    def let_in(self, replica_id):
        """Open the gate for one replica; returns the first rank that it believes."""
        self.gate.open(replica_id)
        return wait(lambda: self.beliefs().get(replica_id), f"{replica_id} has a rank")[0]


class StandIn:
    """In a controller's place, for a replica that is being created: all that it asks for."""

    def get_tracing_config(self):
        return None


def controller_exists():
    try:
        return bool(ray.get_actor(CONTROLLER, namespace="serve"))
    except ValueError:
        return False


def wait(condition, what, patience_s=PATIENCE_S):
    """Wait until a condition holds, and return what it returned."""
    deadline = time.monotonic() + patience_s
    while not (found := condition()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {patience_s:g} s: {what}")
        time.sleep(0.05)
    return found


def by_rank(book):
    return {rank: replica_id for replica_id, rank in book.items()}


def crashes_of_3_and_1(app, up_first="first"):
    """The ranks of their replacements, by the order in which these were started; either may be the first to come up."""
    holders, known = by_rank(app.settled()), app.gate.at("came")
    app.gate.close()
    app.crash(holders[3])
    first = app.newcomer(known)
    app.crash(holders[1])
    second = app.newcomer({*known, first})
    wait(lambda: not {holders[1], holders[3]} & set(app.book()), "both have stopped")
    order = (first, second) if up_first == "first" else (second, first)
    ranks = {replica_id: app.let_in(replica_id) for replica_id in order}
    app.gate.open()
    app.settled()
    return [ranks[first], ranks[second]]


def recovery_without_rank_1(app):
    """All ranks that the replacement of rank 1 ever had, when it comes up after the others have reported."""
    holders, known = by_rank(app.settled()), app.gate.at("came")
    app.gate.close()
    app.kill_controller()
    app.crash(holders[1])
    newcomer = app.newcomer(known)
    wait(lambda: set(app.book()) == {holders[0], holders[2], holders[3]}, "the survivors have reported")
    app.let_in(newcomer)
    app.gate.open()
    app.settled()
    return app.beliefs()[newcomer]


def recovery_with_late_reports(app):
    """The ranks that the replacement of rank 1 had, and those of all, when it comes up before the others have reported."""
    holders, known = by_rank(app.settled()), app.gate.at("came")
    app.gate.close()
    with app.frozen(holders[rank] for rank in (0, 2, 3)):
        app.kill_controller()
        app.crash(holders[1])
        newcomer = app.newcomer(known)
        app.gate.open(newcomer)
        wait(lambda: newcomer in app.gate.at("passed"), "the newcomer is loaded")
        since = app.rounds()
        rounds = ROUNDS if app.ranks_are_ours else math.inf
        wait(lambda: newcomer in app.book() or app.rounds() > since + rounds, "it has a rank, or is made to wait for one")
    app.gate.open()
    app.settled()
    since = app.rounds()
    wait(lambda: app.rounds() > since + ROUNDS, "the controller has had time to look at the ranks")
    return app.beliefs()[newcomer], sorted(app.settled().values())


def replica_that_was_given_no_rank(app):
    """The ranks that a replica had which was initialised without one, and those of all, once a new user_config was sent.

    Its controller died when it had started the replica, and had not given it a rank yet. Whoever is next to call such a replica
    by the method by which Serve recovers replicas has it begin without a rank. Serve 2.60 asks a replica first whether it had
    begun, and replaces it; so here it is the example that calls it, while no controller but a stand-in is there.
    """
    holders, known = by_rank(app.settled()), app.gate.at("came")
    app.gate.close()
    app.crash(holders[1])
    newcomer = app.newcomer(known)
    app.kill_controller(for_good=True)
    stand_in = ray.remote(StandIn).options(name=CONTROLLER, namespace="serve", num_cpus=0).remote()
    begun = ray.get_actor(f"SERVE_REPLICA::app#Model#{newcomer}", namespace="serve").initialize_and_get_metadata.remote()
    app.gate.open()
    ray.get(begun)
    ray.kill(stand_in)
    wait(lambda: not controller_exists(), "the stand-in is gone")
    app.start(app.ranks_are_ours)
    wait(lambda: app.running_replicas() == REPLICAS, "the next controller has taken all four over")
    app.deploy(user_config={"version": 2})
    wait(lambda: app.beliefs().get(newcomer), "it has a rank")
    alive = [newcomer, *(holders[rank] for rank in (0, 2, 3))]
    ranks = [app.beliefs()[each] for each in alive]
    app.crash(newcomer)  # whatever has become of it, the next story begins with four good ranks
    wait(lambda: newcomer not in app.book() and app.is_settled(), "it is replaced")
    return ranks[0], sorted(each[-1] for each in ranks)


STORIES = (crashes_of_3_and_1, recovery_without_rank_1, replica_that_was_given_no_rank, recovery_with_late_reports)


def running(app):
    """(what happened, Serve's outcome, ours) in the running application."""
    app.start()
    app.deploy()
    theirs = [story(app) for story in STORIES]
    left = app.settled()
    app.kill_controller(for_good=True)
    app.start(with_our_ranks=True)
    taken_over = app.settled()
    assert set(taken_over) == set(left), "a replica was restarted"
    ours = [story(app) for story in STORIES]
    assert crashes_of_3_and_1(app, up_first="second") == [3, 1], "a replacement has another rank than the one it replaces"
    assert serve.get_app_handle("app").remote().result(timeout_s=PATIENCE_S) in range(REPLICAS)
    rows = [(story.__name__, str(one), str(other)) for story, one, other in zip(STORIES, theirs, ours, strict=True)]
    return [*rows, ("takeover_of_what_serve_left", *(str(sorted(book.values())) for book in (left, taken_over)))]


def show(title, rows):
    for name, theirs, ours in [(title, "Ray Serve's own", "rankcore's"), *(("  " + name, *answers) for name, *answers in rows)]:
        print(f"{name:<38} {theirs:<22} {ours}")
    print(flush=True)


def main():
    logging.getLogger("ray.serve").setLevel(logging.CRITICAL)  # Serve logs the errors that it swallows
    show("called directly", side_by_side())
    print("an application of four replicas, on a cluster of its own: about a minute ...", file=sys.stderr)
    # A cluster of its own, whatever RAY_ADDRESS says: controllers are killed here.
    ray.init(address="local", num_cpus=4, include_dashboard=False, logging_level="error", log_to_driver=False)
    try:
        with tempfile.TemporaryDirectory() as folder:
            app = Application(Path(folder))
            show("in a running application", running(app))
    finally:
        ray.shutdown()


if __name__ == "__main__":
    main()
