"""A unit test joins no cluster.

It would find whichever the lane beside it runs, and Ray ends a process a minute after its cluster has gone: silently, with
all tests behind that.
"""

import sys

import pytest


@pytest.fixture(autouse=True)
def no_cluster(monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("a unit test joins no cluster: one that needs one is in tests/integration/test_ray_*.py")

    if "ray" in sys.modules:
        monkeypatch.setattr(sys.modules["ray"], "init", refuse)
    if "executors.ray_gpu.connection" in sys.modules:  # what ends or asks where one runs finds none
        monkeypatch.setattr(sys.modules["executors.ray_gpu.connection"], "found_address", lambda: None)
