"""Ranks of the HOT replicas of a model on a real cluster: through a kill, a scale-down, and a kill of the controller."""

import os
import signal

import pytest
from typer.testing import CliRunner

from executors.cli.app import app
from tests.fleet_models import WEIGHT_BYTES, Ranked, write_weights
from tests.ray_local import ANSWER_S, eventually, ray_cluster  # noqa: F401 (a fixture)

pytestmark = pytest.mark.ray


@pytest.fixture
def deployed(ray_cluster, tmp_path):  # noqa: F811
    """A model with two replicas on two GPUs of one node, and how to deploy it with another user_config."""
    from executors.ray_gpu import residency
    from rankcore.residency import ResidencyPolicy

    residency.start(
        residency.FleetOptions(
            device="cpu",
            stand_in_gpu_bytes=(WEIGHT_BYTES, WEIGHT_BYTES),
            cache_bytes=2 * WEIGHT_BYTES,
            residency=ResidencyPolicy(retry_s=0.05),
        )
    )
    path, _ = write_weights(tmp_path, "m", 1)

    def deploy(user_config):
        model = residency.Model(name="m", code=Ranked, weights=path, user_config=user_config, idempotent=True)
        residency.deploy(model, replicas=2)

    try:
        deploy({"step": 1})
        yield residency, deploy
    finally:
        residency.shutdown()


def shown(fleet):
    """The ranks as `where` shows them, by replica."""
    return {each.replica_id: each.rank for each in fleet.where("m").replicas if each.rank is not None}


def believed(fleet, replicas):
    """What each process answers, by process, once so many have."""
    found = {}

    def ask():
        pid, *rest = fleet.ModelHandle("m", method="standing").remote().result(ANSWER_S)
        found[pid] = rest
        return len(found) == replicas

    def ask_together():
        responses = [fleet.ModelHandle("m", method="standing").remote() for _ in range(8)]
        for pid, *rest in (each.result(ANSWER_S) for each in responses):
            found[pid] = rest
        return len(found) == replicas

    eventually(ask_together if replicas > 1 else ask, f"{replicas} processes answer")
    return found


def ranks(fleet, replicas):
    return {pid: (rank, size) for pid, (rank, size, _) in believed(fleet, replicas).items()}


def test_hot_replicas_have_ranks_and_keep_them(deployed):
    fleet, deploy = deployed
    eventually(lambda: sorted(shown(fleet).values()) == [0, 1], "both have a rank")
    at_first = shown(fleet)
    before = ranks(fleet, 2)
    assert sorted(before.values()) == [(0, 2), (1, 2)]

    shows = CliRunner().invoke(app, ["where", "m"]).stdout
    assert "rank 0" in shows
    assert "rank 1" in shows

    # Another user_config is told to the processes that there are.
    deploy({"step": 2})
    eventually(lambda: all(told[-1] == ({"step": 2}, rank) for rank, _, told in believed(fleet, 2).values()), "both are told")
    assert ranks(fleet, 2) == before

    # Whoever takes the place of one that is killed has its rank.
    killed = next(pid for pid, (rank, _) in before.items() if rank == 0)
    other = next(pid for pid in before if pid != killed)
    os.kill(killed, signal.SIGKILL)
    eventually(lambda: killed not in ranks(fleet, 2), "another process answers")
    after = ranks(fleet, 2)
    assert sorted(after.values()) == [(0, 2), (1, 2)]
    assert after[other] == (1, 2)
    assert shown(fleet) == at_first

    # A controller that comes after one that was killed learns the ranks from the processes.
    controller = fleet.standing().controller_pid
    os.kill(controller, signal.SIGKILL)
    eventually(lambda: fleet.standing().controller_pid != controller, "another controller is there")
    eventually(lambda: shown(fleet) == at_first, "it knows the ranks")
    assert ranks(fleet, 2) == after

    # Of two, rank 0 is left; who leaves the GPU has none, and has another one when it is back.
    fleet.scale("m", 1)
    eventually(lambda: list(shown(fleet).values()) == [0], "one has a rank, and it is 0")
    eventually(lambda: list(ranks(fleet, 1).values()) == [(0, 1)], "and its process knows that")
    fleet.scale("m", 2)
    eventually(lambda: sorted(shown(fleet).values()) == [0, 1], "both have a rank")
    assert sorted(ranks(fleet, 2).values()) == [(0, 2), (1, 2)]
