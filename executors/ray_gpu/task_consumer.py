"""Under the name that Ray Serve has for it: see `task_processor`."""

from executors.ray_gpu.task_processor import instantiate_adapter_from_config, task_consumer, task_handler

__all__ = ["instantiate_adapter_from_config", "task_consumer", "task_handler"]
