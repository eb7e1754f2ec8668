"""Where a class was that controllers of before name in their methods' signatures: Ray unpickles these when it restarts one.

A cluster that is upgraded in place has such a controller until its next `shutdown`.
"""

from executors.ray_gpu.ray_deployment import RayDeployment as Host

__all__ = ["Host"]
