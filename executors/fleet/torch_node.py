"""Deprecated, for one release: `executors.inproc.torch_node`."""

import warnings

from executors.inproc.torch_node import TorchModel, TorchNode

__all__ = ["TorchModel", "TorchNode"]

warnings.warn(f"{__name__} goes in the next release: use executors.inproc.torch_node", DeprecationWarning, stacklevel=2)
