"""Replicas as processes of this machine: small and real, and the template for an executor of one's own.

`executor` says how one begins and ends, `process` is one replica as seen from there, `replica` is what runs in it, and `places`
are the sockets by which they find each other; `executors.line_executor` is all that is the same whatever a replica is, and
`executors.run.fence` why a controller that was replaced does no harm. These six are the template, and docs/executors.md walks
through them. `user` runs the user's code in a replica; `plugin` is `--executor local`. Linux only: it needs pidfd.
`executors.local.LocalExecutor` is loaded when it is used: a replica's process imports this package too, and starts none.
"""

from typing import TYPE_CHECKING

from rankcore.homes import loading

if TYPE_CHECKING:
    from executors.local.executor import LocalExecutor

__all__ = ["LocalExecutor"]

__getattr__ = loading(__name__, {"LocalExecutor": "executors.local.executor"})
