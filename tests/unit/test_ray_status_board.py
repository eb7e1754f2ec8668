"""What the machine publishes of a deployment, as calls that wait for it are told."""

import itertools
from types import SimpleNamespace

import pytest

pytest.importorskip("ray", reason="Ray is not installed: pip install 'rankcore[ray]'")

from executors.ray_gpu.messages import CallStatus
from executors.ray_gpu.status_board import StatusBoard
from rankcore.cluster.commands import Availability, Standing
from rankcore.cluster.state import Residency


def entry(standing, failed_until=0.0, **more):
    return SimpleNamespace(residency=Residency(availability=Availability(standing, **more), failed_until=failed_until))


def test_of_a_deployment_without_weights_or_that_nobody_has_asked_for_there_is_nothing_to_say():
    board = StatusBoard(itertools.count(1))
    board.look(SimpleNamespace(residency=None), 0.0)
    board.look(SimpleNamespace(residency=Residency()), 0.0)
    assert board.status(0.0) is None


def test_each_status_that_differs_has_a_number_and_a_load_the_time_that_it_takes_yet():
    board, found = StatusBoard(itertools.count(1)), []
    published = (
        (0.0, entry(Standing.QUEUED, because="no room")),
        (1.0, entry(Standing.QUEUED, because="no room")),
        (2.0, entry(Standing.LOADING, percent=10)),
        (4.0, entry(Standing.LOADING, percent=20)),
        (5.0, entry(Standing.LOADING, percent=5)),  # another one, of another worker
        (6.0, entry(Standing.LOADING, percent=10)),
        (7.0, entry(Standing.READY)),
        (8.0, entry(Standing.LOADING, percent=50)),
    )
    for at, each in published:
        board.look(each, at)
        number, status = board.status(at)
        found.append((number, str(status)))
    assert found == [
        (1, "QUEUED: no room"),
        (1, "QUEUED: no room"),
        (2, "LOADING 10 %"),
        (3, "LOADING 20 %, 16 s"),
        (4, "LOADING 5 %"),
        (5, "LOADING 10 %, 18 s"),
        (6, "READY"),
        (7, "LOADING 50 %"),
    ]


def test_of_what_is_not_to_be_had_the_rest_of_its_time_is_told_and_nothing_once_that_is_over():
    board = StatusBoard(itertools.count(1))
    board.look(entry(Standing.UNAVAILABLE, failed_until=40.0, because="no room", retry_after_s=30.0), 10.0)
    assert board.status(10.0) == (1, CallStatus("UNAVAILABLE", "no room", retry_after_s=30.0))
    assert board.status(35.0)[1].retry_after_s == 5.0
    assert board.status(40.0) is None
    board.look(entry(Standing.UNAVAILABLE, failed_until=40.0, because="it has failed"), 50.0)
    assert board.status(1e6) == (2, CallStatus("UNAVAILABLE", "it has failed")), "until something else happens"
