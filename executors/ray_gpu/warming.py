"""The task that warms a worker (`warm_workers`). Workers import this module, and with it nothing that they are not to have."""

import importlib

REPLICA = ("executors.ray_gpu.replica",)
"""What runs in every replica."""
CONTROLLER = ("executors.ray_gpu.controller",)


def bring(modules: tuple[str, ...]) -> None:
    """Import what is going to run here: who comes here has to import users' code alone."""
    for each in modules:
        importlib.import_module(each)
