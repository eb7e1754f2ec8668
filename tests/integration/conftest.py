"""Fixtures of the tests that run on a real Ray cluster."""

from tests.ray_local import ray_cluster, serve

__all__ = ["ray_cluster", "serve"]
