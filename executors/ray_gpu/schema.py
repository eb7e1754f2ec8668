"""Config objects under the names that they have in `ray.serve.schema`. Wherever one is taken, a dict of its fields is too."""

from enum import StrEnum

from executors.ray_gpu.logs.config import JSON, TEXT, LoggingConfig

__all__ = ["EncodingType", "LoggingConfig"]


class EncodingType(StrEnum):
    """How a line of a log is written."""

    TEXT = TEXT
    JSON = JSON
