"""Replicas as processes of this machine: small and real, and the template for an executor of one's own.

`executor` carries out commands, `process` is one replica as seen from there, `replica` is what runs in it, `places` are the
files through which they find each other, and `fence` is why a controller that was replaced does no harm: these five are the
template, and docs/executors.md walks through them. `user` runs the user's code in a replica; `controller`, `checkpoint`,
`folders` and `wanted` are `rankcore run --executor NAME`, on the loop of `executors.engine`; `door`, `answers` and `said` are
how users change what it runs, and `api` is how they ask, with the functions of `executors.ray_gpu`. Linux only: it needs pidfd.
"""

from executors.local.executor import LocalExecutor

__all__ = ["LocalExecutor"]
