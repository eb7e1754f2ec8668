"""Fixtures of the attacks; what is common to them is in `tests/second_user.py`."""

from tests.ray_local import ray_cluster, serve
from tests.second_user import shared_tmp

__all__ = ["ray_cluster", "serve", "shared_tmp"]
