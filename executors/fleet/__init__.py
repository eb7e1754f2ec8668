"""Deprecated, for one release: `executors.inproc` has clusters in one process; what is here are its names of before."""

import warnings
from importlib import import_module
from typing import Any

_NOW = {
    "FleetClosedError": ("executors.ray_gpu.errors", "UnavailableError"),
    "FleetReplay": ("executors.engine.replay", "ReplayResult"),
    "NotThereError": ("executors.inproc", "NotThereError"),
    "RankedNode": ("executors.inproc", "RankedNode"),
    "RequestError": ("executors.ray_gpu.errors", "CallError"),
    "RequestExpiredError": ("executors.ray_gpu.errors", "DeadlineError"),
    "RequestRejectedError": ("executors.ray_gpu.errors", "OverloadedError"),
    "WeightsNode": ("executors.inproc", "WeightsNode"),
    "begin_again": ("executors.inproc", "begin_again"),
    "replay_fleet": ("executors.engine.replay", "replay"),
}

warnings.warn("executors.fleet goes in the next release: use executors.inproc", DeprecationWarning, stacklevel=2)


def __getattr__(name: str) -> Any:
    if name not in _NOW:
        raise AttributeError(f"module 'executors.fleet' has no attribute {name!r}: use executors.inproc")
    module, now = _NOW[name]
    warnings.warn(f"executors.fleet.{name} goes in the next release: use {module}.{now}", DeprecationWarning, stacklevel=2)
    return getattr(import_module(module), now)
