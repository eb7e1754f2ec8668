"""One line of a log: who wrote it, and for which request.

    INFO 2026-03-01 12:00:00,123 default/llm#1.0 rank=3 5f1c9a -- POST /chat 200 12.3ms
    {"asctime": ..., "levelname": "INFO", "application": "default", "deployment": "llm", "replica": ..., "rank": 3, ...}

The keys of the second are those of Ray Serve where there are such.
"""

import json
import logging
from collections.abc import Callable, Mapping
from typing import Any

from executors.ray_gpu.logs.config import JSON, LoggingConfig

Who = Mapping[str, Any]
"""What is said of the writer: `component_name` and `component_id` of a proxy; of a replica `application` and so on."""

CONTROL = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0))} | {
    ord(each): f"\\u{ord(each):04x}" for each in "\u2028\u2029"
}


def on_one_line(text: str) -> str:
    """A text of a stranger, such as a path: control characters as in Python's literals, so that it neither begins a line of its
    own nor tells a terminal anything.
    """
    return text if text.isprintable() else text.translate(CONTROL)


class WhoFilter(logging.Filter):
    """Puts who writes, and for which request, on each record. It keeps all of them."""

    def __init__(self, who: Callable[[], Who]) -> None:
        super().__init__()
        self._who = who

    def filter(self, record: logging.LogRecord) -> bool:
        """Give the record what it lacks: a line of the access log was written by the request that it is about."""
        for key, value in self._who().items():
            record.__dict__.setdefault(key, value)
        return True


class TextLine(logging.Formatter):
    """`LEVEL time who rank=n request more -- message`."""

    def __init__(self, more: tuple[str, ...] = ()) -> None:
        super().__init__()
        self._more = more

    def formatMessage(self, record: logging.LogRecord) -> str:
        """The line, without the traceback."""
        there = record.__dict__
        who = there.get("replica") or " ".join(str(there[key]) for key in ("component_name", "component_id") if key in there)
        rank = f"rank={there['rank']}" if there.get("rank") is not None else ""
        more = [str(there.get(each, "")) for each in self._more]
        words = [record.levelname, self.formatTime(record), who, rank, on_one_line(there.get("request_id", "")), *more]
        return f"{' '.join(filter(None, words))} -- {record.message}"

    def usesTime(self) -> bool:
        """It does, which logging looks for in the format."""
        return True


class JsonLine(logging.Formatter):
    """One JSON object."""

    KEYS = (
        "application", "deployment", "replica", "rank", "component_name", "component_id", "request_id", "route",
        "method", "status", "latency_ms",
    )  # fmt: skip

    def __init__(self, more: tuple[str, ...] = ()) -> None:
        super().__init__()
        self._more = more

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        there = record.__dict__
        line: dict[str, Any] = {
            "asctime": self.formatTime(record),
            "levelname": record.levelname,
            "message": record.getMessage(),
            "filename": record.filename,
            "lineno": record.lineno,
            "process": record.process,
        }
        line |= {key: there[key] for key in self.KEYS if there.get(key) not in (None, "")}
        line |= {key: there[key] for key in self._more if key in there and key not in line}
        if record.exc_info:
            line["exc_text"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def line_of(config: LoggingConfig) -> logging.Formatter:
    """How a line is written."""
    more = tuple(each for each in config.additional_log_standard_attrs if each not in ("message", "asctime", "levelname"))
    return JsonLine(more) if config.encoding == JSON else TextLine(more)
