"""Config objects under the names that they have in `ray.serve.schema`. Wherever one is taken, a dict of its fields is too."""

from enum import StrEnum

from executors.ray_gpu.logs.config import JSON, TEXT, LoggingConfig
from executors.ray_gpu.task_processor import TaskProcessorAdapter, TaskProcessorConfig, TaskResult
from executors.ray_gpu.traces import TracingConfig

__all__ = ["EncodingType", "LoggingConfig", "TaskProcessorAdapter", "TaskProcessorConfig", "TaskResult", "TracingConfig"]


class EncodingType(StrEnum):
    """How a line of a log is written."""

    TEXT = TEXT
    JSON = JSON
