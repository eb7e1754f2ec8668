"""Replicas as processes of this machine: small and real, and the template for an executor of one's own.

`executor` carries out commands, `process` is one replica as seen from there, `replica` is what runs in it, `places` are the
files through which they find each other, and `controller` is the loop around it that `rankcore run --executor local` runs.
docs/executors.md walks through them. Linux only: it needs pidfd.
"""

from executors.local.executor import LocalExecutor

__all__ = ["LocalExecutor"]
