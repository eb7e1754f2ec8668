"""Replicas log as their deployment says: as JSON or text, from a level on, into a folder, with a line for each request."""

import json
import logging
import tempfile
import time
from pathlib import Path

from ray import serve
from ray.serve.schema import LoggingConfig


@serve.deployment
class Chatty:
    def __call__(self) -> str:
        logger = logging.getLogger("ray.serve")
        logger.debug("in detail")
        logger.info("as usual")
        logger.warning("watch out")
        return "said"


def lines_in(folder: str) -> list:
    return [line for path in sorted(Path(folder).rglob("*.log")) for line in path.read_text().splitlines()]


def written(folder: str, last: str) -> list:
    deadline = time.monotonic() + 30
    while not any(last in line for line in lines_in(folder)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return lines_in(folder)


def main() -> object:
    with tempfile.TemporaryDirectory() as structured, tempfile.TemporaryDirectory() as plain:
        config = LoggingConfig(
            encoding="JSON", log_level="DEBUG", logs_dir=structured, additional_log_standard_attrs=["threadName"]
        )
        quiet = Chatty.options(logging_config={"log_level": "WARNING", "logs_dir": plain, "enable_access_log": False})
        serve.run(Chatty.options(logging_config=config).bind(), name="a", route_prefix=None).remote().result()
        serve.run(quiet.bind(), name="b", route_prefix=None).remote().result()
        objects = [json.loads(line) for line in written(structured, "CALL")]
        own = [each for each in objects if each["message"] in ("in detail", "as usual", "watch out")]
        asked = [each["message"].split()[:3] for each in objects if each["message"].startswith("CALL")]
        texts = [line for line in written(plain, "watch out") if "watch out" in line or "as usual" in line or "CALL" in line]
        return [
            [each["levelname"] for each in own],
            all({"application", "deployment", "replica", "threadName"} <= each.keys() for each in own),
            asked,
            [line.split()[0] for line in texts],
        ]


EXPECTED = [["DEBUG", "INFO", "WARNING"], True, [["CALL", "__call__", "OK"]], ["WARNING"]]
